//! Reports interfaces without a connection: the cause of most other findings about what is behind them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_model::{Desired, Network};
use weir_netlink::{Address, Link, NetState};

use crate::Diagnosis;

/// Reports interfaces that are disabled or have no carrier, if the configuration names them, or servers are in their
/// networks.
pub(crate) fn disconnected(
    desired: &Desired,
    servers: &BTreeSet<IpAddr>,
    state: &NetState,
) -> Vec<Diagnosis> {
    let configured = desired.node.interfaces.iter().flatten();
    let configured: BTreeSet<&String> = configured.chain(&desired.node.vip_interface).collect();
    let links = state.links.values();
    let links = links.filter(|link| !link.loopback && (!link.up || !link.carrier));
    links
        .filter(|link| configured.contains(&link.name) || has_servers(link, servers, state))
        .map(diagnosis)
        .collect()
}

/// Returns whether a server is in a network of the interface's addresses.
fn has_servers(link: &Link, servers: &BTreeSet<IpAddr>, state: &NetState) -> bool {
    let addresses = state.addresses.iter();
    let mut networks = addresses
        .filter(|address| address.ifindex == link.index)
        .map(network_of);
    networks.any(|network| servers.iter().any(|server| network.contains(*server)))
}

/// Returns the network of an interface's address.
pub(crate) fn network_of(address: &Address) -> Network {
    Network {
        address: address.ip,
        prefix: address.prefix,
    }
}

fn diagnosis(link: &Link) -> Diagnosis {
    let name = &link.name;
    let consequence = "nothing behind it can be reached; other findings may be a consequence";
    if link.up {
        Diagnosis::new(format!("{name} has no carrier"), consequence).fix(format!(
            "connect the cable, or start the other end; then: ip link show {name}"
        ))
    } else {
        Diagnosis::new(format!("{name} is disabled"), consequence)
            .fix(format!("ip link set {name} up"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::{Host, parse};

    const FILE: &str = "[pool.web]\nservers = [\"10.0.0.5\"]\n[service.web]\nlisten = [\"192.0.2.1:80\"]\n\
                        forward = \"nat\"\npool = \"web\"\n";

    fn found(up: bool, carrier: bool, address: &str, file: &str) -> Vec<String> {
        let desired = parse(file, &Host::default()).unwrap().desired;
        let link = Link {
            index: 2,
            name: "eth1".to_owned(),
            kind: None,
            mac: None,
            mtu: 1500,
            up,
            carrier,
            loopback: false,
            master: None,
            lower: None,
            vlan: None,
        };
        let address = Address {
            ifindex: 2,
            ip: address.parse().unwrap(),
            prefix: 24,
            label: None,
            tentative: false,
            duplicate: false,
            destination_only: false,
            handed_over: false,
        };
        let state = NetState {
            links: [(2, link)].into(),
            addresses: vec![address],
            ..NetState::default()
        };
        let servers = ["10.0.0.5".parse().unwrap()].into();
        let findings = disconnected(&desired, &servers, &state);
        findings
            .into_iter()
            .map(|found| found.observation)
            .collect()
    }

    #[test]
    fn only_interfaces_with_servers_or_in_the_file_are_reported() {
        assert_eq!(
            found(true, false, "10.0.0.1", FILE),
            ["eth1 has no carrier"]
        );
        assert_eq!(found(false, false, "10.0.0.1", FILE), ["eth1 is disabled"]);
        assert!(found(true, true, "10.0.0.1", FILE).is_empty());
        assert!(found(false, false, "10.0.9.1", FILE).is_empty());
        let named = format!("[node]\nvip_interface = \"eth1\"\n{FILE}");
        assert_eq!(
            found(false, false, "10.0.9.1", &named),
            ["eth1 is disabled"]
        );
    }
}
