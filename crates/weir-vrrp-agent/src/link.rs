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
    /// the interface is down and `track_interface` is set.
    pub(crate) fn attachment(&self, router: &VirtualRouter) -> Option<Attachment> {
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
            source: self.source(router, link.index)?,
            mac: link.mac,
        })
    }

    /// Returns the configured source address if the interface has it. If none is configured, returns the interface's
    /// first address that is not virtual, which for IPv6 must be link-local (RFC 9568 section 5.1.2.1).
    fn source(&self, router: &VirtualRouter, ifindex: u32) -> Option<IpAddr> {
        let v4 = router.is_ipv4();
        let is_virtual = |ip: IpAddr| {
            router
                .managed_addresses()
                .any(|network| network.address == ip)
        };
        let is_owner = router.priority == 255;
        let mut candidates = self.addresses.iter().filter(|it| {
            it.ifindex == ifindex
                && it.ip.is_ipv4() == v4
                && !it.tentative
                && !it.duplicate
                && (is_owner || !is_virtual(it.ip))
        });
        match router.source {
            Some(source) => candidates.find(|it| it.ip == source).map(|it| it.ip),
            None => candidates
                .find(|it| match it.ip {
                    IpAddr::V4(_) => true,
                    IpAddr::V6(ip) => ip.is_unicast_link_local(),
                })
                .map(|it| it.ip),
        }
    }

    /// Returns the virtual router's managed addresses that are on its interfaces, except the source address of its
    /// packets.
    pub(crate) fn addresses_of<'a>(
        &'a self,
        router: &'a VirtualRouter,
    ) -> impl Iterator<Item = &'a Address> {
        let attachment = self.attachment(router);
        let own_index = match (&router.interface, &attachment) {
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
