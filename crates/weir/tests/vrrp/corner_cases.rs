//! Tests corner cases of VRRP that keepalived users have reported.
//!
//! The cases are networks shared by virtual routers, routed unicast, and address resolution after a link failure.

use super::config;
use super::interop::start_keepalived;
use super::pair::{Pair, VIP};
use super::world::{privileged, sh};

fn set_sysctl(pair: &Pair, host: &str, setting: &str) {
    let namespace = pair.world.namespace(host);
    sh(&format!("ip netns exec {namespace} sysctl -qw {setting}"));
}

/// With `promote_secondaries = 0`, the kernel removes all addresses of a network together with the first one.
#[test]
fn removing_an_address_keeps_others_of_its_network() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    for name in ["all", "eth0"] {
        set_sysctl(
            &pair,
            "director",
            &format!("net.ipv4.conf.{name}.promote_secondaries=0"),
        );
    }
    let router = |name: &str, id: u8, address: &str| {
        format!(
            "[vrrp.{name}]\ninterface = \"eth0\"\nvirtual_router_id = {id}\nversion = 3\n\
             advert_interval = \"100ms\"\naddresses = [\"{address}/24\"]\n"
        )
    };
    let first = router("outside", 51, "192.0.2.10");
    pair.start("director", &first);
    pair.wait_for("the first address", || pair.holds("director", "192.0.2.10"));
    let two_routers = format!("{first}{}", router("other", 52, "192.0.2.11"));
    pair.reload("director", &two_routers);
    pair.wait_for("the second address", || {
        pair.holds("director", "192.0.2.11")
    });
    pair.ip("director", "addr add 192.0.2.20/24 dev eth0");
    pair.weir("director", &["vrrp", "outside", "release"]);
    pair.wait_for("only the other addresses", || {
        !pair.holds("director", "192.0.2.10")
            && pair.holds("director", "192.0.2.11")
            && pair.holds("director", "192.0.2.20")
    });
    // Both addresses are removed together, and neither is added again.
    pair.weir("director", &["vrrp", "outside", "resume"]);
    pair.wait_for("the first address again", || {
        pair.holds("director", "192.0.2.10")
    });
    pair.stop_and_wait("director");
    assert!(!pair.holds("director", "192.0.2.10") && !pair.holds("director", "192.0.2.11"));
    assert!(pair.holds("director", "192.0.2.20"));
}

/// keepalived accepts any TTL in unicast packets; Weir accepts those that `unicast_min_ttl` permits.
#[test]
fn routed_unicast_works_with_keepalived() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    // The client routes between the subnets of the two directors.
    pair.ip("client", "addr add 10.1.0.2/24 dev eth0");
    set_sysctl(&pair, "client", "net.ipv4.ip_forward=1");
    for name in ["all", "eth0"] {
        set_sysctl(
            &pair,
            "client",
            &format!("net.ipv4.conf.{name}.send_redirects=0"),
        );
    }
    pair.ip("second", "addr flush dev eth0 scope global");
    pair.ip("second", "addr add 10.1.0.4/24 dev eth0");
    pair.ip("second", "route replace 10.0.0.0/24 via 10.1.0.2");
    pair.ip("director", "route replace 10.1.0.0/24 via 10.0.0.2");
    start_keepalived(
        &mut pair,
        &format!(
            "vrrp_instance v {{\n  state BACKUP\n  interface eth0\n  virtual_router_id 51\n  version 3\n  \
             priority 100\n  advert_int 0.1\n  unicast_src_ip 10.1.0.4\n  unicast_peer {{\n    10.0.0.3\n  }}\n  \
             virtual_ipaddress {{\n    {VIP}/32 dev eth0\n  }}\n}}\n"
        ),
    );
    let unicast = |extra: &str| {
        let extra = format!("source = \"10.0.0.3\"\nunicast_peers = [\"10.1.0.4\"]\n{extra}");
        config(50, &extra)
    };
    // By default, Weir accepts no forwarded packets.
    pair.start("director", &unicast(""));
    pair.wait_for("ignored packets", || {
        pair.router("director")["ignored"]["hop-limit"]
            .as_u64()
            .is_some_and(|count| count > 0)
    });
    pair.wait_for_state("director", "active");
    pair.reload("director", &unicast("unicast_min_ttl = 254"));
    pair.wait_for("the active peer", || {
        let router = pair.router("director");
        router["state"] == "backup" && router["active_peer"] == "10.1.0.4"
    });
    // keepalived also receives packets from this director.
    pair.reload(
        "director",
        &unicast("unicast_min_ttl = 254\nunicast_ttl = 9")
            .replace("priority = 50", "priority = 150"),
    );
    pair.wait_for_state("director", "active");
    pair.wait_for("keepalived to be backup", || !pair.holds("second", VIP));
}

/// Unicast peers may have lost the MAC address of a director after its link failed.
#[test]
fn source_is_announced_to_unicast_peers_after_link_failure() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let unicast = |priority, local: u8, peer: u8| {
        let extra = format!("source = \"10.0.0.{local}\"\nunicast_peers = [\"10.0.0.{peer}\"]");
        config(priority, &extra)
    };
    pair.start("second", &unicast(150, 4, 3));
    pair.wait_for_state("second", "active");
    pair.start("director", &unicast(50, 3, 4));
    pair.wait_for("the active peer", || {
        pair.router("director")["active_peer"] == "10.0.0.4"
    });
    let wire = pair.world.namespace("wire");
    sh(&format!("ip -n {wire} link set director down"));
    pair.wait_for_state("director", "fault");
    // As a backup, the director sends nothing else to the client.
    pair.ip(
        "client",
        "neigh replace 10.0.0.3 lladdr 02:00:00:00:00:99 nud stale dev eth0",
    );
    sh(&format!("ip -n {wire} link set director up"));
    pair.wait_for("the announcement", || {
        let output = pair
            .world
            .output("client", "ip neigh show 10.0.0.3 dev eth0");
        let neighbor = String::from_utf8_lossy(&output.stdout).into_owned();
        neighbor.contains("lladdr") && !neighbor.contains("02:00:00:00:00:99")
    });
    pair.wait_for_state("director", "backup");
}
