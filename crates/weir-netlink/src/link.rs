//! Reads network devices.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, VlanProtocol,
};

use crate::{MacAddr, Netlink, Result};

/// Kinds of devices that receive packets from a network stack on this machine, which leaves checksums to hardware that
/// does not exist. Bonds, teams and VLANs depend on their lower devices.
const SOFTWARE_KINDS: [&str; 17] = [
    "bridge",
    "dummy",
    "erspan",
    "geneve",
    "gretap",
    "ifb",
    "ip6erspan",
    "ip6gretap",
    "ipvlan",
    "ipvtap",
    "macvlan",
    "macvtap",
    "netkit",
    "openvswitch",
    "tun",
    "veth",
    "vxlan",
];

/// The tag of a VLAN device, and its lower device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    /// VLAN identifier, 0 to 4095.
    pub id: u16,
    /// Whether the tag is an 802.1ad tag (0x88a8) instead of an 802.1Q tag (0x8100).
    pub service_tag: bool,
    /// The lower device; `None` = it is in another namespace.
    pub lower: Option<u32>,
}

/// A network device of this namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Index of the device in this namespace.
    pub index: u32,
    /// The name at the time of reading.
    pub name: String,
    /// The rtnetlink kind (`veth`, `bridge`, `vlan`); `None` for hardware and `lo`.
    pub kind: Option<String>,
    /// The Ethernet address; `None` = the device has none.
    pub mac: Option<MacAddr>,
    /// Maximum size of a layer 3 packet, in bytes.
    pub mtu: u32,
    /// Whether the device is administratively up.
    pub up: bool,
    /// Whether the device has a carrier.
    pub carrier: bool,
    /// Whether the device is a loopback device.
    pub loopback: bool,
    /// The bridge, bond or VRF that this device is attached to.
    pub master: Option<u32>,
    /// The lower device of a VLAN or macvlan device, or the peer of a veth device, if it is in this namespace.
    pub lower: Option<u32>,
    /// The VLAN settings of a device of kind `vlan`.
    pub vlan: Option<Vlan>,
}

impl Link {
    /// Returns whether packets from this device may have partial checksums and consist of many segments, because they
    /// come from a network stack on this machine. For bonds, teams and VLANs, query the lower devices.
    pub fn is_software(&self) -> bool {
        let kind = self.kind.as_deref();
        self.loopback || kind.is_some_and(|kind| SOFTWARE_KINDS.contains(&kind))
    }

    pub(crate) fn from_message(message: &LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            kind: None,
            mac: None,
            mtu: 0,
            up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::LowerUp),
            loopback: flags.contains(LinkFlags::Loopback),
            master: None,
            lower: None,
            vlan: None,
        };
        let mut lower = None;
        let mut lower_in_other_netns = false;
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Address(bytes) => link.mac = MacAddr::from_slice(bytes),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Controller(master) => link.master = Some(*master),
                LinkAttribute::Link(index) => lower = Some(*index),
                LinkAttribute::LinkNetNsId(_) => lower_in_other_netns = true,
                LinkAttribute::LinkInfo(infos) => link.apply_infos(infos),
                _ => {}
            }
        }
        if link.loopback {
            link.mac = None;
        }
        link.lower = lower.filter(|_| !lower_in_other_netns);
        if let Some(vlan) = &mut link.vlan {
            vlan.lower = link.lower;
        }
        link
    }

    fn apply_infos(&mut self, infos: &[LinkInfo]) {
        for info in infos {
            match info {
                LinkInfo::Kind(kind) => self.kind = Some(kind.to_string()),
                LinkInfo::Data(InfoData::Vlan(attributes)) => {
                    let mut vlan = Vlan {
                        id: 0,
                        service_tag: false,
                        lower: None,
                    };
                    for attribute in attributes {
                        match attribute {
                            InfoVlan::Id(id) => vlan.id = *id,
                            InfoVlan::Protocol(protocol) => {
                                vlan.service_tag = *protocol == VlanProtocol::Ieee8021Ad;
                            }
                            _ => {}
                        }
                    }
                    self.vlan = Some(vlan);
                }
                _ => {}
            }
        }
    }
}

impl Netlink {
    /// Returns all devices.
    ///
    /// # Errors
    /// Fails if the kernel rejects the dump.
    pub async fn links(&self) -> Result<Vec<Link>> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let replies = self.dump("list links", message).await?;
        Ok(replies
            .iter()
            .filter_map(|reply| match reply {
                RouteNetlinkMessage::NewLink(message) => Some(Link::from_message(message)),
                _ => None,
            })
            .collect())
    }

    /// Returns the device `name`, or `None` if it does not exist.
    ///
    /// # Errors
    /// See [`Netlink::links`].
    pub async fn link(&self, name: &str) -> Result<Option<Link>> {
        let links = self.links().await?;
        Ok(links.into_iter().find(|link| link.name == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::InfoKind;

    fn vlan_message() -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = 9;
        message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
        message.attributes = vec![
            LinkAttribute::IfName("eth0.100".to_owned()),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 9]),
            LinkAttribute::Mtu(1496),
            LinkAttribute::Link(3),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vlan),
                LinkInfo::Data(InfoData::Vlan(vec![
                    InfoVlan::Id(100),
                    InfoVlan::Protocol(VlanProtocol::Ieee8021Q),
                ])),
            ]),
        ];
        message
    }

    #[test]
    fn vlan_device_has_lower_device_and_tag() {
        let link = Link::from_message(&vlan_message());
        assert_eq!(
            (link.index, link.name.as_str(), link.mtu),
            (9, "eth0.100", 1496)
        );
        assert_eq!(link.kind.as_deref(), Some("vlan"));
        assert!(link.up && link.carrier && !link.loopback);
        let expected = Vlan {
            id: 100,
            service_tag: false,
            lower: Some(3),
        };
        assert_eq!(link.vlan, Some(expected));
    }

    #[test]
    fn lower_device_in_another_namespace_is_unknown() {
        let mut message = vlan_message();
        message.attributes.push(LinkAttribute::LinkNetNsId(0));
        assert_eq!(Link::from_message(&message).vlan.unwrap().lower, None);
    }

    #[test]
    fn loopback_has_no_ethernet_address() {
        let mut message = LinkMessage::default();
        message.header.flags = LinkFlags::Loopback;
        message.attributes = vec![LinkAttribute::Address(vec![0; 6])];
        let link = Link::from_message(&message);
        assert_eq!((link.mac, link.up, link.loopback), (None, false, true));
    }
}
