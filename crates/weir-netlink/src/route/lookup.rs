//! Reads routes, and looks up the route of a packet.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteHeader, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;

use super::{Lookup, Route, RouteKind};
use crate::class::Classes;
use crate::{Error, Netlink, Result};

/// Maximum number of destinations that are looked up one by one, without reading routes and rules first.
const MAX_SINGLE_LOOKUPS: usize = 256;

impl Netlink {
    /// Looks up the route of a packet from this machine to `destination`, from `source` if it is specified, and with
    /// `mark` if it is not 0. The result does not include a cached path MTU, unlike BPF's own lookup.
    ///
    /// # Errors
    /// Fails if `source` has a different address family or is not local (IPv4), or the kernel reports a different
    /// error. An unreachable destination is not an error, but a [`RouteKind`].
    pub async fn route_get(
        &self,
        destination: IpAddr,
        source: Option<IpAddr>,
        mark: u32,
    ) -> Result<Lookup> {
        let request = format!("look up the route to {destination}");
        if source.is_some_and(|source| source.is_ipv4() != destination.is_ipv4()) {
            let cause = io::Error::from(Errno::AFNOSUPPORT);
            return Err(Error::request_failed(request, cause));
        }
        let message = lookup_message(destination, source, mark, RouteFlags::empty());
        let chosen = match self.look_up(&request, message).await {
            Ok(Some(route)) => route,
            Ok(None) => return Ok(Lookup::without_hops(RouteKind::None)),
            Err(error) => {
                // IPv4 reports the same errors for a source that is not local.
                let is_foreign_source = match source {
                    Some(source) => !self.is_delivered_locally(source).await?,
                    None => false,
                };
                let kind = RouteKind::from_error(&error).filter(|_| !is_foreign_source);
                return kind.map(Lookup::without_hops).ok_or(error);
            }
        };
        let mut lookup = Lookup {
            kind: chosen.kind,
            prefsrc: chosen.prefsrc.or(source),
            next_hops: chosen.next_hops,
        };
        if chosen.kind == RouteKind::Unicast {
            // The matching route in the table contains all next hops, but not the source that the kernel selects. Two
            // requests are therefore required.
            let message = lookup_message(destination, source, mark, RouteFlags::FibMatch);
            // If the route was removed between the two requests, the result has only one next hop.
            if let Ok(Some(matched)) = self.look_up(&request, message).await
                && matched.kind == RouteKind::Unicast
                && !matched.next_hops.is_empty()
            {
                lookup.next_hops = matched.next_hops;
            }
        }
        Ok(lookup)
    }

    /// Returns the route in a routing table that packets from this machine to `destination` match, with its prefix and
    /// all next hops. `None` = no route matches, or the packets are dropped or rejected.
    ///
    /// # Errors
    /// Fails if the kernel reports a different error.
    pub async fn matching_route(&self, destination: IpAddr) -> Result<Option<Route>> {
        let request = format!("look up the route to {destination}");
        let message = lookup_message(destination, None, 0, RouteFlags::FibMatch);
        match self.look_up(&request, message).await {
            Err(error) if RouteKind::from_error(&error).is_some() => Ok(None),
            found => found,
        }
    }

    /// Looks up many destinations, as [`Netlink::route_get`] does without a source or a mark, and returns the results
    /// in the same order. Looks up only one of several destinations with the same routes and rules.
    ///
    /// # Errors
    /// See [`Netlink::route_get`].
    pub async fn route_get_each(&self, destinations: &[IpAddr]) -> Result<Vec<Lookup>> {
        let classes = if destinations.len() > MAX_SINGLE_LOOKUPS {
            self.destination_classes().await
        } else {
            None
        };
        let Some(classes) = classes else {
            return self.look_up_all(destinations, true).await;
        };
        let (representatives, indexes) = classes.representatives(destinations);
        // No route has several next hops, so second requests would return the same results; they are omitted if there
        // would be many.
        let lookups = self
            .look_up_all(
                &representatives,
                representatives.len() <= MAX_SINGLE_LOOKUPS,
            )
            .await?;
        Ok(indexes
            .into_iter()
            .map(|index| lookups[index].clone())
            .collect())
    }

    /// Looks up destinations. `all_hops` requests all next hops of multipath routes.
    async fn look_up_all(&self, destinations: &[IpAddr], all_hops: bool) -> Result<Vec<Lookup>> {
        let replies = self.look_up_each(destinations, RouteFlags::empty()).await?;
        let mut lookups = Vec::with_capacity(destinations.len());
        for reply in replies {
            lookups.push(match reply {
                Ok(Some(route)) => Lookup {
                    kind: route.kind,
                    prefsrc: route.prefsrc,
                    next_hops: route.next_hops,
                },
                Ok(None) => Lookup::without_hops(RouteKind::None),
                Err(error) => {
                    let kind = RouteKind::from_error(&error);
                    kind.map(Lookup::without_hops).ok_or(error)?
                }
            });
        }
        let is_unicast = |index: &usize| lookups[*index].kind == RouteKind::Unicast;
        let unicast: Vec<usize> = (0..destinations.len()).filter(is_unicast).collect();
        if unicast.is_empty() || !all_hops {
            return Ok(lookups);
        }
        let unicast_destinations: Vec<IpAddr> =
            unicast.iter().map(|index| destinations[*index]).collect();
        let matched = self
            .look_up_each(&unicast_destinations, RouteFlags::FibMatch)
            .await?;
        for (index, matched) in unicast.into_iter().zip(matched) {
            if let Ok(Some(route)) = matched
                && route.kind == RouteKind::Unicast
                && !route.next_hops.is_empty()
            {
                lookups[index].next_hops = route.next_hops;
            }
        }
        Ok(lookups)
    }

    async fn look_up_each(
        &self,
        destinations: &[IpAddr],
        flags: RouteFlags,
    ) -> Result<Vec<Result<Option<Route>>>> {
        let message = |destination: &IpAddr| {
            RouteNetlinkMessage::GetRoute(lookup_message(*destination, None, 0, flags))
        };
        let messages = destinations.iter().map(message).collect();
        let request = |index: usize| format!("look up the route to {}", destinations[index]);
        let replies = self.transact_each(messages, request).await?;
        let route = |reply: Result<RouteNetlinkMessage>| reply.map(|reply| route_of(&reply));
        Ok(replies.into_iter().map(route).collect())
    }

    /// Returns the classes of destinations with the same route. `None` = the classes cannot be determined, or a route
    /// has several next hops, so that the kernel's choice does not depend only on the prefix.
    async fn destination_classes(&self) -> Option<Classes> {
        let undecodable = self.undecodable_count().await;
        let routes = self.routes().await.ok()?;
        if routes.iter().any(|route| route.next_hops.len() > 1) {
            return None;
        }
        let routes = routes.iter().map(|route| (route.destination, route.prefix));
        let rules = self.rule_destinations().await.ok()?;
        if self.undecodable_count().await != undecodable {
            return None;
        }
        Some(Classes::new(routes.chain(rules)))
    }

    /// Returns the routes of both address families and all tables.
    ///
    /// # Errors
    /// Fails if the kernel rejects the dump.
    pub async fn routes(&self) -> Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let message = RouteNetlinkMessage::GetRoute(message);
            let replies = self.dump("list routes", message).await?;
            routes.extend(replies.iter().filter_map(route_of));
        }
        Ok(routes)
    }

    pub(crate) async fn is_delivered_locally(&self, ip: IpAddr) -> Result<bool> {
        let request = format!("look up the route to {ip}");
        let message = lookup_message(ip, None, 0, RouteFlags::empty());
        match self.look_up(&request, message).await {
            Ok(found) => Ok(found.is_some_and(|route| route.kind == RouteKind::Local)),
            Err(error) if RouteKind::from_error(&error).is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn look_up(&self, request: &str, message: RouteMessage) -> Result<Option<Route>> {
        let message = RouteNetlinkMessage::GetRoute(message);
        let replies = self.transact(request, message, 0).await?;
        Ok(replies.iter().find_map(route_of))
    }
}

fn lookup_message(
    destination: IpAddr,
    source: Option<IpAddr>,
    mark: u32,
    flags: RouteFlags,
) -> RouteMessage {
    let bits = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: if destination.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        },
        destination_prefix_length: bits(destination),
        source_prefix_length: source.map_or(0, bits),
        flags,
        ..RouteHeader::default()
    };
    message
        .attributes
        .push(RouteAttribute::Destination(destination.into()));
    if let Some(source) = source {
        message
            .attributes
            .push(RouteAttribute::Source(source.into()));
    }
    if mark != 0 {
        message.attributes.push(RouteAttribute::Mark(mark));
    }
    message
}

fn route_of(reply: &RouteNetlinkMessage) -> Option<Route> {
    match reply {
        RouteNetlinkMessage::NewRoute(message) => Route::from_message(message),
        _ => None,
    }
}
