//! A pair of veth devices of Weir's own, to which packets are routed whose mark XDP shall see.

use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{Change, MacAddr, Netlink, Result};

/// Who made a route.
const WEIR: u8 = 0x57;

fn end(name: &str, mac: MacAddr, mtu: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    // No host answers ARP or NDP here: all frames go to the MAC address that both ends have.
    message.header.flags = LinkFlags::Noarp;
    message.header.change_mask = message.header.flags;
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Address(mac.octets().to_vec()),
        LinkAttribute::Mtu(mtu),
    ];
    message
}

fn default_route(ipv6: bool, table: u32, ifindex: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = if ipv6 {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    };
    message.header.scope = RouteScope::Link;
    message.header.kind = RouteType::Unicast;
    message.header.protocol = RouteProtocol::from(WEIR);
    message.attributes = vec![RouteAttribute::Table(table), RouteAttribute::Oif(ifindex)];
    message
}

impl Netlink {
    /// Makes a pair of veth devices, both down, without ARP, with one address.
    ///
    /// # Errors
    /// A device of either name is there, or no `CAP_NET_ADMIN`.
    pub async fn add_pair(&self, name: &str, peer: &str, mac: MacAddr, mtu: u32) -> Result<Change> {
        let mut message = end(name, mac, mtu);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(end(peer, mac, mtu)))),
        ]));
        let request = format!("make the devices {name} and {peer}");
        self.create(&request, RouteNetlinkMessage::NewLink(message))
            .await
    }

    /// Takes a device into operation.
    ///
    /// # Errors
    /// No such device, or no `CAP_NET_ADMIN`.
    pub async fn bring_up(&self, ifindex: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        let request = format!("bring up the device {ifindex}");
        self.ask(&request, RouteNetlinkMessage::SetLink(message), 0)
            .await?;
        Ok(())
    }

    /// Removes a device, and its peer with it; one that is gone is no error.
    ///
    /// # Errors
    /// It is of a kind that cannot be removed, or no `CAP_NET_ADMIN`.
    pub async fn remove_link(&self, ifindex: u32) -> Result<Change> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        let request = format!("remove the device {ifindex}");
        self.remove(&request, RouteNetlinkMessage::DelLink(message))
            .await
    }

    /// Has everything that goes by a table leave by a device.
    ///
    /// # Errors
    /// The device is down or gone, the family is switched off there, or no `CAP_NET_ADMIN`.
    pub async fn add_default_route(&self, ipv6: bool, table: u32, ifindex: u32) -> Result<Change> {
        let message = default_route(ipv6, table, ifindex);
        let request = format!("route table {table} to device {ifindex}");
        self.create(&request, RouteNetlinkMessage::NewRoute(message))
            .await
    }
}
