//! Selects the interface and source address of a virtual router from the host's links and addresses, and determines
//! whether the router's addresses are present.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use weir_defense::View;
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
    /// The addresses in the kernel's order.
    addresses: Vec<Address>,
    /// Whether each address on an interface was handed over.
    handed_over: HashMap<(u32, IpAddr), bool>,
}

/// The addresses of a virtual router on its interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Presence {
    /// Whether there is any.
    pub(crate) is_present: bool,
    /// Whether a former owner has handed one over.
    pub(crate) is_handed_over: bool,
}

impl Network {
    pub(crate) fn new(links: Vec<Link>, addresses: Vec<Address>) -> Self {
        let mut handed_over = HashMap::new();
        for address in &addresses {
            let key = (address.ifindex, address.ip);
            *handed_over.entry(key).or_insert(false) |= address.handed_over;
        }
        Self {
            links,
            addresses,
            handed_over,
        }
    }

    /// Returns whether an interface has an address.
    pub(crate) fn has(&self, ifindex: u32, address: IpAddr) -> bool {
        self.handed_over.contains_key(&(ifindex, address))
    }

    /// Returns the attachment of a virtual router; `None` if the interface is missing or has no source address, or if
    /// the interface is down and `track_interface` is set. `virtual_addresses` are the addresses of all virtual
    /// routers, and `previous` is the previous source address.
    pub(crate) fn attachment(
        &self,
        router: &VirtualRouter,
        virtual_addresses: &HashSet<IpAddr>,
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
            source: self.source(router, virtual_addresses, link.index, previous)?,
            mac: link.mac,
        })
    }

    /// Returns the configured source address if the interface has it. If none is configured, returns the previous
    /// source address, or the interface's first address that is not virtual; for IPv6, it must be link-local (RFC 9568
    /// section 5.1.2.1). An address of another virtual router is not suitable, because it moves to another director,
    /// and unicast peers ignore advertisements from it. The previous address is preferred, because the kernel lists a
    /// new IPv6 address first.
    fn source(
        &self,
        router: &VirtualRouter,
        virtual_addresses: &HashSet<IpAddr>,
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
            .filter(|ip| !virtual_addresses.contains(ip))
            .collect();
        let previous = previous.filter(|ip| candidates.contains(ip));
        previous.or_else(|| candidates.first().copied())
    }

    /// Returns whether any of the virtual router's managed addresses, except the source address of its packets, is on
    /// its interface.
    pub(crate) fn presence(
        &self,
        router: &VirtualRouter,
        attachment: Option<&Attachment>,
    ) -> Presence {
        let own_index = match (&router.interface, attachment) {
            (Some(name), _) => self.index_of(name),
            (None, Some(attachment)) => Some(attachment.ifindex),
            (None, None) => None,
        };
        let source = attachment.map(|it| it.source);
        let mut presence = Presence::default();
        for (network, other) in router.addresses_with_interfaces() {
            let index = match other {
                Some(name) => self.index_of(name),
                None => own_index,
            };
            let found = index.and_then(|index| self.handed_over.get(&(index, network.address)));
            if let Some(is_handed_over) = found
                && Some(network.address) != source
            {
                presence.is_present = true;
                presence.is_handed_over |= is_handed_over;
            }
        }
        presence
    }

    pub(crate) fn index_of(&self, name: &str) -> Option<u32> {
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

    /// Adds an interface and its addresses to `view`, for queries on its segment.
    pub(crate) fn describe_segment(&self, ifindex: u32, view: &mut View) {
        let links: Vec<&Link> = self.links.iter().collect();
        view.add_interface(ifindex, &links, &self.addresses);
    }

    /// Returns whether an interface is up and has a carrier.
    pub(crate) fn is_up(&self, name: &str) -> bool {
        let mut links = self.links.iter();
        links.any(|link| link.name == name && link.up && link.carrier)
    }
}

/// Returns the virtual addresses of all virtual routers; see [`is_virtual`].
pub(crate) fn virtual_addresses(routers: &[VirtualRouter]) -> HashSet<IpAddr> {
    let routers = routers.iter().filter(|it| it.priority != u8::MAX);
    let networks = routers.flat_map(VirtualRouter::managed_addresses);
    networks.map(|network| network.address).collect()
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
        let addresses = addresses.iter().map(|text| address(2, text));
        Network::new(vec![link(2, "eth0")], addresses.collect())
    }

    fn source(
        network: &Network,
        router: &VirtualRouter,
        routers: &[VirtualRouter],
    ) -> Option<IpAddr> {
        let attachment = network.attachment(router, &virtual_addresses(routers), None);
        attachment.map(|it| it.source)
    }

    #[test]
    fn source_is_not_an_address_of_another_virtual_router() {
        for (first, second, own) in [
            ("fe80::a1", "fe80::a2", "fe80::1"),
            ("10.0.0.10", "10.0.0.11", "10.0.0.3"),
        ] {
            let routers = [router_with(150, first), router_with(150, second)];
            let all_addresses = network(&[second, first, own]);
            let virtual_only = network(&[first, second]);
            for router in &routers {
                assert_eq!(source(&all_addresses, router, &routers), Some(ip(own)));
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
    fn addresses_are_present_on_their_interface_except_the_source() {
        let router = router(
            "addresses = [\"10.0.0.10/24\"]\nexcluded_addresses = [\"10.9.0.10/24\"]\n\
             other_interfaces = [{ interface = \"side\", addresses = [\"10.9.0.10\"] }]",
        );
        let presence = |addresses: &[(u32, &str, bool)], source: Option<&str>| {
            let addresses = addresses.iter().map(|(index, ip, handed_over)| Address {
                handed_over: *handed_over,
                ..address(*index, ip)
            });
            let links = vec![link(2, "eth0"), link(3, "side")];
            let attachment = source.map(|source| Attachment {
                ifindex: 2,
                interface: "eth0".to_owned(),
                source: ip(source),
                mac: None,
            });
            let network = Network::new(links, addresses.collect());
            let presence = network.presence(&router, attachment.as_ref());
            (presence.is_present, presence.is_handed_over)
        };
        assert_eq!(presence(&[], None), (false, false));
        assert_eq!(presence(&[(2, "10.0.0.10", false)], None), (true, false));
        assert_eq!(presence(&[(3, "10.0.0.10", false)], None), (false, false));
        assert_eq!(presence(&[(2, "10.9.0.10", true)], None), (false, false));
        assert_eq!(presence(&[(3, "10.9.0.10", true)], None), (true, true));
        // With two prefixes, one address can be handed over and the other one not.
        let duplicates = [(2, "10.0.0.10", true), (2, "10.0.0.10", false)];
        assert_eq!(presence(&duplicates, None), (true, true));
        assert_eq!(presence(&duplicates, Some("10.0.0.10")), (false, false));
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
            let virtual_addresses = virtual_addresses(&routers);
            let previous = Some(ip(previous));
            let attachment = network.attachment(&routers[0], &virtual_addresses, previous);
            attachment.map(|it| it.source)
        };
        let (old, new) = ("fe80::1", "fe80::2");
        assert_eq!(source(&[new, old], old), Some(ip(old)));
        assert_eq!(source(&[new], old), Some(ip(new)));
        assert_eq!(source(&[new, "fe80::a1"], "fe80::a1"), Some(ip(new)));
    }
}
