//! Lowers `[pool.NAME]` and its servers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use weir_model::unix_socket;
use weir_model::{
    Adapt, Forward, Health, NoServer, OnRemove, Part, Pool, ProxyHeader, Require, Server, Template,
};

use super::check::{LocatedCheck, SharedCheck, check_absolute, checks, command};
use super::discovery::servers_dns;
use super::variable::{Scope, template};
use super::{LoweredPool, error_diagnostic, scheduler, sticky, tls, tunnel};
use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Entry, Item, Table, Value};
use crate::view::{Sink, View, wrong_type};

pub(super) fn pool(
    sink: &mut Sink<'_>,
    shared: &[SharedCheck],
    entry: &Entry<'_>,
    table: &Table<'_>,
) -> LoweredPool {
    let view = View::open(sink, &catalog::POOL, table, &entry.key_span);
    let mut pool = Pool::new(entry.key.as_ref());
    pool.source = sink.lines.source(entry.key_span.start);
    pool.scheduler = view
        .get("scheduler")
        .and_then(|(entry, kind)| scheduler::scheduler(sink, entry, kind));
    pool.adapt = view
        .choice(sink, "adapt", &Adapt::ALL, Adapt::as_str)
        .unwrap_or_default();
    pool.no_server = view
        .choice(sink, "no_server", &NoServer::ALL, NoServer::as_str)
        .unwrap_or_default();
    pool.on_remove = view
        .choice(sink, "on_remove", &OnRemove::ALL, OnRemove::as_str)
        .unwrap_or_default();
    let tls = tls::pool(sink, &view);
    pool.tls = tls.as_ref().map(|(tls, _)| tls.clone());
    pool.http2 = view.flag(sink, "http2").unwrap_or(false);
    pool.host = host(sink, &view);
    pool.health = health(sink, &view);
    if let Some((entry, _)) = view.get("scheduler") {
        pool.hash_key = scheduler::key(sink, entry);
    }
    pool.queue_timeout = view
        .duration(sink, "queue_timeout")
        .unwrap_or(Pool::QUEUE_TIMEOUT);
    pool.sticky = sticky::sticky(sink, &view);
    pool.proxy_protocol = view.choice(
        sink,
        "proxy_protocol",
        &ProxyHeader::ALL,
        ProxyHeader::as_str,
    );
    let result = view
        .get("check")
        .map(|(entry, kind)| checks(sink, shared, entry, kind));
    let has_invalid_check = matches!(result, Some(None));
    let (checks, locations) = result.flatten().unwrap_or_default().into_iter().unzip();
    pool.checks = checks;
    let span = |name| view.get(name).map(|(entry, _)| entry.item.span.clone());
    let mut lowered = LoweredPool {
        pool,
        name: entry.key_span.clone(),
        servers: Vec::new(),
        sorry: None,
        complete: true,
        tls: tls.map(|(_, location)| location),
        http2: view.get("http2").map(|(entry, _)| entry.key_span.clone()),
        checks: locations,
        has_invalid_check,
        adapt: span("adapt"),
        scheduler: span("scheduler"),
        slow_start: span("slow_start"),
        servers_dns: None,
        servers_file: None,
        max_connections: None,
    };
    servers(sink, &view, shared, &mut lowered);
    external_lists(sink, &view, &mut lowered);
    if let Some((entry, kind)) = view.get("sorry") {
        match server(sink, shared, &entry.item, kind) {
            Some((server, span)) => {
                report_listed_sorry_server(sink, &lowered, &server, &span);
                (lowered.pool.sorry, lowered.sorry) = (Some(server), Some(span));
            }
            None => lowered.complete = false,
        }
    }
    lowered
}

/// Returns the value of `Host` to send to the servers.
fn host(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Template> {
    let (text, span) = view.text(sink, "host")?;
    let scope = Scope {
        server: false,
        route: None,
        regex: None,
    };
    let host = template(sink, text, span, scope)?;
    let is_valid = |part: &Part| match part {
        Part::Text(text) => text.bytes().all(Pool::may_be_in_host_text),
        Part::Variable(_) => true,
    };
    if text.is_empty() || text.len() > Pool::MAX_HOST_BYTES || !host.parts().iter().all(is_valid) {
        let message = format!("invalid host `{}`", text.escape_debug());
        sink.push(
            Diagnostic::new(Code::BadName, span, message)
                .fix("write a host name, or NAME:PORT; NAME may be `{host}`, the requested host"),
        );
        return None;
    }
    Some(host)
}

/// Lowers the keys for external server lists. The content of these lists is not part of the configuration.
fn external_lists(sink: &mut Sink<'_>, view: &View<'_, '_>, lowered: &mut LoweredPool) {
    if let Some((path, span)) = view.text(sink, "servers_file") {
        check_absolute(sink, path, span);
        lowered.pool.servers_file = Some(path.to_owned());
        lowered.servers_file = Some(span.clone());
        lowered.complete = false;
    }
    if let Some((entry, _)) = view.get("servers_dns") {
        lowered.servers_dns = Some(entry.key_span.clone());
        lowered.pool.servers_dns = servers_dns(sink, view);
        lowered.complete = false;
    }
}

fn health(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Health {
    Health {
        require: view
            .choice(sink, "require", &Require::ALL, Require::as_str)
            .unwrap_or_default(),
        slow_start: view.duration(sink, "slow_start").unwrap_or_default(),
        quorum: view.integer(sink, "quorum").unwrap_or(0),
        quorum_hysteresis: view.integer(sink, "quorum_hysteresis").unwrap_or(0),
        panic_threshold: view.integer(sink, "panic_threshold"),
        max_ejected: view
            .integer(sink, "max_ejected")
            .unwrap_or(Health::DEFAULT_MAX_EJECTED),
        max_latency: view.duration(sink, "max_latency"),
        notify: command(sink, view, "notify"),
    }
}

fn servers(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    shared: &[SharedCheck],
    lowered: &mut LoweredPool,
) {
    let Some((_, Kind::List(kind))) = view.get("servers") else {
        return;
    };
    let Some(items) = view.list(sink, "servers") else {
        lowered.complete = false;
        return;
    };
    let mut first: HashMap<(IpAddr, Option<u16>), usize> = HashMap::new();
    for item in items {
        let Some((server, span)) = server(sink, shared, item, kind) else {
            lowered.complete = false;
            continue;
        };
        if server.cookie.is_some() && lowered.pool.sticky.is_none() {
            sink.push(sticky::cookie_without_sticky(&span));
        }
        match first.get(&(server.address, server.port)) {
            Some(index) => sink.push(
                Diagnostic::new(
                    Code::DuplicateEntry,
                    &span,
                    format!("server {} is listed twice", server.name),
                )
                .label("duplicate")
                .related(&lowered.servers[*index], "first here")
                .fix("remove one of them; for a larger share, increase the weight of the remaining entry")
                .merge_group(format!("listed twice in {}", lowered.pool.name)),
            ),
            None => {
                first.insert((server.address, server.port), lowered.servers.len());
                if server.max_connections > 0 && lowered.max_connections.is_none() {
                    let location = key_span(item, "max_connections").unwrap_or(&span);
                    lowered.max_connections = Some((location.clone(), server.name.clone()));
                }
                lowered.pool.servers.push(server);
                lowered.servers.push(span);
            }
        }
    }
}

/// Returns the position of a key in a server's table.
fn key_span<'i>(item: &'i Item<'_>, key: &str) -> Option<&'i Range<usize>> {
    let Value::Table(table) = &item.value else {
        return None;
    };
    let mut entries = table.entries.iter();
    Some(&entries.find(|entry| entry.key == key)?.key_span)
}

/// Reports a sorry server that is also one of the pool's servers.
fn report_listed_sorry_server(
    sink: &mut Sink<'_>,
    lowered: &LoweredPool,
    sorry: &Server,
    span: &Range<usize>,
) {
    let is_sorry = |server: &Server| (server.address, server.port) == (sorry.address, sorry.port);
    let Some(index) = lowered.pool.servers.iter().position(is_sorry) else {
        return;
    };
    let message = format!(
        "the sorry server {} is one of the pool's servers",
        sorry.name
    );
    sink.push(
        Diagnostic::new(Code::DuplicateEntry, span, message)
            .label("duplicate")
            .related(&lowered.servers[index], "first here")
            .fix("use a different server as `sorry`, or remove it from `servers`"),
    );
}

/// Returns a server and the position of its address.
fn server(
    sink: &mut Sink<'_>,
    shared: &[SharedCheck],
    item: &Item<'_>,
    kind: &Kind,
) -> Option<(Server, Range<usize>)> {
    match &item.value {
        Value::Text(text) => Some((parse_server(sink, text, &item.span)?, item.span.clone())),
        Value::Table(table) => {
            let errors_before = sink.errors();
            let view = View::open(sink, &catalog::SERVER, table, &item.span);
            let address = view.text(sink, "address");
            let server = address
                .and_then(|(text, span)| Some((parse_server(sink, text, span)?, span.clone())));
            let weight = view.integer(sink, "weight");
            let backup = view.flag(sink, "backup").unwrap_or(false);
            let cookie = sticky::cookie_value(sink, &view);
            let (max_connections, min_connections) = thresholds(sink, &view);
            let forward = view.choice(sink, "forward", &Forward::ALL, Forward::as_str);
            let tunnel = view
                .get("tunnel")
                .and_then(|(entry, kind)| tunnel(sink, entry, kind));
            let checks = view
                .get("check")
                .map(|(entry, kind)| checks(sink, shared, entry, kind));
            let checks = checks.flatten().map(|checks: Vec<LocatedCheck>| {
                let checks = checks.into_iter();
                checks.map(|(check, _)| check).collect()
            });
            let (server, span) = server?;
            // Omit a server with an invalid value, which would cause misleading diagnostics elsewhere.
            (sink.errors() == errors_before && !sink.is_full()).then(|| {
                (
                    Server {
                        weight: weight.unwrap_or(server.weight),
                        max_connections,
                        min_connections,
                        backup,
                        cookie,
                        forward,
                        tunnel,
                        checks,
                        ..server
                    },
                    span,
                )
            })
        }
        _ => {
            sink.push(wrong_type(item, kind));
            None
        }
    }
}

/// Returns the upper and the lower threshold. As in the kernel, the lower threshold must not exceed the upper one.
fn thresholds(sink: &mut Sink<'_>, view: &View<'_, '_>) -> (u32, u32) {
    let mut number = |name: &'static str| view.integer(sink, name).unwrap_or(0);
    let (max_connections, min_connections) = (number("max_connections"), number("min_connections"));
    if min_connections > max_connections
        && let Some((entry, _)) = view.get("min_connections")
    {
        let diagnostic = Diagnostic::new(
            Code::Contradiction,
            &entry.item.span,
            "`min_connections` exceeds `max_connections`",
        )
        .cause("a server at its limit receives new flows again below `min_connections`");
        sink.push(match view.get("max_connections") {
            Some((upper, _)) => diagnostic
                .related(&upper.item.span, "the upper threshold")
                .fix(format!("write {max_connections} or less")),
            None => diagnostic.fix("add `max_connections`, or remove `min_connections`"),
        });
    }
    (max_connections, min_connections)
}

fn parse_server(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<Server> {
    if let Some(path) = text.strip_prefix(unix_socket::PREFIX) {
        return unix_server(sink, path, span);
    }
    match address::parse_server(text) {
        Ok((address, port)) => {
            note_possible_port(sink, text, span);
            let source = sink.lines.source(span.start);
            Some(Server {
                source,
                ..Server::new(text, address, port)
            })
        }
        Err(mut error) => {
            error.fix = suggest_servers_dns(text).or(error.fix);
            // Each message quotes a different server, so the merge group contains no quoted text.
            let fix = error.fix.as_deref().unwrap_or("");
            let group = remove_quoted_parts(&error.message) + &remove_quoted_parts(fix);
            sink.push(error_diagnostic(span, error).merge_group(group));
            None
        }
    }
}

/// Adds a note if the last group of an IPv6 address without brackets may be meant as a port. A single digit is more
/// likely to be a part of the address.
fn note_possible_port(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) {
    let intended = address::address_and_port(text).filter(|it| it.port() > 9);
    if let Some(intended) = intended {
        let message = format!("`{text}` is an address without a port");
        let fix =
            format!("write \"{intended}\" if the last number is the port, otherwise \"[{text}]\"");
        let note = Diagnostic::new(Code::PossiblePort, span, message).fix(fix);
        // Each message quotes a different server.
        sink.push(note.merge_group(""));
    }
}

fn unix_server(sink: &mut Sink<'_>, path: &str, span: &Range<usize>) -> Option<Server> {
    if let Some(problem) = unix_socket::path_problem(path) {
        let text = path.escape_debug();
        let message = format!("`unix:{text}` is not a Unix socket: {problem}");
        sink.push(
            Diagnostic::new(Code::BadAddress, span, message)
                .fix("write an absolute path, as in \"unix:/run/app/app.sock\""),
        );
        return None;
    }
    Some(Server {
        source: sink.lines.source(span.start),
        ..Server::on_unix_socket(path)
    })
}

/// Returns the fix for a host name, which suggests `servers_dns`.
fn suggest_servers_dns(text: &str) -> Option<String> {
    let (name, port) = address::server_name(text)?;
    let port = port.map_or_else(String::new, |port| format!(", port = {port}"));
    let key = format!("servers_dns = {{ name = \"{name}\"{port} }}");
    Some(format!(
        "write the IP address, or replace `servers` with `{key}` to resolve the name"
    ))
}

/// Removes the parts between backquotes.
fn remove_quoted_parts(text: &str) -> String {
    text.split('`').step_by(2).collect()
}
