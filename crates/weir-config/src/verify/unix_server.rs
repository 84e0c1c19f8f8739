//! Verifies servers on Unix sockets, which only proxy services and some checks can reach.

use std::ops::Range;

use weir_model::{Check, DirectorProbe, Medium, Server};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredPool, LoweredService};
use crate::view::Sink;

/// Reports servers of layer 4 services that are on Unix sockets.
pub(super) fn report_in_layer_4(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    let Some(method) = &service.forward else {
        return;
    };
    for (server, location) in unix_socket_servers(pool) {
        let forward = server.forward_in(&service.service);
        let message = format!(
            "`{forward}` forwards packets, but server {} is a Unix socket",
            server.name
        );
        sink.push(
            Diagnostic::new(Code::Contradiction, location, message)
                .label(format!("server of pool `{}`", pool.pool.name))
                .related(method, "the forwarding method")
                .fix("use forward = \"proxy\", or the server's address and port"),
        );
    }
}

/// Reports TLS settings and checks that do not work with the Unix sockets of a pool.
pub(super) fn verify_settings(sink: &mut Sink<'_>, pool: &LoweredPool) {
    let without_name = pool
        .pool
        .tls
        .as_ref()
        .is_some_and(|tls| tls.verify && tls.server_name.is_none());
    let first = unix_socket_servers(pool).next();
    if let (true, Some((server, location)), Some(tls)) = (without_name, first, &pool.tls) {
        let message = format!(
            "the certificate of server {} cannot be verified: a Unix socket has no name",
            server.name
        );
        sink.push(
            Diagnostic::new(Code::Contradiction, tls, message)
                .related(location, "the server")
                .fix("add `server_name` to `tls`"),
        );
    }
    for (index, check) in pool.pool.checks.iter().enumerate() {
        let mut servers = unix_socket_servers(pool);
        let server = servers.find(|(server, _)| server.checks.is_none());
        if let (Some((server, _)), Some(location)) = (server, pool.checks.get(index)) {
            verify_check(sink, server, check, location);
        }
    }
    for (server, location) in unix_socket_servers(pool) {
        for check in server.checks.iter().flatten() {
            verify_check(sink, server, check, location);
        }
    }
}

fn unix_socket_servers(pool: &LoweredPool) -> impl Iterator<Item = (&Server, &Range<usize>)> {
    let sorry = pool.pool.sorry.iter().zip(&pool.sorry);
    let all = pool.pool.servers.iter().zip(&pool.servers).chain(sorry);
    all.filter(|(server, _)| server.unix.is_some())
}

fn verify_check(sink: &mut Sink<'_>, server: &Server, check: &Check, location: &Range<usize>) {
    let Some(problem) = check_problem(check) else {
        return;
    };
    let message = format!(
        "this check does not work with server {}: {problem}",
        server.name
    );
    sink.push(
        Diagnostic::new(Code::Contradiction, location, message)
            .cause("the server is a Unix socket, without an address or a port")
            .fix("give the server its own `check`, or add `address` and `port` to the check"),
    );
}

/// Returns why a check does not work with a Unix socket; `None` if the check works, or has its own target address.
fn check_problem(check: &Check) -> Option<String> {
    let (kind, target) = (check.probe.as_str(), &check.target);
    if target.address.is_some() {
        return None;
    }
    match check.probe.medium() {
        Medium::Director(DirectorProbe::File(_)) => return None,
        Medium::Director(DirectorProbe::Script(_)) => {
            return Some(format!("`{kind}` passes an address to its program"));
        }
        Medium::Datagram(_) => return Some(format!("`{kind}` sends packets")),
        Medium::Stream => {}
    }
    let keys = [
        ("port", target.port.is_some()),
        ("source", target.source.is_some()),
        ("interface", target.interface.is_some()),
    ];
    if let Some((key, _)) = keys.into_iter().find(|(_, is_set)| *is_set) {
        return Some(format!("`{key}` is set"));
    }
    let without_name = target
        .tls
        .as_ref()
        .is_some_and(|tls| tls.verify && tls.server_name.is_none());
    without_name.then(|| "its certificate is verified without `server_name`".to_owned())
}
