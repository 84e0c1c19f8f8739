//! Adds and removes routes, rules and devices that exist while a virtual router is active.

use std::net::IpAddr;

use netlink_packet_route::link::{
    InfoData, InfoKind, InfoMacVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, MacVlanMode,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{Change, MacAddr, Netlink, Result};

/// The protocol number of the routes and rules: keepalived's (linux/rtnetlink.h, `RTPROT_KEEPALIVED`), by which other
/// programs recognize VRRP routes and rules.
const RTPROT_KEEPALIVED: u8 = 18;

/// A unicast route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticRoute {
    /// Destination and its prefix length.
    pub to: (IpAddr, u8),
    /// Next hop.
    pub via: Option<IpAddr>,
    /// Output device.
    pub ifindex: u32,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Routing table.
    pub table: u32,
    /// Metric; 0 = the kernel's default.
    pub metric: u32,
}

/// A policy routing rule: packets that match all conditions use a specific table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRule {
    /// Source and its prefix length.
    pub from: Option<(IpAddr, u8)>,
    /// Destination and its prefix length.
    pub to: Option<(IpAddr, u8)>,
    /// Device that packets are received on.
    pub device: Option<String>,
    /// Firewall mark.
    pub mark: Option<u32>,
    /// Routing table.
    pub table: u32,
    /// Priority.
    pub priority: u32,
}

const fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

const fn address(ip: IpAddr) -> RouteAddress {
    match ip {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    }
}

/// Clears the bits beyond the prefix, because the kernel rejects destinations in which one of these bits is set.
fn network(ip: IpAddr, prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32)));
            IpAddr::V4((ip.to_bits() & mask.unwrap_or(0)).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128)));
            IpAddr::V6((ip.to_bits() & mask.unwrap_or(0)).into())
        }
    }
}

impl StaticRoute {
    fn message(&self) -> RouteMessage {
        let (to, prefix) = self.to;
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        message.header.destination_prefix_length = prefix;
        message.header.scope = match self.via {
            None if to.is_ipv4() => RouteScope::Link,
            _ => RouteScope::Universe,
        };
        message.header.kind = RouteType::Unicast;
        message.header.protocol = RouteProtocol::from(RTPROT_KEEPALIVED);
        message.attributes = vec![
            RouteAttribute::Table(self.table),
            RouteAttribute::Oif(self.ifindex),
        ];
        if prefix > 0 {
            let to = address(network(to, prefix));
            message.attributes.push(RouteAttribute::Destination(to));
        }
        let optional = [
            self.via.map(|via| RouteAttribute::Gateway(address(via))),
            self.source
                .map(|source| RouteAttribute::PrefSource(address(source))),
            (self.metric > 0).then_some(RouteAttribute::Priority(self.metric)),
        ];
        message.attributes.extend(optional.into_iter().flatten());
        message
    }
}

impl TableRule {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        let selector = self.from.or(self.to);
        message.header.family = selector.map_or(AddressFamily::Inet, |(ip, _)| family(ip));
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Priority(self.priority),
            RuleAttribute::Table(self.table),
            RuleAttribute::Protocol(RouteProtocol::from(RTPROT_KEEPALIVED)),
        ];
        if let Some((ip, prefix)) = self.from {
            message.header.src_len = prefix;
            let from = network(ip, prefix);
            message.attributes.push(RuleAttribute::Source(from));
        }
        if let Some((ip, prefix)) = self.to {
            message.header.dst_len = prefix;
            let to = network(ip, prefix);
            message.attributes.push(RuleAttribute::Destination(to));
        }
        if let Some(device) = &self.device {
            message
                .attributes
                .push(RuleAttribute::Iifname(device.clone()));
        }
        if let Some(mark) = self.mark {
            message.attributes.push(RuleAttribute::FwMark(mark));
            message.attributes.push(RuleAttribute::FwMask(u32::MAX));
        }
        message
    }
}

impl Netlink {
    /// Adds a route. Returns [`Change::None`] if a route with the same destination, table and metric exists.
    ///
    /// # Errors
    /// Fails if the next hop is not reachable, the device is down, or `CAP_NET_ADMIN` is missing.
    pub async fn add_route(&self, route: &StaticRoute) -> Result<Change> {
        let request = format!("add a route to {}/{}", route.to.0, route.to.1);
        self.create(&request, RouteNetlinkMessage::NewRoute(route.message()))
            .await
    }

    /// Removes a route that [`Netlink::add_route`] added.
    ///
    /// # Errors
    /// Fails if `CAP_NET_ADMIN` is missing.
    pub async fn remove_route(&self, route: &StaticRoute) -> Result<Change> {
        let request = format!("remove the route to {}/{}", route.to.0, route.to.1);
        self.remove(&request, RouteNetlinkMessage::DelRoute(route.message()))
            .await
    }

    /// Adds a rule. Returns [`Change::None`] if an equal rule exists.
    ///
    /// # Errors
    /// Fails if `CAP_NET_ADMIN` is missing.
    pub async fn add_table_rule(&self, rule: &TableRule) -> Result<Change> {
        let request = format!("add a rule for table {}", rule.table);
        self.create(&request, RouteNetlinkMessage::NewRule(rule.message()))
            .await
    }

    /// Removes a rule that [`Netlink::add_table_rule`] added.
    ///
    /// # Errors
    /// Fails if `CAP_NET_ADMIN` is missing.
    pub async fn remove_table_rule(&self, rule: &TableRule) -> Result<Change> {
        let request = format!("remove the rule for table {}", rule.table);
        self.remove(&request, RouteNetlinkMessage::DelRule(rule.message()))
            .await
    }

    /// Creates a macvlan device with a MAC address on another device. The new device is down. The mode is `bridge`: in
    /// the mode `private`, the other device does not receive multicast frames from this MAC address
    /// (`macvlan_handle_frame`), which another machine can also have.
    ///
    /// # Errors
    /// Fails if the kernel has no macvlan, the other device does not support macvlans, or `CAP_NET_ADMIN` is missing.
    pub async fn add_macvlan(&self, name: &str, base: u32, mac: MacAddr) -> Result<Change> {
        let mut message = LinkMessage::default();
        message.header.flags = LinkFlags::empty();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Address(mac.octets().to_vec()),
            LinkAttribute::Link(base),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::MacVlan),
                LinkInfo::Data(InfoData::MacVlan(vec![InfoMacVlan::Mode(
                    MacVlanMode::Bridge,
                )])),
            ]),
        ];
        let request = format!("create the device {name}");
        self.create(&request, RouteNetlinkMessage::NewLink(message))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_beyond_the_prefix_are_cleared() {
        let network = |text: &str, prefix| network(text.parse().unwrap(), prefix).to_string();
        assert_eq!(network("10.8.1.2", 16), "10.8.0.0");
        assert_eq!(network("10.8.1.2", 0), "0.0.0.0");
        assert_eq!(network("10.8.1.2", 32), "10.8.1.2");
        assert_eq!(network("2001:db8::1", 32), "2001:db8::");
        assert_eq!(network("2001:db8::1", 0), "::");
    }
}
