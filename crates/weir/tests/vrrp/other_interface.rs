//! Tests addresses on an interface other than the one that carries the advertisements.
//!
//! keepalived's equivalent is `virtual_ipaddress { IP dev IF }`.

use super::config;
use super::pair::Pair;
use super::world::{privileged, sh};

const ADDRESS: &str = "10.9.0.10";

fn addresses_of(pair: &Pair, interface: &str) -> String {
    let command = format!("ip -o addr show dev {interface}");
    let output = pair.world.output("director", &command);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn address_is_added_and_announced_on_its_interface() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let (director, client) = (
        pair.world.namespace("director"),
        pair.world.namespace("client"),
    );
    sh(&format!(
        "ip -n {director} link add side type veth peer name far netns {client}"
    ));
    pair.ip("director", "link set side up");
    pair.ip("client", "link set far up");
    pair.ip("client", "addr add 10.9.0.1/24 dev far");
    // The client sends no ARP requests. With `arp_accept`, the director's gratuitous ARP creates a neighbor entry.
    sh(&format!(
        "ip netns exec {client} sysctl -qw net.ipv4.conf.far.arp_accept=1"
    ));
    let extra = format!(
        "excluded_addresses = [\"{ADDRESS}/24\"]\n\
         other_interfaces = [{{ interface = \"side\", addresses = [\"{ADDRESS}\"] }}]"
    );
    pair.start("director", &config(150, &extra));
    pair.wait_for_holder("director");
    pair.wait_for("the address", || {
        addresses_of(&pair, "side").contains(&format!("{ADDRESS}/24"))
    });
    assert!(!addresses_of(&pair, "eth0").contains(ADDRESS));
    pair.wait_for("the announcement", || {
        let command = format!("ip neigh show {ADDRESS} dev far");
        let output = pair.world.output("client", &command);
        String::from_utf8_lossy(&output.stdout).contains("lladdr")
    });
    // Without `other_interfaces`, the address is on the virtual router's interface.
    pair.reload(
        "director",
        &config(150, &format!("excluded_addresses = [\"{ADDRESS}/24\"]")),
    );
    pair.wait_for("the address on eth0", || {
        addresses_of(&pair, "eth0").contains(ADDRESS)
    });
    assert!(!addresses_of(&pair, "side").contains(ADDRESS));
}
