//! Routes, and the kernel's answer to "how would you send this".
//!
//! A lookup asks the kernel, so that policy rules, VRFs and metrics count as they
//! do for packets; a route dump is for showing. With several equal paths a lookup
//! returns all of them with their weights, where `ip route get` shows one.

mod lookup;

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop,
    RouteNextHopFlags, RouteType, RouteVia,
};
use rustix::io::Errno;

use crate::Error;

/// What a route does with packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// Sent on.
    Unicast,
    /// Delivered here.
    Local,
    /// Delivered here and to the whole link.
    Broadcast,
    /// Delivered here, an address of several machines (IPv6 router anycast).
    Anycast,
    /// A group's address.
    Multicast,
    /// Dropped in silence.
    Blackhole,
    /// Refused with ICMP host unreachable.
    Unreachable,
    /// Refused with ICMP administratively prohibited.
    Prohibit,
    /// No route matches.
    None,
    /// A kind that Weir has no use for (`throw`, `nat`): its number.
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

    /// The kernel answers a lookup that ends in a refusing route with that route's
    /// error (`fib_props` of net/ipv4/fib_semantics.c, `ip6_rt_type_to_error`).
    fn from_refusal(error: &Error) -> Option<Self> {
        let of_errno = [
            (Errno::NETUNREACH, Self::None),
            (Errno::AGAIN, Self::None),
            (Errno::HOSTUNREACH, Self::Unreachable),
            (Errno::ACCESS, Self::Prohibit),
            (Errno::INVAL, Self::Blackhole),
        ];
        // A malformed request is EINVAL too, but then the kernel says what is wrong.
        if matches!(
            error,
            Error::Refused {
                reason: Some(_),
                ..
            }
        ) && error.is(Errno::INVAL)
        {
            return None;
        }
        of_errno
            .into_iter()
            .find(|(errno, _)| error.is(*errno))
            .map(|(_, kind)| kind)
    }
}

/// One way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    /// The device that packets leave by.
    pub ifindex: u32,
    /// The router, possibly of the other family (IPv4 via IPv6, RFC 5549); `None`
    /// when the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Share among the legs, 1 to 256.
    pub weight: u32,
    /// MTU that the route sets; `None` = the device's.
    pub mtu: Option<u32>,
}

/// The kernel's answer for one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// What happens to such packets.
    pub kind: RouteKind,
    /// The source that a socket of this machine would get.
    pub prefsrc: Option<IpAddr>,
    /// The ways out; empty unless packets are sent on or delivered here.
    pub legs: Vec<NextHop>,
}

impl Lookup {
    fn refused(kind: RouteKind) -> Self {
        Self {
            kind,
            prefsrc: None,
            legs: Vec::new(),
        }
    }
}

/// A route of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// First address of what it covers.
    pub destination: IpAddr,
    /// Length of the prefix it covers, in bits.
    pub prefix: u8,
    /// Number of its table (254 = main, 255 = local).
    pub table: u32,
    /// Metric: the lowest wins among routes for the same prefix.
    pub priority: u32,
    /// What it does.
    pub kind: RouteKind,
    /// The source it prefers.
    pub prefsrc: Option<IpAddr>,
    /// The ways out.
    pub legs: Vec<NextHop>,
}

impl Route {
    /// `None` for families other than IPv4 and IPv6.
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
            legs: legs(message),
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(to) => route.destination = ip_of(to)?,
                RouteAttribute::PrefSource(from) => route.prefsrc = ip_of(from),
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

/// The ways out of a route, without those that the kernel holds for dead.
fn legs(message: &RouteMessage) -> Vec<NextHop> {
    let attributes = &message.attributes;
    let mtu = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Metrics(metrics) => metrics.iter().find_map(|metric| match metric {
            RouteMetric::Mtu(bytes) if *bytes > 0 => Some(*bytes),
            _ => None,
        }),
        _ => None,
    });
    let several = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    });
    if let Some(hops) = several {
        let alive = |hop: &&RouteNextHop| !hop.flags.contains(RouteNextHopFlags::Dead);
        return hops
            .iter()
            .filter(alive)
            .map(|hop| NextHop {
                ifindex: hop.interface_index,
                gateway: gateway_of(&hop.attributes),
                weight: u32::from(hop.hops) + 1,
                mtu,
            })
            .collect();
    }
    let dead = message.header.flags.contains(RouteFlags::Dead);
    attributes
        .iter()
        .filter_map(|attribute| match attribute {
            RouteAttribute::Oif(ifindex) if !dead => Some(NextHop {
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

    fn leg(ifindex: u32, hops: u8, flags: RouteNextHopFlags, gateway: &str) -> RouteNextHop {
        let mut leg = RouteNextHop::default();
        leg.interface_index = ifindex;
        leg.hops = hops;
        leg.flags = flags;
        let router: IpAddr = gateway.parse().unwrap();
        leg.attributes = vec![RouteAttribute::Gateway(router.into())];
        leg
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
    fn equal_paths_keep_weights_and_lose_the_dead() {
        let none = RouteNextHopFlags::empty();
        let message = unicast(vec![RouteAttribute::MultiPath(vec![
            leg(2, 0, none, "10.0.0.1"),
            leg(3, 4, none, "10.0.1.1"),
            leg(4, 0, RouteNextHopFlags::Dead, "10.0.2.1"),
        ])]);
        let route = Route::from_message(&message).unwrap();
        let legs: Vec<_> = route.legs.iter().map(|l| (l.ifindex, l.weight)).collect();
        assert_eq!(legs, [(2, 1), (3, 5)]);
        assert_eq!(route.legs[1].gateway, Some("10.0.1.1".parse().unwrap()));
    }

    #[test]
    fn ipv4_by_an_ipv6_router() {
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
        assert_eq!(Route::from_message(&message).unwrap().legs, [expected]);
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
    fn refusals_are_kinds_unless_the_request_was_bad() {
        let refusal = |errno: Errno| Error::refused("look up", errno.into());
        let kind = |errno| RouteKind::from_refusal(&refusal(errno));
        assert_eq!(kind(Errno::NETUNREACH), Some(RouteKind::None));
        assert_eq!(kind(Errno::HOSTUNREACH), Some(RouteKind::Unreachable));
        assert_eq!(kind(Errno::ACCESS), Some(RouteKind::Prohibit));
        assert_eq!(kind(Errno::INVAL), Some(RouteKind::Blackhole));
        assert_eq!(kind(Errno::NOMEM), None);
        let explained = Error::Refused {
            request: "look up".to_owned(),
            source: Errno::INVAL.into(),
            reason: Some("Invalid prefix".to_owned()),
        };
        assert_eq!(RouteKind::from_refusal(&explained), None);
    }
}
