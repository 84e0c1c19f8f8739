//! Defines routes and the results of route lookups.
//!
//! A lookup is performed by the kernel, so policy rules, VRFs and metrics apply as for packets. If a route has several
//! paths, a lookup returns all of them with their weights, while `ip route get` shows only one path.

mod lookup;

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop,
    RouteNextHopFlags, RouteType, RouteVia,
};
use rustix::io::Errno;

use crate::Error;

/// The type of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// Packets are forwarded or sent.
    Unicast,
    /// Packets are delivered to this machine.
    Local,
    /// Packets are delivered to this machine and the segment.
    Broadcast,
    /// Packets are delivered to this machine; several machines have the address (IPv6 router anycast).
    Anycast,
    /// The destination is a multicast group.
    Multicast,
    /// Packets are silently dropped.
    Blackhole,
    /// Packets are rejected with ICMP host unreachable.
    Unreachable,
    /// Packets are rejected with ICMP administratively prohibited.
    Prohibit,
    /// No route matches.
    None,
    /// A different type, such as `throw` or `nat`, with its number.
    Other(u8),
}

impl RouteKind {
    fn from_type(kind: RouteType) -> Self {
        match kind {
            RouteType::Unicast => Self::Unicast,
            RouteType::Local => Self::Local,
            RouteType::Broadcast => Self::Broadcast,
            RouteType::Anycast => Self::Anycast,
            RouteType::Multicast => Self::Multicast,
            RouteType::BlackHole => Self::Blackhole,
            RouteType::Unreachable => Self::Unreachable,
            RouteType::Prohibit => Self::Prohibit,
            other => Self::Other(other.into()),
        }
    }

    /// Returns the route type that a failed lookup indicates. A lookup that ends in a rejecting route fails with the
    /// route's error (`fib_props` in net/ipv4/fib_semantics.c, `ip6_rt_type_to_error`).
    fn from_error(error: &Error) -> Option<Self> {
        let kinds = [
            (Errno::NETUNREACH, Self::None),
            (Errno::AGAIN, Self::None),
            (Errno::HOSTUNREACH, Self::Unreachable),
            (Errno::ACCESS, Self::Prohibit),
            (Errno::INVAL, Self::Blackhole),
        ];
        // An invalid request also fails with EINVAL, but then the kernel adds a message.
        if matches!(
            error,
            Error::Rejected {
                reason: Some(_),
                ..
            }
        ) && error.has_errno(Errno::INVAL)
        {
            return None;
        }
        kinds
            .into_iter()
            .find(|(errno, _)| error.has_errno(*errno))
            .map(|(_, kind)| kind)
    }
}

/// A next hop of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    /// The output device.
    pub ifindex: u32,
    /// The router, whose address family can differ from the destination's (IPv4 via IPv6, RFC 5549); `None` = the
    /// destination is on the segment.
    pub gateway: Option<IpAddr>,
    /// The weight among the next hops, 1 to 256.
    pub weight: u32,
    /// The MTU of the route; `None` = the device's MTU.
    pub mtu: Option<u32>,
}

/// The result of a route lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The type of the route.
    pub kind: RouteKind,
    /// The source address that the kernel selects for a socket of this machine.
    pub prefsrc: Option<IpAddr>,
    /// The next hops; empty unless packets are forwarded, sent or delivered to this machine.
    pub next_hops: Vec<NextHop>,
}

impl Lookup {
    fn without_hops(kind: RouteKind) -> Self {
        Self {
            kind,
            prefsrc: None,
            next_hops: Vec::new(),
        }
    }
}

/// A route in a routing table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The first address of the destination prefix.
    pub destination: IpAddr,
    /// The length of the destination prefix, in bits.
    pub prefix: u8,
    /// The number of the table (254 = main, 255 = local).
    pub table: u32,
    /// The metric: among routes for the same prefix, the lowest is used.
    pub priority: u32,
    /// The type.
    pub kind: RouteKind,
    /// The preferred source address.
    pub prefsrc: Option<IpAddr>,
    /// The next hops.
    pub next_hops: Vec<NextHop>,
}

impl Route {
    /// Parses a message; `None` for families other than IPv4 and IPv6.
    pub(crate) fn from_message(message: &RouteMessage) -> Option<Self> {
        let header = &message.header;
        let mut route = Self {
            destination: match header.address_family {
                AddressFamily::Inet => IpAddr::from([0; 4]),
                AddressFamily::Inet6 => IpAddr::from([0; 16]),
                _ => return None,
            },
            prefix: header.destination_prefix_length,
            table: header.table.into(),
            priority: 0,
            kind: RouteKind::from_type(header.kind),
            prefsrc: None,
            next_hops: next_hops(message),
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(address) => route.destination = ip_of(address)?,
                RouteAttribute::PrefSource(address) => route.prefsrc = ip_of(address),
                RouteAttribute::Priority(metric) => route.priority = *metric,
                RouteAttribute::Table(number) => route.table = *number,
                _ => {}
            }
        }
        Some(route)
    }
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

fn gateway_of(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(router) => ip_of(router),
        RouteAttribute::Via(RouteVia::Inet(ip)) => Some((*ip).into()),
        RouteAttribute::Via(RouteVia::Inet6(ip)) => Some((*ip).into()),
        _ => None,
    })
}

/// Returns the next hops of a route, except those that the kernel marks as dead.
fn next_hops(message: &RouteMessage) -> Vec<NextHop> {
    let attributes = &message.attributes;
    let mtu = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Metrics(metrics) => metrics.iter().find_map(|metric| match metric {
            RouteMetric::Mtu(bytes) if *bytes > 0 => Some(*bytes),
            _ => None,
        }),
        _ => None,
    });
    let multipath = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    });
    if let Some(hops) = multipath {
        let is_alive = |hop: &&RouteNextHop| !hop.flags.contains(RouteNextHopFlags::Dead);
        return hops
            .iter()
            .filter(is_alive)
            .map(|hop| NextHop {
                ifindex: hop.interface_index,
                gateway: gateway_of(&hop.attributes),
                weight: u32::from(hop.hops) + 1,
                mtu,
            })
            .collect();
    }
    let is_dead = message.header.flags.contains(RouteFlags::Dead);
    attributes
        .iter()
        .filter_map(|attribute| match attribute {
            RouteAttribute::Oif(ifindex) if !is_dead => Some(NextHop {
                ifindex: *ifindex,
                gateway: gateway_of(attributes),
                weight: 1,
                mtu,
            }),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::RouteHeader;

    use super::*;

    fn next_hop(ifindex: u32, hops: u8, flags: RouteNextHopFlags, gateway: &str) -> RouteNextHop {
        let mut next_hop = RouteNextHop::default();
        next_hop.interface_index = ifindex;
        next_hop.hops = hops;
        next_hop.flags = flags;
        let router: IpAddr = gateway.parse().unwrap();
        next_hop.attributes = vec![RouteAttribute::Gateway(router.into())];
        next_hop
    }

    fn unicast(attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.kind = RouteType::Unicast;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.attributes = attributes;
        message
    }

    #[test]
    fn multipath_keeps_weights_and_skips_dead_hops() {
        let no_flags = RouteNextHopFlags::empty();
        let message = unicast(vec![RouteAttribute::MultiPath(vec![
            next_hop(2, 0, no_flags, "10.0.0.1"),
            next_hop(3, 4, no_flags, "10.0.1.1"),
            next_hop(4, 0, RouteNextHopFlags::Dead, "10.0.2.1"),
        ])]);
        let route = Route::from_message(&message).unwrap();
        let next_hops: Vec<_> = route
            .next_hops
            .iter()
            .map(|next_hop| (next_hop.ifindex, next_hop.weight))
            .collect();
        assert_eq!(next_hops, [(2, 1), (3, 5)]);
        assert_eq!(
            route.next_hops[1].gateway,
            Some("10.0.1.1".parse().unwrap())
        );
    }

    #[test]
    fn ipv4_route_with_ipv6_gateway_is_parsed() {
        let router: std::net::Ipv6Addr = "fe80::1".parse().unwrap();
        let message = unicast(vec![
            RouteAttribute::Oif(5),
            RouteAttribute::Via(RouteVia::Inet6(router)),
            RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400)]),
        ]);
        let expected = NextHop {
            ifindex: 5,
            gateway: Some(router.into()),
            weight: 1,
            mtu: Some(1400),
        };
        assert_eq!(Route::from_message(&message).unwrap().next_hops, [expected]);
    }

    #[test]
    fn large_table_number_is_read_from_the_attribute() {
        let message = unicast(vec![
            RouteAttribute::Table(70_000),
            RouteAttribute::Priority(5),
        ]);
        let route = Route::from_message(&message).unwrap();
        assert_eq!((route.table, route.priority, route.prefix), (70_000, 5, 0));
        assert_eq!(route.destination, IpAddr::from([0; 4]));
    }

    #[test]
    fn error_of_rejecting_route_is_a_kind_unless_request_is_invalid() {
        let error = |errno: Errno| Error::request_failed("look up", errno.into());
        let kind = |errno| RouteKind::from_error(&error(errno));
        assert_eq!(kind(Errno::NETUNREACH), Some(RouteKind::None));
        assert_eq!(kind(Errno::HOSTUNREACH), Some(RouteKind::Unreachable));
        assert_eq!(kind(Errno::ACCESS), Some(RouteKind::Prohibit));
        assert_eq!(kind(Errno::INVAL), Some(RouteKind::Blackhole));
        assert_eq!(kind(Errno::NOMEM), None);
        let error_with_reason = Error::Rejected {
            request: "look up".to_owned(),
            source: Errno::INVAL.into(),
            reason: Some("Invalid prefix".to_owned()),
        };
        assert_eq!(RouteKind::from_error(&error_with_reason), None);
    }
}
