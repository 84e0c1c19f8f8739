//! What a service asks of its pool's servers, and they cannot do.

use std::collections::HashSet;

use weir_model::{Family, Forward, Listener, Server};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredPool, LoweredService};
use crate::view::Sink;

/// Servers that cannot serve a listener's clients.
pub(super) fn servers_of(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    if pool.pool.servers.is_empty() && pool.complete {
        let message = format!("pool `{}` has no servers", pool.pool.name);
        sink.push(
            Diagnostic::new(Code::NoServers, &pool.name, message)
                .also(&service.name, "this service refuses all clients")
                .fix("add `servers`"),
        );
    }
    let Some(method) = &service.forward else {
        return;
    };
    let sorry = pool.pool.sorry.iter().zip(&pool.sorry);
    for (server, place) in pool.pool.servers.iter().zip(&pool.servers).chain(sorry) {
        if sink.is_full() {
            return;
        }
        let forward = server.forward_in(&service.service);
        let listeners = service.service.listen.iter().zip(&service.listen);
        let mut listeners = listeners
            .filter_map(|(listener, place)| Some((meeting(forward, server, listener)?, place)));
        let marks = service.service.marks.iter().zip(&service.marks);
        let mut marks = marks
            .filter_map(|(mark, place)| Some((families(forward, server, mark.family)?, place)));
        let findings = listeners.next().into_iter().chain(marks.next());
        for ((code, message, cause, fix), listen) in findings {
            let mut diagnostic = Diagnostic::new(code, place, message)
                .label(format!("server of pool `{}`", pool.pool.name))
                .also(
                    listen,
                    format!("listener of service `{}`", service.service.name),
                );
            if server.forward.is_none() {
                diagnostic = diagnostic.also(method, "the forwarding method");
            }
            sink.push(diagnostic.cause(cause).fix(fix));
        }
    }
}

/// Code, message, cause and fix.
type Finding = (Code, String, String, String);

/// What is wrong when this server gets clients of that family.
fn families(forward: Forward, server: &Server, clients: Family) -> Option<Finding> {
    let family = Family::of(server.address);
    (forward.needs_same_family() && family != clients).then(|| {
        (
            Code::FamilyMismatch,
            format!("`{forward}` cannot take {clients} clients to an {family} server"),
            "only `tunnel` and `proxy` take servers of another family".to_owned(),
            format!("use a pool of {clients} servers, or forward = \"tunnel\" or \"proxy\""),
        )
    })
}

/// What is wrong when this server gets that listener's clients.
fn meeting(forward: Forward, server: &Server, listener: &Listener) -> Option<Finding> {
    if let Some(finding) = families(forward, server, listener.family()) {
        return Some(finding);
    }
    let reaches = server.port.is_none_or(|port| listener.ports.contains(port));
    if server.address == listener.address && reaches {
        return Some((
            Code::ServerIsVip,
            format!("server {} is the service's own VIP", server.name),
            "its packets would come back to the director as a client's".to_owned(),
            "name the server's own address".to_owned(),
        ));
    }
    if let Some(port) = server.port
        && !forward.rewrites_port()
        && !listener.ports.contains(port)
    {
        return Some((
            Code::PortStays,
            format!(
                "under `{forward}` clients reach port {} of this server, not {port}",
                listener.ports
            ),
            "only `nat` rewrites the port; elsewhere a server's port is for checks".to_owned(),
            "leave the port out, or let the service listen on it".to_owned(),
        ));
    }
    None
}

/// Keys of the service that belong to a forwarding method which none of its servers has.
pub(super) fn without_effect(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    if !pool.complete || service.forward.is_none() {
        return;
    }
    let forwards: HashSet<Forward> = pool
        .pool
        .servers
        .iter()
        .chain(&pool.pool.sorry)
        .map(|server| server.forward_in(&service.service))
        .chain(
            pool.pool
                .servers
                .is_empty()
                .then_some(service.service.forward),
        )
        .collect();
    let keys = [
        ("snat", Forward::Nat, &service.snat),
        ("tunnel", Forward::Tunnel, &service.tunnel),
        ("dscp", Forward::L3dsr, &service.dscp),
    ];
    for (key, needs, place) in keys {
        if let Some(place) = place
            && !forwards.contains(&needs)
        {
            let message = format!(
                "`{key}` has no effect: no server of this service has forward = \"{needs}\""
            );
            let mut diagnostic = Diagnostic::new(Code::NoEffect, place, message);
            if let Some(forward) = &service.forward {
                diagnostic = diagnostic.also(forward, "the forwarding method");
            }
            sink.push(diagnostic.fix(format!("leave `{key}` out")));
        }
    }
}
