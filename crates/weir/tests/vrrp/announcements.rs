//! Tests that clients learn an active director's MAC address after changes other than a takeover.

use super::config;
use super::pair::{Pair, VIP};
use super::world::{privileged, sh};

const ADDRESS: &str = "10.0.0.77";
const OTHER_ADDRESS: &str = "10.9.0.10";
/// Without this setting, a second announcement would follow the takeover after five seconds.
const ONE_ANNOUNCEMENT: &str = "garp_delay = \"0s\"";

/// Starts the only director, which becomes active.
fn start(extra: &str) -> Pair {
    let mut pair = Pair::new();
    pair.start(
        "director",
        &config(150, &format!("{ONE_ANNOUNCEMENT}\n{extra}")),
    );
    pair.wait_for_holder("director");
    pair
}

fn set_wrong_neighbor(pair: &Pair, address: &str) {
    let entry = format!("neigh replace {address} lladdr 02:00:00:00:00:99 nud stale dev eth0");
    pair.ip("client", &entry);
}

#[test]
fn address_that_a_reload_adds_is_announced() {
    if !privileged() {
        return;
    }
    let pair = start("");
    set_wrong_neighbor(&pair, ADDRESS);
    let extra = format!("{ONE_ANNOUNCEMENT}\nexcluded_addresses = [\"{ADDRESS}/32\"]");
    pair.reload("director", &config(150, &extra));
    pair.wait_for("the announcement", || {
        pair.resolves_to("client", ADDRESS, "director")
    });
    assert_eq!(pair.router("director")["takeovers"], 1);
}

#[test]
fn addresses_are_announced_after_link_up_and_with_new_mac_address() {
    if !privileged() {
        return;
    }
    let pair = start("track_interface = false");
    let wire = pair.world.namespace("wire");
    sh(&format!("ip -n {wire} link set director down"));
    set_wrong_neighbor(&pair, VIP);
    sh(&format!("ip -n {wire} link set director up"));
    pair.wait_for("the announcement after link-up", || {
        pair.resolves_vip_to("client", "director")
    });
    pair.ip("director", "link set eth0 address 02:00:00:00:00:77");
    pair.wait_for("the announcement of the new MAC address", || {
        pair.resolves_vip_to("client", "director")
    });
    assert_eq!(pair.router("director")["takeovers"], 1);
}

#[test]
fn address_is_announced_after_its_interface_was_replaced() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let (director, client) = (
        pair.world.namespace("director"),
        pair.world.namespace("client"),
    );
    let add_interface = || {
        sh(&format!(
            "ip -n {director} link add side type veth peer name far netns {client}"
        ));
        for command in [
            "ip link set far up",
            "ip addr add 10.9.0.1/24 dev far",
            // Only the director's announcement can give the client the MAC address.
            "sysctl -qw net.ipv4.conf.far.arp_accept=1",
        ] {
            sh(&format!("ip netns exec {client} {command}"));
        }
        sh(&format!("ip -n {director} link set side up"));
    };
    add_interface();
    let extra = format!(
        "{ONE_ANNOUNCEMENT}\nexcluded_addresses = [\"{OTHER_ADDRESS}/24\"]\n\
         other_interfaces = [{{ interface = \"side\", addresses = [\"{OTHER_ADDRESS}\"] }}]"
    );
    pair.start("director", &config(150, &extra));
    let is_resolved = || {
        let command = format!("ip neigh show {OTHER_ADDRESS} dev far");
        let output = pair.world.output("client", &command);
        String::from_utf8_lossy(&output.stdout).contains("lladdr")
    };
    pair.wait_for("the announcement", is_resolved);
    pair.ip("director", "link del side");
    add_interface();
    pair.wait_for("the announcement on the new interface", is_resolved);
    assert_eq!(pair.router("director")["takeovers"], 1);
}
