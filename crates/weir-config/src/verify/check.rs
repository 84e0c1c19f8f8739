//! What checks, servers and listeners say together.

use std::collections::HashMap;
use std::ops::Range;

use weir_model::{Check, Ports, Server, Service};

use super::proxy::reached;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{Lowered, LoweredPool};
use crate::spelling::header;
use crate::view::Sink;

pub(super) fn checks(sink: &mut Sink<'_>, lowered: &Lowered) {
    let listening = listening(lowered);
    for pool in &lowered.pools {
        if let Some(ports) = listening.get(pool.pool.name.as_str()) {
            goes_to(sink, ports, pool);
            no_way(sink, lowered, pool);
            unchecked(sink, pool);
        }
        nothing_to_grow(sink, pool);
    }
    // A list, which is not read here, may name any of them.
    let lists = |pool: &LoweredPool| pool.pool.servers_file.is_some();
    if lowered.pools.iter().any(lists) {
        return;
    }
    for check in lowered.checks.iter().filter(|check| !check.used.get()) {
        let message = format!("nothing uses check `{}`", check.name);
        sink.push(
            Diagnostic::new(Code::UnusedCheck, &check.place, message)
                .fix("name it as `check` of a pool or a server, or take it out"),
        );
    }
}

/// Exact ports that services listen on, by pool: each once, in file order.
fn listening(lowered: &Lowered) -> HashMap<&str, Vec<u16>> {
    let mut listening: HashMap<&str, Vec<u16>> = HashMap::new();
    for service in lowered.services.iter().map(|service| &service.service) {
        let ports = listening.entry(service.pool.as_str()).or_default();
        for listener in &service.listen {
            if let Ports::One(port) = listener.ports
                && !ports.contains(&port)
            {
                ports.push(port);
            }
        }
    }
    for proxy in &lowered.proxies {
        for pool in reached(lowered, proxy) {
            let ports = listening.entry(pool).or_default();
            for listen in &proxy.proxy.listen {
                if !ports.contains(&listen.port()) {
                    ports.push(listen.port());
                }
            }
        }
    }
    listening
}

/// Once a check: the port that it goes to follows from other places for all servers without one of their own.
fn goes_to(sink: &mut Sink<'_>, listening: &[u16], pool: &LoweredPool) {
    for (at, check) in pool.pool.checks.iter().enumerate() {
        let server = pool.pool.servers.iter().find(|server| {
            server.checks.is_none() && server.port.is_none() && check.aim.port.is_none()
        });
        if let (Some(server), Some(place)) = (server, pool.checks.get(at)) {
            port(sink, check, server, place, listening);
        }
    }
    for (server, place) in with_sorry(pool) {
        for check in server.checks.iter().flatten() {
            if server.port.is_none() && check.aim.port.is_none() {
                port(sink, check, server, place, listening);
            }
        }
    }
}

/// All servers of a pool and where they are written, the sorry server among them.
fn with_sorry(pool: &LoweredPool) -> impl Iterator<Item = (&Server, &Range<usize>)> {
    let sorry = pool.pool.sorry.iter().zip(&pool.sorry);
    pool.pool.servers.iter().zip(&pool.servers).chain(sorry)
}

fn port(
    sink: &mut Sink<'_>,
    check: &Check,
    server: &Server,
    place: &Range<usize>,
    listening: &[u16],
) {
    if !check.probe.needs_port() {
        return;
    }
    let name = &server.name;
    match listening {
        [_] => {}
        [] => sink.push(
            Diagnostic::new(
                Code::NoCheckPort,
                place,
                format!("this check has no port to go to on server {name}"),
            )
            .cause("neither the check nor the server has a port, and no service listens on a single one")
            .fix("add `port` to the check"),
        ),
        [first, ..] => {
            let ports: Vec<String> = listening.iter().map(u16::to_string).collect();
            let message = format!("this check goes to port {first} alone");
            sink.push(
                Diagnostic::new(Code::CheckPort, place, message)
                    .cause(format!("services of the pool listen on {}", ports.join(", ")))
                    .fix("add `port` to the check to say that it is meant"),
            );
        }
    }
}

/// Checks that go through a service's forward where there is none that they fit.
fn no_way(sink: &mut Sink<'_>, lowered: &Lowered, pool: &LoweredPool) {
    let own = pool.pool.servers.iter().flat_map(|it| &it.checks).flatten();
    let mut all = pool.pool.checks.iter().chain(own);
    if !all.any(|check| check.aim.via.through_path()) {
        return;
    }
    let services = lowered.services.iter().map(|service| &service.service);
    let services: Vec<&Service> = services
        .filter(|service| service.pool == pool.pool.name)
        .collect();
    let lost = |check: &Check, server: &Server| {
        let mut services = services.iter();
        check.aim.via.through_path() && !services.any(|it| check.way(it, server).is_some())
    };
    let mut report = |place: &Range<usize>, check: &Check, server: &Server| {
        let kind = check.probe.as_str();
        let message = format!(
            "this `{kind}` check has no way to server {} through a service",
            server.name
        );
        sink.push(
            Diagnostic::new(Code::NoCheckPort, place, message)
                .cause("no layer 4 service of the pool listens on a single port with the check's protocol and the server's family")
                .fix("leave `via` out, or add `port` to the check where services listen on ranges"),
        );
    };
    for (at, check) in pool.pool.checks.iter().enumerate() {
        let mut servers = pool.pool.servers.iter().filter(|it| it.checks.is_none());
        if let (Some(server), Some(place)) = (
            servers.find(|server| lost(check, server)),
            pool.checks.get(at),
        ) {
            report(place, check, server);
        }
    }
    for (server, place) in with_sorry(pool) {
        for check in server.checks.iter().flatten().filter(|it| lost(it, server)) {
            report(place, check, server);
        }
    }
}

/// Servers that keep their share when they die, until their clients' packets show it.
fn unchecked(sink: &mut Sink<'_>, pool: &LoweredPool) {
    let has_none = |server: &Server| server.checks.as_deref().is_none_or(<[Check]>::is_empty);
    let none = pool.pool.checks.is_empty() && !pool.check_is_wrong;
    if pool.complete && none && pool.pool.servers.iter().any(has_none) {
        let name = &pool.pool.name;
        sink.push(
            Diagnostic::new(
                Code::Unchecked,
                &pool.name,
                format!("pool `{name}` has no check"),
            )
            .cause("a server that is down is still chosen")
            .fix(format!("add {}", header(&["pool", name, "check"]))),
        );
    }
}

/// Slow start of servers whose weight is the smallest there is.
fn nothing_to_grow(sink: &mut Sink<'_>, pool: &LoweredPool) {
    let Some(place) = &pool.slow_start else {
        return;
    };
    let servers = &pool.pool.servers;
    if pool.complete && !servers.is_empty() && servers.iter().all(|server| server.weight <= 1) {
        sink.push(
            Diagnostic::new(
                Code::NoEffect,
                place,
                "`slow_start` has no effect: no weight is above 1",
            )
            .cause("a weight grows in whole steps from 1")
            .fix("give the servers weights of 10 or 100"),
        );
    }
}
