//! Loads nftables rules: stateless balancing, DNAT with conntrack, and a filter that drops new connections.
//!
//! Stateless balancing uses direct server return (`stateless-direct`). DNAT is the peer of `nat`.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::peer::nginx::PORT;
use crate::process;
use crate::topology::{Topology, VIP};

/// The name of the table that [`drop_syns`] adds.
const SYN_TABLE: &str = "weir-lab-syns";

/// Loads the rules of stateless balancing with direct server return. The director selects a server by a hash of the
/// client's port, rewrites the destination address to the server's, and forwards the packet. The servers rewrite the
/// source address of their responses to the VIP. In contrast, IPVS's direct routing changes only the MAC addresses.
pub(crate) fn load_direct_rules(topology: &Topology) -> Result<()> {
    let servers = server_addresses(topology);
    load(
        &topology.director.namespace,
        &direct_director_rules(&servers),
    )?;
    enable_forwarding(&topology.director.namespace)?;
    topology
        .servers
        .iter()
        .try_for_each(|server| load(&server.namespace, &direct_server_rules()))
}

/// Loads DNAT with conntrack and round robin.
pub(crate) fn load_dnat_rules(topology: &Topology) -> Result<()> {
    load(
        &topology.director.namespace,
        &dnat_director_rules(&server_addresses(topology)),
    )?;
    enable_forwarding(&topology.director.namespace)
}

/// Drops the first packets of new connections to a port of this host.
pub(crate) fn drop_syns(host: &Namespace, port: u16) -> Result<()> {
    load(
        host,
        &format!(
            "add table inet {SYN_TABLE}\nadd chain inet {SYN_TABLE} in {{ type filter hook input priority 0; }}\n\
             add rule inet {SYN_TABLE} in tcp dport {port} tcp flags & (syn | ack) == syn drop\n"
        ),
    )
}

/// Reverts [`drop_syns`].
pub(crate) fn pass_syns(host: &Namespace) -> Result<()> {
    load(host, &format!("delete table inet {SYN_TABLE}\n"))
}

fn server_addresses(topology: &Topology) -> Vec<Ipv4Addr> {
    topology
        .servers
        .iter()
        .map(|server| server.address)
        .collect()
}

fn enable_forwarding(director: &Namespace) -> Result<()> {
    director.set_sysctls(&[
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/eth0/rp_filter", "0"),
    ])
}

fn load(namespace: &Namespace, rules: &str) -> Result<()> {
    let network = format!("--net={}", namespace.path().display());
    process::run_with_input("nsenter", &[&network, "--", "nft", "-f", "-"], rules).map(drop)
}

/// Returns a map from indexes to servers, such as `{ 0 : 10.0.0.5, 1 : 10.0.0.6 }`.
fn numbered_map(servers: &[Ipv4Addr]) -> String {
    let mut text = String::from("{");
    for (index, address) in servers.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma} {index} : {address}");
    }
    text + " }"
}

fn direct_director_rules(servers: &[Ipv4Addr]) -> String {
    format!(
        "table ip lab {{\n chain prerouting {{\n  type filter hook prerouting priority -300; policy accept;\n  \
         ip daddr {VIP} tcp dport {PORT} ip daddr set jhash tcp sport mod {} map {}\n }}\n}}\n",
        servers.len(),
        numbered_map(servers)
    )
}

fn direct_server_rules() -> String {
    format!(
        "table ip lab {{\n chain output {{\n  type filter hook output priority -300; policy accept;\n  \
         tcp sport {PORT} ip saddr set {VIP}\n }}\n}}\n"
    )
}

fn dnat_director_rules(servers: &[Ipv4Addr]) -> String {
    format!(
        "table ip lab {{\n chain prerouting {{\n  type nat hook prerouting priority dstnat; policy accept;\n  \
         ip daddr {VIP} tcp dport {PORT} dnat to numgen inc mod {} map {}\n }}\n}}\n",
        servers.len(),
        numbered_map(servers)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_contain_every_server_once() {
        let servers = [Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 6)];
        let text = [
            direct_director_rules(&servers),
            direct_server_rules(),
            dnat_director_rules(&servers),
        ]
        .join("\n");
        insta::assert_snapshot!(text);
    }
}
