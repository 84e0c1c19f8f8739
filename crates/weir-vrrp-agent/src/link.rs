//! Selects the interface and source address of a virtual router from the host's links and addresses.

use std::net::IpAddr;

use weir_model::VirtualRouter;
use weir_netlink::{Address, Link};

/// The interface and source address of a virtual router's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) ifindex: u32,
    pub(crate) interface: String,
    pub(crate) source: IpAddr,
    pub(crate) mac: Option<weir_netlink::MacAddr>,
}

/// The links and addresses of this network namespace.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) links: Vec<Link>,
    pub(crate) addresses: Vec<Address>,
}

impl Network {
    /// Returns the attachment of a virtual router; `None` if the interface is missing or has no source address, or if
    /// the interface is down and `track_interface` is set. `routers` are all virtual routers, and `previous` is the
    /// previous source address.
    pub(crate) fn attachment(
        &self,
        router: &VirtualRouter,
        routers: &[VirtualRouter],
        previous: Option<IpAddr>,
    ) -> Option<Attachment> {
        let link = match (&router.interface, router.source) {
            (Some(name), _) => self.links.iter().find(|link| link.name == *name)?,
            (None, source) => {
                let address = self.addresses.iter().find(|it| Some(it.ip) == source)?;
                self.links
                    .iter()
                    .find(|link| link.index == address.ifindex)?
            }
        };
        if router.track_interface && !(link.up && link.carrier) {
            return None;
        }
        Some(Attachment {
            ifindex: link.index,
            interface: link.name.clone(),
            source: self.source(router, routers, link.index, previous)?,
            mac: link.mac,
        })
    }

    /// Returns the configured source address if the interface has it. If none is configured, returns the previous
    /// source address, or the interface's first address that is not virtual; for IPv6, it must be link-local (RFC 9568
    /// section 5.1.2.1). An address of another virtual router is not suitable, because it moves to another director,
    /// and unicast peers ignore advertisements from it. The kernel lists a new IPv6 address first.
    fn source(
        &self,
        router: &VirtualRouter,
        routers: &[VirtualRouter],
        ifindex: u32,
        previous: Option<IpAddr>,
    ) -> Option<IpAddr> {
        let v4 = router.is_ipv4();
        let usable = self.addresses.iter().filter(|it| {
            it.ifindex == ifindex && it.ip.is_ipv4() == v4 && !it.tentative && !it.duplicate
        });
        let mut usable = usable.map(|it| it.ip);
        if let Some(source) = router.source {
            return usable.find(|ip| *ip == source && !is_virtual(router, *ip));
        }
        let candidates: Vec<IpAddr> = usable
            .filter(|ip| match ip {
                IpAddr::V4(_) => true,
                IpAddr::V6(ip) => ip.is_unicast_link_local(),
            })
            .filter(|ip| !routers.iter().any(|router| is_virtual(router, *ip)))
            .collect();
        let previous = previous.filter(|ip| candidates.contains(ip));
        previous.or_else(|| candidates.first().copied())
    }

    /// Returns the virtual router's managed addresses that are on its interfaces, except the source address of its
    /// packets.
    pub(crate) fn addresses_of<'a>(
        &'a self,
        router: &'a VirtualRouter,
        attachment: Option<&'a Attachment>,
    ) -> impl Iterator<Item = &'a Address> {
        let own_index = match (&router.interface, attachment) {
            (Some(name), _) => self.index_of(name),
            (None, Some(attachment)) => Some(attachment.ifindex),
            (None, None) => None,
        };
        let source = attachment.map(|it| it.source);
        let managed = router
            .managed_addresses()
            .filter(move |network| Some(network.address) != source);
        managed.flat_map(move |network| {
            let index = match router.other_interface(network.address) {
                Some(name) => self.index_of(name),
                None => own_index,
            };
            let known = self.addresses.iter();
            known.filter(move |it| Some(it.ifindex) == index && it.ip == network.address)
        })
    }

    fn index_of(&self, name: &str) -> Option<u32> {
        let mut links = self.links.iter();
        links.find(|link| link.name == name).map(|link| link.index)
    }

    /// Returns the index and MAC address of an interface; `None` if it does not exist or has no MAC address.
    pub(crate) fn hardware_address(&self, name: &str) -> Option<(u32, weir_wire::MacAddr)> {
        let link = self.links.iter().find(|link| link.name == name)?;
        // The address of a loopback interface is 0.
        let bytes = link.mac?.octets();
        (bytes != [0; 6]).then_some((link.index, weir_wire::MacAddr::new(bytes)))
    }

    /// Returns whether an interface is up and has a carrier.
    pub(crate) fn is_up(&self, name: &str) -> bool {
        let mut links = self.links.iter();
        links.any(|link| link.name == name && link.up && link.carrier)
    }
}

/// Returns whether a virtual router manages this address. An owner's addresses (priority 255) are not virtual, because
/// they are this machine's own.
fn is_virtual(router: &VirtualRouter, ip: IpAddr) -> bool {
    router.priority != u8::MAX && router.managed_addresses().any(|it| it.address == ip)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Returns the virtual router in `keys`, which is on `eth0`.
    pub(crate) fn router(keys: &str) -> VirtualRouter {
        let text =
            format!("[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\n{keys}\n");
        let desired = weir_helper::parse(&text, &weir_helper::Environment).unwrap();
        desired.vrrp.into_iter().next().unwrap()
    }

    pub(crate) fn link(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.to_owned(),
            kind: None,
            mac: None,
            mtu: 1500,
            up: true,
            carrier: true,
            loopback: false,
            master: None,
            lower: None,
            vlan: None,
        }
    }

    pub(crate) fn address(ifindex: u32, text: &str) -> Address {
        Address {
            ifindex,
            ip: ip(text),
            prefix: 24,
            label: None,
            tentative: false,
            duplicate: false,
            destination_only: false,
            handed_over: false,
        }
    }

    fn router_with(priority: u8, vip: &str) -> VirtualRouter {
        router(&format!(
            "version = 3\npriority = {priority}\naddresses = [\"{vip}\"]"
        ))
    }

    /// Returns a network with the interface `eth0`, which has these addresses in the order in which the kernel lists
    /// them.
    fn network(addresses: &[&str]) -> Network {
        Network {
            links: vec![link(2, "eth0")],
            addresses: addresses.iter().map(|text| address(2, text)).collect(),
        }
    }

    fn source(
        network: &Network,
        router: &VirtualRouter,
        routers: &[VirtualRouter],
    ) -> Option<IpAddr> {
        let attachment = network.attachment(router, routers, None);
        attachment.map(|it| it.source)
    }

    #[test]
    fn source_is_not_an_address_of_another_virtual_router() {
        for (first, second, own) in [
            ("fe80::a1", "fe80::a2", "fe80::1"),
            ("10.0.0.10", "10.0.0.11", "10.0.0.3"),
        ] {
            let routers = [router_with(150, first), router_with(150, second)];
            let all = network(&[second, first, own]);
            let virtual_only = network(&[first, second]);
            for router in &routers {
                assert_eq!(source(&all, router, &routers), Some(ip(own)));
                assert_eq!(source(&virtual_only, router, &routers), None);
            }
        }
    }

    #[test]
    fn addresses_of_an_owner_are_suitable_sources() {
        let routers = [router_with(255, "10.0.0.3"), router_with(100, "10.0.0.10")];
        let network = network(&["10.0.0.10", "10.0.0.3"]);
        for router in &routers {
            assert_eq!(source(&network, router, &routers), Some(ip("10.0.0.3")));
        }
    }

    #[test]
    fn configured_source_is_used() {
        let mut router = router_with(150, "10.0.0.10");
        router.source = Some(ip("10.0.0.4"));
        let routers = [router];
        let network = network(&["10.0.0.3", "10.0.0.4"]);
        assert_eq!(source(&network, &routers[0], &routers), routers[0].source);
    }

    #[test]
    fn source_changes_only_when_it_is_removed() {
        let routers = [router_with(150, "fe80::a1")];
        let source = |addresses: &[&str], previous: &str| {
            let network = network(addresses);
            let attachment = network.attachment(&routers[0], &routers, Some(ip(previous)));
            attachment.map(|it| it.source)
        };
        let (old, new) = ("fe80::1", "fe80::2");
        assert_eq!(source(&[new, old], old), Some(ip(old)));
        assert_eq!(source(&[new], old), Some(ip(new)));
        assert_eq!(source(&[new, "fe80::a1"], "fe80::a1"), Some(ip(new)));
    }
}
