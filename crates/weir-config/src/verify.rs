//! What two places say together: listeners that collide, names that dangle, families that do not meet, and what is
//! legal and suspicious.
//!
//! Runs over everything that could be read, so that one run reports all. Each finding names both places.

mod check;
mod layer4;
mod listener;
mod mark;
mod proxy;
mod server;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;

use weir_model::{Family, Protocol, SecretSource};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{Lowered, LoweredPool, LoweredService};
use crate::spelling::header;
use crate::suggest::nearest;
use crate::view::Sink;

/// The machine that will run the configuration. It is asked only where the answer decides something, as asking takes the kernel
/// longer than reading an ordinary file; `None` = it does not say, and warnings that need it are left out.
pub trait Machine {
    /// `net.ipv4.ip_local_port_range`: first and last port of the machine's own connections.
    fn local_ports(&self) -> Option<(u16, u16)>;
    /// Whether some interface forwards packets of a family.
    fn forwards(&self, family: Family) -> Option<bool>;
    /// Whether there is a group of users of that name.
    fn has_group(&self, _name: &str) -> Option<bool> {
        None
    }
    /// Whether there is a network interface of that name.
    fn has_interface(&self, _name: &str) -> Option<bool> {
        None
    }
    /// What a secret's source holds, or why it holds none, in words. The value of [`SecretSource::Text`] is in the configuration
    /// already; who can read it is asked here as well.
    fn secret(&self, _source: &SecretSource) -> Option<Result<SecretValue, String>> {
        None
    }
}

/// What a machine holds at a secret's source.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue {
    /// As it is there, with the end of its line.
    pub bytes: Vec<u8>,
    /// The mode of its file, where every user of the machine can read it.
    pub exposed: Option<u32>,
}

/// Never shows the value.
impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretValue").finish_non_exhaustive()
    }
}

/// A machine of which this is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Host {
    /// `net.ipv4.ip_local_port_range`: first and last port of the machine's own connections.
    pub local_ports: Option<(u16, u16)>,
    /// Whether some interface forwards IPv4, and whether one forwards IPv6.
    pub forwards: Option<(bool, bool)>,
}

impl Machine for Host {
    fn local_ports(&self) -> Option<(u16, u16)> {
        self.local_ports
    }

    fn forwards(&self, family: Family) -> Option<bool> {
        self.forwards.map(|(v4, v6)| match family {
            Family::V4 => v4,
            Family::V6 => v6,
        })
    }
}

/// Judges the configuration as a whole.
pub(crate) fn verify(sink: &mut Sink<'_>, lowered: &Lowered, host: &dyn Machine) {
    let pools: HashMap<&str, &LoweredPool> = lowered
        .pools
        .iter()
        .map(|pool| (pool.pool.name.as_str(), pool))
        .collect();
    listener::listeners(sink, lowered);
    mark::marks(sink, lowered, host);
    limits(sink, lowered);
    for service in &lowered.services {
        snat(sink, service, host);
        one_packet(sink, service);
        let Some(place) = &service.pool else { continue };
        match pools.get(service.service.pool.as_str()) {
            Some(pool) => {
                server::servers_of(sink, service, pool);
                layer4::verify(sink, service, pool);
                server::without_effect(sink, service, pool);
            }
            None => dangling(
                sink,
                lowered,
                &pools,
                &service.service.pool,
                place,
                &service.name,
            ),
        }
    }
    proxy::verify(sink, lowered, &pools);
    check::checks(sink, lowered);
    listener::admin(sink, lowered);
    socket_group(sink, lowered, host);
    interfaces(sink, lowered, host);
    unused(sink, lowered);
    quiesced(sink, lowered);
}

/// No user could use the socket, or the wrong users could.
fn socket_group(sink: &mut Sink<'_>, lowered: &Lowered, host: &dyn Machine) {
    let (Some(group), Some(place)) = (&lowered.node.socket_group, &lowered.socket_group) else {
        return;
    };
    if host.has_group(group) == Some(false) {
        let message = format!("this machine has no group `{}`", group.escape_debug());
        sink.push(Diagnostic::new(Code::BadName, place, message).fix(format!(
            "add it with `groupadd --system {}`, or name another one",
            group.escape_debug()
        )));
    }
}

/// Nothing can be attached or added to an interface that is not there.
fn interfaces(sink: &mut Sink<'_>, lowered: &Lowered, host: &dyn Machine) {
    for (name, place) in &lowered.interfaces {
        if host.has_interface(name) == Some(false) {
            let message = format!("there is no interface `{}`", name.escape_debug());
            sink.push(
                Diagnostic::new(Code::NoInterface, place, message)
                    .label("not on this machine, in this network namespace")
                    .fix("`ip -brief link` lists the interfaces; add it before Weir starts, or name another one"),
            );
        }
    }
}

/// A service names a pool that does not exist.
fn dangling(
    sink: &mut Sink<'_>,
    lowered: &Lowered,
    pools: &HashMap<&str, &LoweredPool>,
    name: &str,
    place: &Range<usize>,
    service: &Range<usize>,
) {
    let message = format!("there is no pool `{name}`");
    let diagnostic =
        Diagnostic::new(Code::DanglingPool, place, message).also(service, "this service needs it");
    let near = nearest(
        name,
        lowered.pools.iter().map(|pool| pool.pool.name.as_str()),
    );
    sink.push(match near.and_then(|near| pools.get(near)) {
        Some(near) => diagnostic
            .also(&near.name, "this one exists")
            .fix(format!("did you mean `{}`?", near.pool.name)),
        None => diagnostic.fix(format!("add {}", header(&["pool", name]))),
    });
}

fn limits(sink: &mut Sink<'_>, lowered: &Lowered) {
    let limit = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let servers = lowered.pools.iter().flat_map(|pool| &pool.servers);
    let services = lowered.services.iter().map(|service| &service.name);
    let over = [
        (
            "max_servers",
            lowered.node.max_servers,
            &lowered.max_servers,
            servers.clone().count(),
            { servers.clone().nth(limit(lowered.node.max_servers)) },
        ),
        (
            "max_services",
            lowered.node.max_services,
            &lowered.max_services,
            services.clone().count(),
            { services.clone().nth(limit(lowered.node.max_services)) },
        ),
    ];
    for (key, allowed, place, count, first_over) in over {
        let Some(first_over) = first_over else {
            continue;
        };
        let what = key.trim_start_matches("max_");
        let mut diagnostic = Diagnostic::new(
            Code::OverLimit,
            first_over,
            format!("{count} {what}, and `{key}` allows {allowed}"),
        )
        .label("the first too many")
        .fix(format!("raise `{key}` in [node] to {count} or more"));
        if let Some(place) = place {
            diagnostic = diagnostic.also(place, "the limit");
        }
        sink.push(diagnostic);
    }
}

fn snat(sink: &mut Sink<'_>, service: &LoweredService, host: &dyn Machine) {
    let (Some(snat), Some(place)) = (&service.service.snat, &service.snat) else {
        return;
    };
    if let Some((first, last)) = host.local_ports()
        && snat.ports.0 <= last
        && first <= snat.ports.1
    {
        let (from, to) = snat.ports;
        let message =
            format!("the source ports {from}-{to} meet the director's own, {first}-{last}");
        sink.push(
            Diagnostic::new(Code::LocalPorts, place, message)
                .cause("a connection of the director itself may already use such a port")
                .fix("choose other ports, or change net.ipv4.ip_local_port_range"),
        );
    }
    for (listener, listen) in service.service.listen.iter().zip(&service.listen) {
        let family = listener.family();
        if !snat.addresses.is_empty()
            && !snat
                .addresses
                .iter()
                .any(|address| Family::of(*address) == family)
        {
            sink.push(
                Diagnostic::new(
                    Code::FamilyMismatch,
                    place,
                    format!("`snat` has no {family} address"),
                )
                .also(listen, format!("this listener is {family}"))
                .fix(format!(
                    "add an {family} address, or leave `addresses` out to use the director's own"
                )),
            );
            return;
        }
    }
}

/// Only UDP has packets that stand alone, and source rewriting needs a memory of flows.
fn one_packet(sink: &mut Sink<'_>, service: &LoweredService) {
    let Some(place) = &service.one_packet else {
        return;
    };
    let listeners = service.service.listen.iter().zip(&service.listen);
    let mut tcp = listeners.filter(|(listener, _)| listener.protocol == Protocol::Tcp);
    if let Some((_, listen)) = tcp.next()
        && tcp.count() + 1 == service.service.listen.len()
        && service.service.marks.is_empty()
    {
        sink.push(
            Diagnostic::new(
                Code::Contradiction,
                place,
                "`one_packet` is for UDP, and this service has TCP only",
            )
            .also(listen, "this listener is TCP")
            .fix("leave `one_packet` out, or listen on udp/"),
        );
    }
    if let Some(snat) = &service.snat {
        sink.push(
            Diagnostic::new(
                Code::Contradiction,
                place,
                "`one_packet` and `snat` exclude each other",
            )
            .also(snat, "the source is rewritten here")
            .cause("a rewritten source is found again by the flow, and no flow is remembered")
            .fix("leave one of them out"),
        );
    }
}

fn unused(sink: &mut Sink<'_>, lowered: &Lowered) {
    let used: HashSet<&str> = lowered
        .services
        .iter()
        .map(|service| service.service.pool.as_str())
        .chain(
            lowered
                .proxies
                .iter()
                .map(|proxy| proxy.proxy.pool.as_str()),
        )
        .chain(
            lowered
                .routes
                .iter()
                .flat_map(|route| route.route.action.pools()),
        )
        .collect();
    let exist: HashSet<&str> = lowered
        .pools
        .iter()
        .map(|pool| pool.pool.name.as_str())
        .collect();
    // A service whose pool is unknown may well mean the one that seems unused.
    if !used.is_subset(&exist) {
        return;
    }
    for pool in lowered
        .pools
        .iter()
        .filter(|pool| !used.contains(pool.pool.name.as_str()))
    {
        sink.push(
            Diagnostic::new(
                Code::UnusedPool,
                &pool.name,
                format!("no service uses pool `{}`", pool.pool.name),
            )
            .fix("name it as `pool` of a service, or take it out"),
        );
    }
}

fn quiesced(sink: &mut Sink<'_>, lowered: &Lowered) {
    for pool in &lowered.pools {
        let servers = &pool.pool.servers;
        if pool.complete && !servers.is_empty() && servers.iter().all(|server| server.weight == 0) {
            let message = format!("every server of pool `{}` has weight 0", pool.pool.name);
            sink.push(
                Diagnostic::new(Code::AllQuiesced, &pool.name, message)
                    .cause("weight 0 takes no new clients")
                    .fix("give one of them a weight"),
            );
        }
    }
}
