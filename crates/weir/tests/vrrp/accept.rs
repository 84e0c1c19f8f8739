//! Tests `accept = false` (keepalived's `no_accept`).
//!
//! The active director drops packets to its VIPs that are not for a service.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::config;
use super::interop;
use super::pair::{Pair, VIP};
use super::world::privileged;

/// Address of a layer 4 service.
const BALANCED: &str = "10.0.0.12";
const VIP_V6: &str = "2001:db8::10";

/// Connects to an address from the client and sends a byte. Returns the first byte received, or `None`.
fn first_byte(pair: &Pair, address: &str) -> Option<u8> {
    let address: SocketAddr = address.parse().expect("parse the address");
    let client = pair.world.spawn_on("client", move || {
        let limit = Duration::from_secs(1);
        let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        stream.write_all(b"?").ok()?;
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        Some(byte[0])
    });
    client.join().expect("thread panicked")
}

fn responds_to_ping(pair: &Pair, address: &str) -> bool {
    let ping = format!("ping -c 1 -W 1 {address}");
    pair.world.output("client", &ping).status.success()
}

/// Returns whether the client has resolved an address.
fn is_resolved(pair: &Pair, address: &str) -> bool {
    let neighbor = pair
        .world
        .output("client", &format!("ip neigh show {address}"));
    String::from_utf8_lossy(&neighbor.stdout).contains("lladdr")
}

fn has_filter(pair: &Pair) -> bool {
    let tables = pair.world.output("director", "nft list tables");
    String::from_utf8_lossy(&tables.stdout).contains("table inet weir_vrrp_outside\n")
}

/// Starts servers that each send a byte: the proxy service's on the director, the layer 4 service's on the second host,
/// and a server on the director that is not part of a service.
fn start_servers(pair: &mut Pair) {
    for (host, port, byte) in [
        ("director", "TCP-LISTEN:9,bind=127.0.0.1", "p"),
        ("director", "TCP6-LISTEN:8081", "o"),
        ("second", "TCP-LISTEN:80", "b"),
    ] {
        let mut server = pair.world.command(host, "socat");
        let server = server
            .arg(format!("{port},fork,reuseaddr"))
            .arg(format!("SYSTEM:head -c 1 >/dev/null; printf {byte}"))
            .spawn()
            .expect("start socat");
        pair.world.kill_on_drop(server);
    }
}

fn prepare_hosts(pair: &mut Pair) {
    for (host, number) in [("client", 2), ("director", 3)] {
        pair.ip(
            host,
            &format!("addr add 2001:db8::{number}/64 dev eth0 nodad"),
        );
    }
    let netns_exec = format!("ip netns exec {}", pair.world.namespace("second"));
    super::world::sh(&format!(
        "{netns_exec} sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"
    ));
    pair.ip("second", &format!("addr add {BALANCED}/32 dev lo"));
    start_servers(pair);
}

fn config_with_accept(accept: bool) -> String {
    let extra = format!(
        "accept = {accept}\nexcluded_addresses = [\"{VIP_V6}/64\", \"{BALANCED}/32\"]\n\
         [pool.web]\nservers = [\"10.0.0.4\"]\n\
         [service.web]\nlisten = [\"{BALANCED}:80\"]\nforward = \"direct\"\npool = \"web\""
    );
    config(150, &extra)
}

#[test]
fn director_without_accept_serves_only_services() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    prepare_hosts(&mut pair);
    pair.start("director", &config_with_accept(false));
    pair.wait_for_holder("director");
    pair.wait_for("the proxy service to respond", || {
        first_byte(&pair, &format!("{VIP}:8080")) == Some(b'p')
    });
    pair.wait_for("the layer 4 service to respond", || {
        first_byte(&pair, &format!("{BALANCED}:80")) == Some(b'b')
    });
    for address in [VIP, VIP_V6, BALANCED] {
        assert!(!responds_to_ping(&pair, address), "{address}");
        assert!(is_resolved(&pair, address), "{address}");
    }
    for address in ["10.0.0.3", "2001:db8::3"] {
        assert!(responds_to_ping(&pair, address), "{address}");
    }
    assert_eq!(first_byte(&pair, "10.0.0.3:8081"), Some(b'o'));
    assert_eq!(first_byte(&pair, "[2001:db8::3]:8081"), Some(b'o'));
    for address in [format!("{VIP}:8081"), format!("[{VIP_V6}]:8081")] {
        assert_eq!(first_byte(&pair, &address), None, "{address}");
    }
    let output = pair.world.output("director", &format!("ping -c 1 {VIP}"));
    assert!(
        output.status.success(),
        "the director must reach its own address"
    );

    // A reload changes the setting in both directions, and Weir restores a filter that another program removed.
    pair.reload("director", &config_with_accept(true));
    pair.wait_for("a reply to a ping", || responds_to_ping(&pair, VIP));
    assert!(responds_to_ping(&pair, VIP_V6) && !has_filter(&pair));
    pair.reload("director", &config_with_accept(false));
    pair.wait_for("the director not to reply", || {
        !responds_to_ping(&pair, VIP)
    });
    assert!(has_filter(&pair));
    super::world::sh(&format!(
        "ip netns exec {} nft flush ruleset",
        pair.world.namespace("director")
    ));
    pair.reload("director", &config_with_accept(false));
    pair.wait_for("the filter to be added", || has_filter(&pair));

    // Weir removes the filter together with the addresses, even if a killed director left them behind.
    pair.weir("director", &["vrrp", "outside", "release"]);
    pair.wait_for("the filter to be removed", || !has_filter(&pair));
    pair.weir("director", &["vrrp", "outside", "resume"]);
    pair.wait_for("the filter to be added", || {
        has_filter(&pair) && pair.holds("director", VIP)
    });
    for name in ["vrrp-agent", "helper"] {
        pair.suspend(pair.process_id("director", name));
    }
    pair.kill_all("director");
    assert!(has_filter(&pair));
    pair.weir("director", &["clean"]);
    assert!(!has_filter(&pair) && !pair.holds("director", VIP));
}

/// Neither program accepts packets to the address, but both reply to ARP requests for it and hand it over.
#[test]
fn weir_and_keepalived_are_silent_without_accept() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let keepalived = format!(
        "global_defs {{\n  vrrp_version 3\n  nftables\n}}\nvrrp_instance v {{\n  state BACKUP\n  interface eth0\n  \
         virtual_router_id 51\n  priority 100\n  advert_int 0.1\n  no_accept\n  virtual_ipaddress {{\n    \
         {VIP}/24 dev eth0\n  }}\n}}\n"
    );
    interop::start_keepalived(&mut pair, &keepalived);
    pair.wait_for("keepalived to have the address", || {
        pair.holds("second", VIP)
    });
    let is_silent = |pair: &Pair| !responds_to_ping(pair, VIP) && is_resolved(pair, VIP);
    pair.wait_for("keepalived not to reply", || is_silent(&pair));
    pair.start("director", &config(150, "accept = false"));
    pair.wait_for_holder("director");
    pair.ip("client", "neigh flush dev eth0");
    assert!(is_silent(&pair), "Weir must not reply");
    // The filter does not affect advertisements.
    pair.stop("director");
    pair.wait_for("keepalived to have the address again", || {
        pair.holds("second", VIP) && !pair.holds("director", VIP)
    });
    assert!(is_silent(&pair), "keepalived must not reply");
}
