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
        for (listener, listen) in service.service.listen.iter().zip(&service.listen) {
            let Some(finding) = meeting(forward, server, listener) else {
                continue;
            };
            let (code, message, cause, fix) = finding;
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
            break;
        }
    }
}

type Finding = (Code, String, String, String);

/// What is wrong when this server gets that listener's clients.
fn meeting(forward: Forward, server: &Server, listener: &Listener) -> Option<Finding> {
    let family = Family::of(server.address);
    if forward.needs_same_family() && family != listener.family() {
        return Some((
            Code::FamilyMismatch,
            format!(
                "`{forward}` cannot take {} clients to an {family} server",
                listener.family()
            ),
            "only `tunnel` carries one family in the other".to_owned(),
            format!(
                "use a pool of {} servers, or forward = \"tunnel\"",
                listener.family()
            ),
        ));
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
