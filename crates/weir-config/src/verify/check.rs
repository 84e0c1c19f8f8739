//! Verifies health checks against servers and listeners.

use std::collections::HashMap;
use std::ops::Range;

use weir_model::{Check, Ports, Server, Service};

use super::proxy::reachable_pools;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredConfig, LoweredPool};
use crate::spelling::header;
use crate::view::Sink;

pub(super) fn verify(sink: &mut Sink<'_>, lowered: &LoweredConfig) {
    let listening = ports_by_pool(lowered);
    for pool in &lowered.pools {
        if let Some(listening) = listening.get(pool.pool.name.as_str()) {
            if !listening.has_rejected {
                check_target_ports(sink, &listening.ports, pool);
            }
            check_forwarding_paths(sink, lowered, pool);
            report_unchecked(sink, pool);
        }
        report_slow_start_without_effect(sink, pool);
    }
    // An external list may refer to any check.
    let has_external_list = |pool: &LoweredPool| pool.pool.servers_file.is_some();
    if lowered.pools.iter().any(has_external_list) {
        return;
    }
    for check in lowered.checks.iter().filter(|check| !check.used.get()) {
        let message = format!("check `{}` is not used", check.name);
        sink.push(
            Diagnostic::new(Code::UnusedCheck, &check.location, message)
                .fix("use it as the `check` of a pool or a server, or remove it"),
        );
    }
}

/// The ports that the services using a pool listen on.
#[derive(Default)]
struct ListenerPorts {
    /// The exact ports, without duplicates, in file order.
    ports: Vec<u16>,
    /// Whether all listeners of a service were rejected, so that `ports` may be incomplete. The rejected listeners are
    /// already reported.
    has_rejected: bool,
}

impl ListenerPorts {
    fn add(&mut self, port: u16) {
        if !self.ports.contains(&port) {
            self.ports.push(port);
        }
    }
}

/// Returns the ports that services listen on, by pool.
fn ports_by_pool(lowered: &LoweredConfig) -> HashMap<&str, ListenerPorts> {
    let mut ports_by_pool: HashMap<&str, ListenerPorts> = HashMap::new();
    for service in lowered.services.iter().map(|service| &service.service) {
        let listening = ports_by_pool.entry(service.pool.as_str()).or_default();
        listening.has_rejected |= service.listen.is_empty() && service.marks.is_empty();
        for listener in &service.listen {
            if let Ports::One(port) = listener.ports {
                listening.add(port);
            }
        }
    }
    for proxy in &lowered.proxies {
        for pool in reachable_pools(lowered, proxy) {
            let listening = ports_by_pool.entry(pool).or_default();
            listening.has_rejected |= proxy.proxy.listen.is_empty();
            for listen in &proxy.proxy.listen {
                listening.add(listen.port());
            }
        }
    }
    ports_by_pool
}

/// Verifies the target port of each check. Reports a pool's check once for all servers without a port.
fn check_target_ports(sink: &mut Sink<'_>, listening: &[u16], pool: &LoweredPool) {
    for (index, check) in pool.pool.checks.iter().enumerate() {
        let server = pool.pool.servers.iter().find(|server| {
            server.checks.is_none() && server.port.is_none() && check.target.port.is_none()
        });
        if let (Some(server), Some(location)) = (server, pool.checks.get(index)) {
            report_port(sink, check, server, location, listening);
        }
    }
    for (server, location) in all_servers(pool) {
        for check in server.checks.iter().flatten() {
            if server.port.is_none() && check.target.port.is_none() {
                report_port(sink, check, server, location, listening);
            }
        }
    }
}

/// Returns all servers of a pool with their positions, including the sorry server.
fn all_servers(pool: &LoweredPool) -> impl Iterator<Item = (&Server, &Range<usize>)> {
    let sorry = pool.pool.sorry.iter().zip(&pool.sorry);
    pool.pool.servers.iter().zip(&pool.servers).chain(sorry)
}

/// Reports a check that has no known port, or that probes only one of several ports.
fn report_port(
    sink: &mut Sink<'_>,
    check: &Check,
    server: &Server,
    location: &Range<usize>,
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
                location,
                format!("this check has no port for server {name}"),
            )
            .cause("neither the check nor the server has a port, and no service listens on a single port")
            .fix("add `port` to the check"),
        ),
        [first, ..] => {
            let ports: Vec<String> = listening.iter().map(u16::to_string).collect();
            let message = format!("this check probes only port {first}");
            sink.push(
                Diagnostic::new(Code::CheckPort, location, message)
                    .cause(format!("services that use the pool listen on {}", ports.join(", ")))
                    .fix("set `port` in the check if checking one port is enough, or add one check for each port"),
            );
        }
    }
}

/// Reports checks that would use a forwarding path that does not exist.
fn check_forwarding_paths(sink: &mut Sink<'_>, lowered: &LoweredConfig, pool: &LoweredPool) {
    let server_checks = pool.pool.servers.iter().flat_map(|it| &it.checks).flatten();
    let mut all = pool.pool.checks.iter().chain(server_checks);
    if !all.any(|check| check.target.via.uses_forwarding_path()) {
        return;
    }
    let services = lowered.services.iter().map(|service| &service.service);
    let services: Vec<&Service> = services
        .filter(|service| service.pool == pool.pool.name)
        .collect();
    let is_unreachable = |check: &Check, server: &Server| {
        let mut services = services.iter();
        check.target.via.uses_forwarding_path()
            && !services.any(|it| check.probe_path(it, server).is_some())
    };
    let mut report = |location: &Range<usize>, check: &Check, server: &Server| {
        let kind = check.probe.as_str();
        let message = format!(
            "this `{kind}` check cannot reach server {} through a service",
            server.name
        );
        sink.push(
            Diagnostic::new(Code::NoCheckPort, location, message)
                .cause("no layer 4 service that uses the pool listens on a single port with the check's protocol and \
                    the server's family")
                .fix("remove `via`, or add `port` to the check if services listen on ranges"),
        );
    };
    for (index, check) in pool.pool.checks.iter().enumerate() {
        let mut servers = pool.pool.servers.iter().filter(|it| it.checks.is_none());
        if let (Some(server), Some(location)) = (
            servers.find(|server| is_unreachable(check, server)),
            pool.checks.get(index),
        ) {
            report(location, check, server);
        }
    }
    for (server, location) in all_servers(pool) {
        for check in server
            .checks
            .iter()
            .flatten()
            .filter(|it| is_unreachable(it, server))
        {
            report(location, check, server);
        }
    }
}

/// Reports a pool without a check, if one of its servers has no check of its own.
fn report_unchecked(sink: &mut Sink<'_>, pool: &LoweredPool) {
    let has_no_check = |server: &Server| server.checks.as_deref().is_none_or(<[Check]>::is_empty);
    let has_no_pool_check = pool.pool.checks.is_empty() && !pool.has_invalid_check;
    let servers = &pool.pool.servers;
    let unchecked = servers.iter().filter(|it| has_no_check(it)).count();
    if pool.complete && has_no_pool_check && unchecked > 0 {
        let name = &pool.pool.name;
        let message = if unchecked == servers.len() {
            format!("pool `{name}` has no check")
        } else {
            let verb = if unchecked == 1 { "has" } else { "have" };
            let all = servers.len();
            format!("{unchecked} of {all} servers of pool `{name}` {verb} no check")
        };
        sink.push(
            Diagnostic::new(Code::Unchecked, &pool.name, message)
                .cause("a server that is down is still selected")
                .fix(format!("add {}", header(&["pool", name, "check"]))),
        );
    }
}

/// Reports `slow_start` in a pool without a weight above 1.
fn report_slow_start_without_effect(sink: &mut Sink<'_>, pool: &LoweredPool) {
    let Some(location) = &pool.slow_start else {
        return;
    };
    let servers = &pool.pool.servers;
    if pool.complete && !servers.is_empty() && servers.iter().all(|server| server.weight <= 1) {
        sink.push(
            Diagnostic::new(
                Code::NoEffect,
                location,
                "`slow_start` has no effect: no weight is above 1",
            )
            .cause("weights are integers and grow from 1")
            .fix("use weights of 10 or 100"),
        );
    }
}
