//! Asking the kernel for its routes and for the way of a packet.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteHeader, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;

use super::{Lookup, Route, RouteKind};
use crate::class::Classes;
use crate::{Error, Netlink, Result};

/// Destinations that are asked about one by one, without reading routes and rules first.
const FEW: usize = 256;

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
            // The matching route as the table has it names all legs, but not the
            // source that the kernel would choose: hence two requests.
            let message = lookup_message(to, from, mark, RouteFlags::FibMatch);
            // The route may have been removed between the two requests: then there is one leg.
            if let Ok(Some(matched)) = self.look_up(&request, message).await
                && matched.kind == RouteKind::Unicast
                && !matched.legs.is_empty()
            {
                answer.legs = matched.legs;
            }
        }
        Ok(answer)
    }

    /// [`Netlink::route_get`] for many destinations, in their order, without source and mark. Of those that no route
    /// and no rule tells apart one is asked about.
    ///
    /// # Errors
    /// As [`Netlink::route_get`].
    pub async fn route_get_each(&self, to: &[IpAddr]) -> Result<Vec<Lookup>> {
        let classes = if to.len() > FEW {
            self.classes().await
        } else {
            None
        };
        let Some(classes) = classes else {
            return self.ask_about(to, true).await;
        };
        let (asked, places) = classes.representatives(to);
        // Where no route has several legs, the second question would say what the first one did.
        let found = self.ask_about(&asked, asked.len() <= FEW).await?;
        Ok(places.into_iter().map(|at| found[at].clone()).collect())
    }

    /// The kernel's answers; `whole` asks for all legs of a route that has several.
    async fn ask_about(&self, to: &[IpAddr], whole: bool) -> Result<Vec<Lookup>> {
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
        if asked.is_empty() || !whole {
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

    /// What destinations share an answer; `None` when that cannot be said, or a route has several legs: which of them
    /// the kernel names depends on more than the prefix.
    async fn classes(&self) -> Option<Classes> {
        let undecodable = self.undecodable().await;
        let routes = self.routes().await.ok()?;
        if routes.iter().any(|route| route.legs.len() > 1) {
            return None;
        }
        let routes = routes.iter().map(|route| (route.destination, route.prefix));
        let rules = self.rule_destinations().await.ok()?;
        if self.undecodable().await != undecodable {
            return None;
        }
        Some(Classes::new(routes.chain(rules)))
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

fn route_of(answer: &RouteNetlinkMessage) -> Option<Route> {
    match answer {
        RouteNetlinkMessage::NewRoute(message) => Route::from_message(message),
        _ => None,
    }
}
