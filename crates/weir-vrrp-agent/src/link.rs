//! Interface and source address of a virtual router, from the machine's links and addresses.

use std::net::IpAddr;

use weir_model::VirtualRouter;
use weir_netlink::{Address, Link};

/// Where a virtual router's packets are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) ifindex: u32,
    pub(crate) interface: String,
    pub(crate) source: IpAddr,
    pub(crate) mac: Option<weir_netlink::MacAddr>,
}

/// The links and addresses of this network namespace.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) links: Vec<Link>,
    pub(crate) addresses: Vec<Address>,
}

impl Machine {
    /// `None`: the interface is missing, or has no source address, or is down and this is a fault.
    pub(crate) fn attachment(&self, router: &VirtualRouter) -> Option<Attachment> {
        let link = match (&router.interface, router.source) {
            (Some(name), _) => self.links.iter().find(|link| link.name == *name)?,
            (None, source) => {
                let holder = self.addresses.iter().find(|it| Some(it.ip) == source)?;
                self.links
                    .iter()
                    .find(|link| link.index == holder.ifindex)?
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

    /// The configured source if the interface has it, otherwise the first address that is not virtual: the link-local
    /// one for IPv6 (RFC 9568 section 5.1.2.1).
    fn source(&self, router: &VirtualRouter, ifindex: u32) -> Option<IpAddr> {
        let v4 = router.is_ipv4();
        let is_virtual = |ip: IpAddr| router.managed().any(|network| network.address == ip);
        let owner = router.priority == 255;
        let mut own = self.addresses.iter().filter(|it| {
            it.ifindex == ifindex
                && it.ip.is_ipv4() == v4
                && !it.tentative
                && !it.duplicate
                && (owner || !is_virtual(it.ip))
        });
        match router.source {
            Some(source) => own.find(|it| it.ip == source).map(|it| it.ip),
            None => own
                .find(|it| match it.ip {
                    IpAddr::V4(_) => true,
                    IpAddr::V6(ip) => ip.is_unicast_link_local(),
                })
                .map(|it| it.ip),
        }
    }

    /// Index and MAC address of an interface; `None` if it does not exist or has none.
    pub(crate) fn hardware(&self, name: &str) -> Option<(u32, weir_wire::MacAddr)> {
        let link = self.links.iter().find(|link| link.name == name)?;
        // A loopback interface has the address 0.
        let octets = link.mac?.octets();
        (octets != [0; 6]).then_some((link.index, weir_wire::MacAddr::new(octets)))
    }

    /// Whether an interface is up and has a carrier.
    pub(crate) fn is_up(&self, name: &str) -> bool {
        let mut links = self.links.iter();
        links.any(|link| link.name == name && link.up && link.carrier)
    }
}
