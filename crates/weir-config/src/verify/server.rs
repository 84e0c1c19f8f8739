//! Verifies that the servers of a pool can serve a service's clients.

use std::collections::HashSet;

use weir_model::{Family, Forward, Listener, Server};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredPool, LoweredService};
use crate::view::Sink;

/// Reports a pool without servers, and servers that cannot serve a listener's clients.
pub(super) fn verify(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    if pool.pool.servers.is_empty() && pool.complete {
        let message = format!("pool `{}` has no servers", pool.pool.name);
        sink.push(
            Diagnostic::new(Code::NoServers, &pool.name, message)
                .related(&service.name, "this service rejects all clients")
                .fix("add `servers`"),
        );
    }
    let Some(method) = &service.forward else {
        return;
    };
    let sorry = pool.pool.sorry.iter().zip(&pool.sorry);
    for (server, location) in pool.pool.servers.iter().zip(&pool.servers).chain(sorry) {
        if sink.is_full() {
            return;
        }
        if server.unix.is_some() {
            continue;
        }
        let forward = server.forward_in(&service.service);
        let listeners = service.service.listen.iter().zip(&service.listen);
        let mut listeners = listeners.filter_map(|(listener, location)| {
            Some((listener_problem(forward, server, listener)?, location))
        });
        let marks = service.service.marks.iter().zip(&service.marks);
        let mut marks = marks.filter_map(|(mark, location)| {
            Some((family_problem(forward, server, mark.family)?, location))
        });
        let problems = listeners.next().into_iter().chain(marks.next());
        for ((code, message, cause, fix), listen) in problems {
            let mut diagnostic = Diagnostic::new(code, location, message)
                .label(format!("server of pool `{}`", pool.pool.name))
                .related(
                    listen,
                    format!("listener of service `{}`", service.service.name),
                );
            if server.forward.is_none() {
                diagnostic = diagnostic.related(method, "the forwarding method");
            }
            sink.push(diagnostic.cause(cause).fix(fix));
        }
    }
}

/// Code, message, cause and fix.
type Problem = (Code, String, String, String);

/// Returns why this server cannot serve clients of an address family.
fn family_problem(forward: Forward, server: &Server, clients: Family) -> Option<Problem> {
    let family = Family::of(server.address);
    (forward.needs_same_family() && family != clients).then(|| {
        (
            Code::FamilyMismatch,
            format!("`{forward}` cannot forward {clients} clients to an {family} server"),
            "only `tunnel` and `proxy` support servers of a different address family".to_owned(),
            format!("use a pool with {clients} servers, or forward = \"tunnel\" or \"proxy\""),
        )
    })
}

/// Returns why this server cannot serve the clients of a listener.
fn listener_problem(forward: Forward, server: &Server, listener: &Listener) -> Option<Problem> {
    if let Some(problem) = family_problem(forward, server, listener.family()) {
        return Some(problem);
    }
    let is_listener_port = server.port.is_none_or(|port| listener.ports.contains(port));
    if server.address == listener.address && is_listener_port {
        return Some((
            Code::ServerIsVip,
            format!("server {} is the service's own VIP", server.name),
            "forwarded packets would return to the director as client packets".to_owned(),
            "use the server's own address".to_owned(),
        ));
    }
    if let Some(port) = server.port
        && !forward.rewrites_port()
        && !listener.ports.contains(port)
    {
        return Some((
            Code::PortNotRewritten,
            format!(
                "with `{forward}`, clients reach port {} of this server, not {port}",
                listener.ports
            ),
            "only `nat`, `proxy` and `socket` rewrite the port; other methods use a server's port only for checks"
                .to_owned(),
            "remove the port, or add it to the service's listeners".to_owned(),
        ));
    }
    None
}

/// Reports keys of a service that have no effect, because none of its servers uses their forwarding method.
pub(super) fn report_keys_without_effect(
    sink: &mut Sink<'_>,
    service: &LoweredService,
    pool: &LoweredPool,
) {
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
    for (key, required_forward, location) in keys {
        if let Some(location) = location
            && !forwards.contains(&required_forward)
        {
            let message = format!(
                "`{key}` has no effect: no server of this service has forward = \"{required_forward}\""
            );
            let mut diagnostic = Diagnostic::new(Code::NoEffect, location, message);
            if let Some(forward) = &service.forward {
                diagnostic = diagnostic.related(forward, "the forwarding method");
            }
            sink.push(diagnostic.fix(format!("remove `{key}`")));
        }
    }
}
