//! `[pool.NAME]` and its servers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use weir_model::{Forward, Health, NoServer, OnRemove, Pool, ProxyHeader, Require, Server};

use super::check::{Placed, Shared, absolute, checks, command};
use super::discovery::servers_dns;
use super::{LoweredPool, refused, scheduler, sticky, tls, tunnel};
use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Entry, Item, Table, Value};
use crate::view::{Sink, View, wrong_type};

pub(super) fn pool(
    sink: &mut Sink<'_>,
    shared: &[Shared],
    entry: &Entry<'_>,
    table: &Table<'_>,
) -> LoweredPool {
    let view = View::open(sink, &catalog::POOL, table, &entry.key_span);
    let mut pool = Pool::new(entry.key.as_ref());
    pool.source = sink.lines.source(entry.key_span.start);
    pool.scheduler = view
        .get("scheduler")
        .and_then(|(entry, kind)| scheduler::scheduler(sink, entry, kind));
    pool.no_server = view
        .choice(sink, "no_server", &NoServer::ALL, NoServer::as_str)
        .unwrap_or_default();
    pool.on_remove = view
        .choice(sink, "on_remove", &OnRemove::ALL, OnRemove::as_str)
        .unwrap_or_default();
    let tls = tls::pool(sink, &view);
    pool.tls = tls.as_ref().map(|(tls, _)| tls.clone());
    pool.http2 = view.flag(sink, "http2").unwrap_or(false);
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
    let written = view
        .get("check")
        .map(|(entry, kind)| checks(sink, shared, entry, kind));
    let check_is_wrong = matches!(written, Some(None));
    let (checks, places) = written.flatten().unwrap_or_default().into_iter().unzip();
    pool.checks = checks;
    let mut lowered = LoweredPool {
        pool,
        name: entry.key_span.clone(),
        servers: Vec::new(),
        sorry: None,
        complete: true,
        tls: tls.map(|(_, place)| place),
        http2: view.get("http2").map(|(entry, _)| entry.key_span.clone()),
        checks: places,
        check_is_wrong,
        slow_start: view
            .get("slow_start")
            .map(|(entry, _)| entry.item.span.clone()),
    };
    servers(sink, &view, shared, &mut lowered);
    others_lists(sink, &view, &mut lowered);
    if let Some((entry, kind)) = view.get("sorry") {
        match server(sink, shared, &entry.item, kind) {
            Some((server, span)) => {
                also_listed(sink, &lowered, &server, &span);
                (lowered.pool.sorry, lowered.sorry) = (Some(server), Some(span));
            }
            None => lowered.complete = false,
        }
    }
    lowered
}

/// Lists of servers that somebody else keeps: what they say is not known here.
fn others_lists(sink: &mut Sink<'_>, view: &View<'_, '_>, lowered: &mut LoweredPool) {
    if let Some((path, span)) = view.text(sink, "servers_file") {
        absolute(sink, path, span);
        lowered.pool.servers_file = Some(path.to_owned());
        lowered.complete = false;
    }
    if view.get("servers_dns").is_some() {
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
        notify: command(sink, view, "notify"),
    }
}

fn servers(sink: &mut Sink<'_>, view: &View<'_, '_>, shared: &[Shared], lowered: &mut LoweredPool) {
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
        match first.get(&(server.address, server.port)) {
            Some(before) => sink.push(
                Diagnostic::new(
                    Code::DuplicateEntry,
                    &span,
                    format!("server {} is listed twice", server.name),
                )
                .label("again here")
                .also(&lowered.servers[*before], "first here")
                .fix("take one of them out; a larger share is a larger weight")
                .class(format!("listed twice in {}", lowered.pool.name)),
            ),
            None => {
                first.insert((server.address, server.port), lowered.servers.len());
                lowered.pool.servers.push(server);
                lowered.servers.push(span);
            }
        }
    }
}

/// A sorry server that is one of the others would stand in for itself.
fn also_listed(sink: &mut Sink<'_>, lowered: &LoweredPool, sorry: &Server, span: &Range<usize>) {
    let same = |server: &Server| (server.address, server.port) == (sorry.address, sorry.port);
    let Some(at) = lowered.pool.servers.iter().position(same) else {
        return;
    };
    let message = format!(
        "the sorry server {} is one of the pool's servers",
        sorry.name
    );
    sink.push(
        Diagnostic::new(Code::DuplicateEntry, span, message)
            .label("again here")
            .also(&lowered.servers[at], "first here")
            .fix("name another machine, or take one of them out"),
    );
}

/// A server and where its address is written.
fn server(
    sink: &mut Sink<'_>,
    shared: &[Shared],
    item: &Item<'_>,
    kind: &Kind,
) -> Option<(Server, Range<usize>)> {
    match &item.value {
        Value::Text(text) => Some((addressed(sink, text, &item.span)?, item.span.clone())),
        Value::Table(table) => {
            let before = sink.pushed();
            let view = View::open(sink, &catalog::SERVER, table, &item.span);
            let address = view.text(sink, "address");
            let server =
                address.and_then(|(text, span)| Some((addressed(sink, text, span)?, span.clone())));
            let weight = view.integer(sink, "weight");
            let backup = view.flag(sink, "backup").unwrap_or(false);
            let (most, least) = thresholds(sink, &view);
            let forward = view.choice(sink, "forward", &Forward::ALL, Forward::as_str);
            let tunnel = view
                .get("tunnel")
                .and_then(|(entry, kind)| tunnel(sink, entry, kind));
            let own = view
                .get("check")
                .map(|(entry, kind)| checks(sink, shared, entry, kind));
            let checks = own.flatten().map(|checks: Vec<Placed>| {
                let checks = checks.into_iter();
                checks.map(|(check, _)| check).collect()
            });
            let (server, span) = server?;
            // With a wrong value in it, what the other places say of this server would be guesswork.
            (sink.pushed() == before && !sink.is_full()).then(|| {
                (
                    Server {
                        weight: weight.unwrap_or(server.weight),
                        max_connections: most,
                        min_connections: least,
                        backup,
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

/// Upper and lower threshold; the lower above the upper is refused, as by the kernel.
fn thresholds(sink: &mut Sink<'_>, view: &View<'_, '_>) -> (u32, u32) {
    let mut number = |name: &'static str| view.integer(sink, name).unwrap_or(0);
    let (most, least) = (number("max_connections"), number("min_connections"));
    if least > most
        && let Some((entry, _)) = view.get("min_connections")
    {
        let diagnostic = Diagnostic::new(
            Code::Contradiction,
            &entry.item.span,
            "`min_connections` is above `max_connections`",
        )
        .cause("a server that is full opens again below `min_connections`");
        sink.push(match view.get("max_connections") {
            Some((upper, _)) => diagnostic
                .also(&upper.item.span, "the upper threshold")
                .fix(format!("write {most} or less")),
            None => diagnostic.fix("add `max_connections`, or leave `min_connections` out"),
        });
    }
    (most, least)
}

fn addressed(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<Server> {
    match address::server(text) {
        Ok((address, port)) => {
            let source = sink.lines.source(span.start);
            Some(Server {
                source,
                ..Server::new(text, address, port)
            })
        }
        Err(mut refusal) => {
            refusal.fix = looked_up(text).or(refusal.fix);
            // What it quotes is another server's each time.
            let fix = refusal.fix.as_deref().unwrap_or("");
            let class = unquoted(&refusal.message) + &unquoted(fix);
            sink.push(refused(span, refusal).class(class));
            None
        }
    }
}

/// For a server's name: the key that looks names up.
fn looked_up(text: &str) -> Option<String> {
    let (name, port) = address::server_name(text)?;
    let port = port.map_or_else(String::new, |port| format!(", port = {port}"));
    let key = format!("servers_dns = {{ name = \"{name}\"{port} }}");
    Some(format!(
        "write the address, or in place of `servers` the name as `{key}`, which looks it up"
    ))
}

/// A text without what it has between backquotes.
fn unquoted(text: &str) -> String {
    text.split('`').step_by(2).collect()
}
