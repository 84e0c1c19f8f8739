//! Routes, and the kernel's answer to "how would you send this".
//!
//! A lookup asks the kernel, so that policy rules, VRFs and metrics count as they
//! do for packets; a route dump is for showing. With several equal paths a lookup
//! returns all of them with their weights, where `ip route get` shows one.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHop,
    RouteNextHopFlags, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;

use crate::{Error, Netlink, Result};

/// Destinations that are asked about twice without looking whether any route needs that.
const FEW: usize = 256;

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

fn lookup_message(to: IpAddr, from: Option<IpAddr>, mark: u32, flags: RouteFlags) -> RouteMessage {
    let bits = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: if to.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        },
        destination_prefix_length: bits(to),
        source_prefix_length: from.map_or(0, bits),
        flags,
        ..RouteHeader::default()
    };
    message
        .attributes
        .push(RouteAttribute::Destination(to.into()));
    if let Some(from) = from {
        message.attributes.push(RouteAttribute::Source(from.into()));
    }
    if mark != 0 {
        message.attributes.push(RouteAttribute::Mark(mark));
    }
    message
}

impl Netlink {
    /// How a packet of this machine to `to` would go: with the source `from` if
    /// given, and with `mark` unless 0. A path MTU that the kernel has learned is
    /// not included; BPF's own lookup sees it.
    ///
    /// # Errors
    /// `from` is of the other family or (IPv4) not local, or the kernel fails otherwise. A
    /// destination that cannot be reached is no error but a [`RouteKind`].
    pub async fn route_get(&self, to: IpAddr, from: Option<IpAddr>, mark: u32) -> Result<Lookup> {
        let request = format!("look up the route to {to}");
        if from.is_some_and(|from| from.is_ipv4() != to.is_ipv4()) {
            let cause = io::Error::from(Errno::AFNOSUPPORT);
            return Err(Error::refused(request, cause));
        }
        let message = lookup_message(to, from, mark, RouteFlags::empty());
        let chosen = match self.look_up(&request, message).await {
            Ok(Some(route)) => route,
            Ok(None) => return Ok(Lookup::refused(RouteKind::None)),
            Err(error) => {
                // IPv4 refuses a source that is not local with the same errors.
                let foreign = match from {
                    Some(from) => !self.is_delivered_here(from).await?,
                    None => false,
                };
                let kind = RouteKind::from_refusal(&error).filter(|_| !foreign);
                return kind.map(Lookup::refused).ok_or(error);
            }
        };
        let mut answer = Lookup {
            kind: chosen.kind,
            prefsrc: chosen.prefsrc.or(from),
            legs: chosen.legs,
        };
        if chosen.kind == RouteKind::Unicast {
            // The matching route as it stands in the table names all legs, but not the
            // source that the kernel would choose: hence two questions.
            let message = lookup_message(to, from, mark, RouteFlags::FibMatch);
            // The route may have gone between the two questions: then one leg stands.
            if let Ok(Some(matched)) = self.look_up(&request, message).await
                && matched.kind == RouteKind::Unicast
                && !matched.legs.is_empty()
            {
                answer.legs = matched.legs;
            }
        }
        Ok(answer)
    }

    /// [`Netlink::route_get`] for many destinations, in their order, without source and mark.
    ///
    /// # Errors
    /// As [`Netlink::route_get`].
    pub async fn route_get_each(&self, to: &[IpAddr]) -> Result<Vec<Lookup>> {
        let found = self.look_up_each(to, RouteFlags::empty()).await?;
        let mut answers = Vec::with_capacity(to.len());
        for found in found {
            answers.push(match found {
                Ok(Some(route)) => Lookup {
                    kind: route.kind,
                    prefsrc: route.prefsrc,
                    legs: route.legs,
                },
                Ok(None) => Lookup::refused(RouteKind::None),
                Err(error) => {
                    let kind = RouteKind::from_refusal(&error);
                    kind.map(Lookup::refused).ok_or(error)?
                }
            });
        }
        let unicast = |at: &usize| answers[*at].kind == RouteKind::Unicast;
        let asked: Vec<usize> = (0..to.len()).filter(unicast).collect();
        // As for one destination; many are worth looking first whether any route has several legs.
        if asked.is_empty() || (asked.len() > FEW && !self.has_several_legs().await) {
            return Ok(answers);
        }
        let again: Vec<IpAddr> = asked.iter().map(|at| to[*at]).collect();
        let matched = self.look_up_each(&again, RouteFlags::FibMatch).await?;
        for (at, matched) in asked.into_iter().zip(matched) {
            if let Ok(Some(route)) = matched
                && route.kind == RouteKind::Unicast
                && !route.legs.is_empty()
            {
                answers[at].legs = route.legs;
            }
        }
        Ok(answers)
    }

    async fn look_up_each(
        &self,
        to: &[IpAddr],
        flags: RouteFlags,
    ) -> Result<Vec<Result<Option<Route>>>> {
        let message =
            |to: &IpAddr| RouteNetlinkMessage::GetRoute(lookup_message(*to, None, 0, flags));
        let messages = to.iter().map(message).collect();
        let request = |at: usize| format!("look up the route to {}", to[at]);
        let answers = self.ask_each(messages, request).await?;
        let route = |answer: Result<RouteNetlinkMessage>| answer.map(|answer| route_of(&answer));
        Ok(answers.into_iter().map(route).collect())
    }

    /// Whether some route has, or may have, several legs.
    async fn has_several_legs(&self) -> bool {
        let routes = self.routes().await;
        routes.map_or(true, |routes| {
            routes.iter().any(|route| route.legs.len() > 1)
        })
    }

    /// All ways to `to` with their weights; empty when it is not sent on.
    ///
    /// # Errors
    /// As [`Netlink::route_get`].
    pub async fn next_hops(&self, to: IpAddr) -> Result<Vec<NextHop>> {
        let found = self.route_get(to, None, 0).await?;
        Ok(match found.kind {
            RouteKind::Unicast => found.legs,
            _ => Vec::new(),
        })
    }

    /// All routes of both families and all tables, as they are configured.
    ///
    /// # Errors
    /// The kernel refuses the dump.
    pub async fn routes(&self) -> Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let message = RouteNetlinkMessage::GetRoute(message);
            let answers = self.dump("list routes", message).await?;
            routes.extend(answers.iter().filter_map(route_of));
        }
        Ok(routes)
    }

    pub(crate) async fn is_delivered_here(&self, ip: IpAddr) -> Result<bool> {
        let request = format!("look up the route to {ip}");
        let message = lookup_message(ip, None, 0, RouteFlags::empty());
        match self.look_up(&request, message).await {
            Ok(found) => Ok(found.is_some_and(|route| route.kind == RouteKind::Local)),
            Err(error) if RouteKind::from_refusal(&error).is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn look_up(&self, request: &str, message: RouteMessage) -> Result<Option<Route>> {
        let message = RouteNetlinkMessage::GetRoute(message);
        let answers = self.ask(request, message, 0).await?;
        Ok(answers.iter().find_map(route_of))
    }
}

fn route_of(answer: &RouteNetlinkMessage) -> Option<Route> {
    match answer {
        RouteNetlinkMessage::NewRoute(message) => Route::from_message(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
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
    fn a_large_table_number_comes_from_the_attribute() {
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
