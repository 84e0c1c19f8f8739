//! Reports interfaces without a connection, and finds the addresses that are unreachable because of them.
//!
//! Other findings about these addresses are omitted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_model::{Desired, Network, TrackObject};
use weir_netlink::{Address, Link, NetState, resolve};

use crate::Diagnosis;

/// Maximum number of unreachable addresses in a finding.
const MAX_SHOWN_ADDRESSES: usize = 4;

/// Interfaces of this director that are down or have no carrier.
#[derive(Clone, Debug, Default)]
pub struct Disconnected {
    links: Vec<Link>,
    /// Unreachable servers and directors, with the index of the interface that is the cause.
    unreachable: BTreeMap<IpAddr, u32>,
}

impl Disconnected {
    /// Finds the interfaces without a connection that the configuration names, and those with one of `destinations` in
    /// their networks. `state` must contain lookups of `destinations`.
    pub(crate) fn new(
        desired: &Desired,
        destinations: &BTreeSet<IpAddr>,
        state: &NetState,
    ) -> Self {
        let configured = configured_interfaces(desired);
        let links = state.links.values();
        let links: Vec<Link> = links
            .filter(|link| !link.loopback && !is_connected(link))
            .filter(|link| {
                let mut destinations = destinations.iter();
                configured.contains(link.name.as_str())
                    || destinations.any(|it| has_network_of(link, *it, state))
            })
            .cloned()
            .collect();
        let causes = destinations.iter().filter_map(|destination| {
            let link = find_cause(*destination, &links, state)?;
            Some((*destination, link.index))
        });
        Self {
            unreachable: causes.collect(),
            links,
        }
    }

    /// Returns whether the interface is down or has no carrier.
    pub fn contains(&self, name: &str) -> bool {
        self.links.iter().any(|link| link.name == name)
    }

    /// Returns whether a server or director is unreachable because of one of these interfaces.
    pub fn is_cause_for(&self, address: IpAddr) -> bool {
        self.unreachable.contains_key(&address)
    }

    pub(crate) fn contains_index(&self, ifindex: u32) -> bool {
        self.links.iter().any(|link| link.index == ifindex)
    }

    /// Returns a finding for each interface.
    pub(crate) fn findings(&self) -> Vec<Diagnosis> {
        let links = self.links.iter();
        links.map(|link| self.diagnosis(link)).collect()
    }

    fn diagnosis(&self, link: &Link) -> Diagnosis {
        let name = &link.name;
        let addresses = self.unreachable.iter();
        let addresses = addresses.filter(|(_, cause)| **cause == link.index);
        let addresses: Vec<String> = addresses.map(|(address, _)| address.to_string()).collect();
        let consequence = match addresses.len() {
            0 => "nothing behind it can be reached; other findings may be a consequence".to_owned(),
            count => {
                let shown = addresses[..count.min(MAX_SHOWN_ADDRESSES)].join(", ");
                let more = match count.saturating_sub(MAX_SHOWN_ADDRESSES) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!(
                    "nothing behind it can be reached: {shown}{more}; other findings about these addresses are omitted"
                )
            }
        };
        if link.up {
            Diagnosis::new(format!("{name} has no carrier"), consequence).fix(format!(
                "connect the cable, or start the other end; then: ip link show {name}"
            ))
        } else {
            Diagnosis::new(format!("{name} is down"), consequence)
                .fix(format!("ip link set {name} up"))
        }
    }
}

/// Returns the names of the interfaces in the configuration.
fn configured_interfaces(desired: &Desired) -> BTreeSet<&str> {
    let node_interfaces = desired.node.interfaces.iter().flatten();
    let node_interfaces = node_interfaces.chain(&desired.node.vip_interface);
    let router_interfaces = desired.vrrp.iter().filter_map(|it| it.interface.as_ref());
    let tracked_objects = desired.vrrp.iter().flat_map(|router| &router.track);
    let tracked_interfaces = tracked_objects.filter_map(|tracked| match &tracked.object {
        TrackObject::Interface(name) => Some(name),
        _ => None,
    });
    node_interfaces
        .chain(router_interfaces)
        .chain(tracked_interfaces)
        .map(String::as_str)
        .collect()
}

const fn is_connected(link: &Link) -> bool {
    link.up && link.carrier
}

/// Returns the interface that makes a destination unreachable. An interface that is down has no routes. A destination
/// in its network is therefore attributed to it even if there is a route over a different interface, and a destination
/// without a route is attributed to the first interface that is down.
fn find_cause<'a>(destination: IpAddr, links: &'a [Link], state: &NetState) -> Option<&'a Link> {
    let mut others = state.links.values();
    if others.any(|link| is_connected(link) && has_network_of(link, destination, state)) {
        return None;
    }
    let in_network = links.iter();
    let mut in_network = in_network.filter(|link| has_network_of(link, destination, state));
    let paths = resolve(destination, state);
    let of_path = |link: &&Link| {
        let uses = |it: &weir_netlink::ResolvedPath| {
            !it.local && (it.device == link.index || it.ifindex == link.index)
        };
        paths.iter().all(uses)
    };
    in_network.next().or_else(|| match paths.is_empty() {
        true => links.iter().find(|link| !link.up),
        false => links.iter().find(of_path),
    })
}

/// Returns whether a destination is in a network of the interface's addresses.
fn has_network_of(link: &Link, destination: IpAddr, state: &NetState) -> bool {
    let addresses = state.addresses.iter();
    let mut own_addresses = addresses.filter(|address| address.ifindex == link.index);
    own_addresses.any(|address| network_of(address).contains(destination))
}

/// Returns the network of an interface's address.
pub(crate) fn network_of(address: &Address) -> Network {
    Network {
        address: address.ip,
        prefix: address.prefix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::{Host, parse};

    const FILE: &str = "[pool.web]\nservers = [\"10.0.0.5\"]\n[service.web]\nlisten = [\"192.0.2.1:80\"]\n\
                        forward = \"nat\"\npool = \"web\"\n";

    fn observations(up: bool, carrier: bool, address: &str, file: &str) -> Vec<String> {
        let findings = disconnected(up, carrier, address, file).findings();
        let findings = findings.into_iter();
        findings.map(|finding| finding.observation).collect()
    }

    fn disconnected(up: bool, carrier: bool, address: &str, file: &str) -> Disconnected {
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
        Disconnected::new(&desired, &servers, &state)
    }

    /// Without route lookups, no server has a route.
    #[test]
    fn unreachable_servers_are_in_the_finding() {
        let named = format!("[node]\nvip_interface = \"eth1\"\n{FILE}");
        let server = "10.0.0.5".parse().unwrap();
        for (up, address, is_cause) in [
            (false, "10.0.0.1", true),
            (true, "10.0.0.1", true),
            (false, "10.0.9.1", true),
            (true, "10.0.9.1", false),
        ] {
            let interfaces = disconnected(up, false, address, &named);
            assert_eq!(interfaces.is_cause_for(server), is_cause, "{up} {address}");
            let text = interfaces.findings()[0].to_string();
            assert_eq!(text.contains("10.0.0.5"), is_cause, "{text}");
        }
        assert!(!disconnected(true, true, "10.0.0.1", &named).is_cause_for(server));
    }

    #[test]
    fn only_interfaces_with_servers_or_in_the_file_are_reported() {
        assert_eq!(
            observations(true, false, "10.0.0.1", FILE),
            ["eth1 has no carrier"]
        );
        assert_eq!(
            observations(false, false, "10.0.0.1", FILE),
            ["eth1 is down"]
        );
        assert!(observations(true, true, "10.0.0.1", FILE).is_empty());
        assert!(observations(false, false, "10.0.9.1", FILE).is_empty());
        let named = format!("[node]\nvip_interface = \"eth1\"\n{FILE}");
        assert_eq!(
            observations(false, false, "10.0.9.1", &named),
            ["eth1 is down"]
        );
    }
}
