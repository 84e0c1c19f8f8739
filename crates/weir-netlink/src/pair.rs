//! Creates and removes the veth pair through which packets with a firewall mark reach XDP, and adds routes to it.

use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{Change, MacAddr, Netlink, Result};

/// The `RTPROT_*` value that identifies Weir's routes.
const RTPROT_WEIR: u8 = 0x57;

fn veth_message(name: &str, mac: MacAddr, mtu: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    // ARP and NDP are not used: both ends have the same MAC address, and all frames are addressed to it.
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
    message.header.protocol = RouteProtocol::from(RTPROT_WEIR);
    message.attributes = vec![RouteAttribute::Table(table), RouteAttribute::Oif(ifindex)];
    message
}

impl Netlink {
    /// Creates a veth pair without ARP. Both ends are down and have the MAC address `mac`. Returns [`Change::None`]
    /// if a device with one of the names exists.
    ///
    /// # Errors
    /// Fails if `CAP_NET_ADMIN` is missing.
    pub async fn add_veth_pair(
        &self,
        name: &str,
        peer: &str,
        mac: MacAddr,
        mtu: u32,
    ) -> Result<Change> {
        let mut message = veth_message(name, mac, mtu);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(veth_message(peer, mac, mtu)))),
        ]));
        let request = format!("create the devices {name} and {peer}");
        self.create(&request, RouteNetlinkMessage::NewLink(message))
            .await
    }

    /// Brings a device up.
    ///
    /// # Errors
    /// Fails if the device does not exist, or `CAP_NET_ADMIN` is missing.
    pub async fn bring_up(&self, ifindex: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        let request = format!("bring device {ifindex} up");
        self.transact(&request, RouteNetlinkMessage::SetLink(message), 0)
            .await?;
        Ok(())
    }

    /// Removes a device. The kernel also removes the peer of a veth device. Returns [`Change::None`] if the device does
    /// not exist.
    ///
    /// # Errors
    /// Fails if the device cannot be removed, or `CAP_NET_ADMIN` is missing.
    pub async fn remove_link(&self, ifindex: u32) -> Result<Change> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        let request = format!("remove device {ifindex}");
        self.remove(&request, RouteNetlinkMessage::DelLink(message))
            .await
    }

    /// Adds a default route through a device to a routing table.
    ///
    /// # Errors
    /// Fails if the device does not exist or is down, the address family is disabled on it, or `CAP_NET_ADMIN` is
    /// missing.
    pub async fn add_default_route(&self, ipv6: bool, table: u32, ifindex: u32) -> Result<Change> {
        let message = default_route(ipv6, table, ifindex);
        let request = format!("add a default route through device {ifindex} to table {table}");
        self.create(&request, RouteNetlinkMessage::NewRoute(message))
            .await
    }
}
