//! `[vrrp.NAME]`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use weir_model::{Network, Notify, Track, TrackObject, TrackScript, VirtualRouter};

use crate::address;
use crate::catalog::{VRRP, VRRP_TRACK};
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Entry, Item, Table, Value};
use crate::view::{Sink, View, text, wrong_type};

/// The longest interval of version 3: 12 bits of centiseconds.
const INTERVAL_MAX_V3: Duration = Duration::from_millis(40_950);

type Entries<'a, 't> = [(&'a Entry<'t>, &'a Table<'t>)];

/// Lowers all virtual routers, and compares them.
pub(super) fn routers(sink: &mut Sink<'_>, tables: &Entries<'_, '_>) -> Vec<VirtualRouter> {
    let mut routers = Vec::new();
    let mut addresses: HashMap<IpAddr, Range<usize>> = HashMap::new();
    let mut ids: HashMap<(Option<String>, u8, bool), Range<usize>> = HashMap::new();
    for (entry, table) in tables {
        let view = View::open(sink, &VRRP, table, &entry.key_span);
        let (router, spans) = router(sink, &view, entry);
        for (network, span) in router.managed().zip(&spans) {
            if let Some(first) = addresses.get(&network.address) {
                let message = format!("{} belongs to two virtual routers", network.address);
                sink.push(
                    Diagnostic::new(Code::DuplicateEntry, span, message)
                        .also(first, "the other one")
                        .fix("remove it from one of them"),
                );
            } else {
                addresses.insert(network.address, span.clone());
            }
        }
        if let (Some((id, _)), Some(first)) =
            (view.get("virtual_router_id"), router.addresses.first())
        {
            let key = (
                router.interface.clone(),
                router.router_id,
                first.address.is_ipv4(),
            );
            let span = id.item.span.clone();
            if let Some(other) = ids.get(&key) {
                let message = format!(
                    "virtual router ID {} is used twice on one interface",
                    router.router_id
                );
                sink.push(
                    Diagnostic::new(Code::DuplicateEntry, &span, message)
                        .also(other, "the other one")
                        .fix("use another ID"),
                );
            } else {
                ids.insert(key, span);
            }
        }
        routers.push(router);
    }
    routers
}

/// A virtual router and the positions of its addresses.
fn router(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    entry: &Entry<'_>,
) -> (VirtualRouter, Vec<Range<usize>>) {
    let interface = view
        .text(sink, "interface")
        .and_then(|(name, span)| super::node::interface(sink, name, span))
        .map(str::to_owned);
    let small = |number: Option<u32>, default: u8| {
        number
            .and_then(|it| u8::try_from(it).ok())
            .unwrap_or(default)
    };
    let mut spans = Vec::new();
    let addresses = networks(sink, view, "addresses", &mut spans);
    let listed = spans.clone();
    let excluded_addresses = networks(sink, view, "excluded_addresses", &mut spans);
    let router = VirtualRouter {
        name: entry.key.to_string(),
        interface,
        router_id: small(view.integer(sink, "virtual_router_id"), 1),
        priority: small(view.integer(sink, "priority"), 100),
        version: small(view.integer(sink, "version"), 2),
        advert_interval: view
            .duration(sink, "advert_interval")
            .unwrap_or(Duration::from_secs(1)),
        addresses,
        excluded_addresses,
        preempt: view.flag(sink, "preempt").unwrap_or(true),
        preempt_delay: view.duration(sink, "preempt_delay").unwrap_or_default(),
        source: source(sink, view),
        peers: peers(sink, view),
        group: view
            .text(sink, "group")
            .and_then(|(name, span)| line(sink, name, span)),
        track: tracks(sink, view),
        notify: Notify {
            all: command(sink, view, "notify"),
            active: command(sink, view, "notify_master"),
            backup: command(sink, view, "notify_backup"),
            fault: command(sink, view, "notify_fault"),
            stop: command(sink, view, "notify_stop"),
        },
    };
    verify(sink, view, entry, &router, &listed);
    (router, spans)
}

fn verify(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    entry: &Entry<'_>,
    router: &VirtualRouter,
    listed: &[Range<usize>],
) {
    let span = |name: &str| {
        view.get(name).map_or_else(
            || entry.key_span.clone(),
            |(entry, _)| entry.item.span.clone(),
        )
    };
    if view.flag(sink, "accept") == Some(false) {
        let message = "`accept = false` is not implemented yet";
        let fix = "remove it: Weir accepts packets to the addresses while it is active";
        sink.push(Diagnostic::new(Code::NotBuilt, &span("accept"), message).fix(fix));
    }
    if view.get("interface").is_none() && view.get("source").is_none() {
        let message = "`interface` and `source` are missing";
        let fix = "add `interface = \"eth0\"`";
        sink.push(Diagnostic::new(Code::MissingKey, &entry.key_span, message).fix(fix));
    }
    if view.list(sink, "addresses").is_some_and(<[_]>::is_empty) {
        let message = "`addresses` is empty";
        let fix = "add `addresses = [\"192.0.2.10/24\"]`";
        sink.push(Diagnostic::new(Code::EmptyList, &span("addresses"), message).fix(fix));
    }
    let Some(first) = router.addresses.first() else {
        return;
    };
    let v4 = first.address.is_ipv4();
    for (network, span) in router.addresses.iter().zip(listed) {
        if network.address.is_ipv4() != v4 {
            let message = "`addresses` contains IPv4 and IPv6 addresses";
            let fix = "use one virtual router for each family, or `excluded_addresses`";
            sink.push(Diagnostic::new(Code::Contradiction, span, message).fix(fix));
            break;
        }
    }
    let others = router.source.iter().chain(&router.peers);
    if others.into_iter().any(|address| address.is_ipv4() != v4) {
        let key = if router.source.is_some_and(|it| it.is_ipv4() != v4) {
            "source"
        } else {
            "unicast_peers"
        };
        let message = format!("`{key}` is of another family than `addresses`");
        sink.push(Diagnostic::new(Code::Contradiction, &span(key), message));
    }
    interval(sink, router, v4, &span("version"), &span("advert_interval"));
    if !router.preempt && router.priority == 255 {
        let message = "the address owner always preempts";
        let fix = "use a priority below 255, or remove `preempt`";
        sink.push(Diagnostic::new(Code::Contradiction, &span("preempt"), message).fix(fix));
    }
}

/// Version, family and interval must fit.
fn interval(
    sink: &mut Sink<'_>,
    router: &VirtualRouter,
    v4: bool,
    version: &Range<usize>,
    interval: &Range<usize>,
) {
    let length = router.advert_interval;
    if router.version == 2 && !v4 {
        let message = "version 2 does not support IPv6";
        sink.push(Diagnostic::new(Code::Contradiction, version, message).fix("write version = 3"));
    } else if router.version == 2 && (length.subsec_nanos() != 0 || length.is_zero()) {
        let message = "version 2 has intervals of whole seconds";
        let fix = "use whole seconds, or version = 3";
        sink.push(Diagnostic::new(Code::Contradiction, interval, message).fix(fix));
    } else if router.version == 3
        && (length > INTERVAL_MAX_V3 || !length.as_millis().is_multiple_of(10))
    {
        let message = "version 3 has intervals from 10 ms to 40.95 s in steps of 10 ms";
        sink.push(Diagnostic::new(Code::Contradiction, interval, message));
    }
}

fn networks(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &str,
    spans: &mut Vec<Range<usize>>,
) -> Vec<Network> {
    let mut networks = Vec::new();
    for item in view.list(sink, key).unwrap_or_default() {
        let Some((text, span)) = text(sink, item, &Kind::Network) else {
            continue;
        };
        match address::network(text) {
            Ok(network) => {
                networks.push(network);
                spans.push(span.clone());
            }
            Err(refusal) => super::refuse(sink, span, refusal),
        }
    }
    networks
}

fn source(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<IpAddr> {
    let (text, span) = view.text(sink, "source")?;
    plain_address(sink, text, span)
}

fn peers(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<IpAddr> {
    let mut peers = Vec::new();
    for item in view.list(sink, "unicast_peers").unwrap_or_default() {
        if let Some((text, span)) = text(sink, item, &Kind::Address) {
            peers.extend(plain_address(sink, text, span));
        }
    }
    peers
}

/// An address without a port.
fn plain_address(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<IpAddr> {
    match address::server(text) {
        Ok((address, None)) => return Some(address),
        Ok((address, Some(_))) => {
            let message = format!("a port is not allowed in `{text}`");
            let fix = format!("write \"{address}\"");
            sink.push(Diagnostic::new(Code::BadAddress, span, message).fix(fix));
        }
        Err(refusal) => super::refuse(sink, span, refusal),
    }
    None
}

/// Program and arguments; empty: none.
fn command(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str) -> Vec<String> {
    let items = view.list(sink, key).unwrap_or_default();
    let words = items.iter().filter_map(|item| {
        let (word, span) = text(sink, item, &Kind::Text)?;
        line(sink, word, span)
    });
    words.collect()
}

fn line(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    if text.is_empty() || text.chars().any(char::is_control) {
        let message = "this string is empty or contains a control character";
        sink.push(Diagnostic::new(Code::BadText, span, message).fix("write it on one line"));
        return None;
    }
    Some(text.to_owned())
}

fn tracks(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<Track> {
    let mut tracks = Vec::new();
    for item in view.list(sink, "track").unwrap_or_default() {
        match &item.value {
            Value::Table(table) => tracks.extend(track(sink, item, table)),
            _ => sink.push(wrong_type(item, &Kind::Table(&VRRP_TRACK))),
        }
    }
    tracks
}

fn track(sink: &mut Sink<'_>, item: &Item<'_>, table: &Table<'_>) -> Option<Track> {
    let view = View::open(sink, &VRRP_TRACK, table, &item.span);
    let interface = view
        .text(sink, "interface")
        .and_then(|(name, span)| super::node::interface(sink, name, span))
        .map(str::to_owned);
    let mut named = |key| {
        let (name, span) = view.text(sink, key)?;
        line(sink, name, span)
    };
    let (process, file) = (named("process"), named("file"));
    let script = script(sink, &view);
    let small = |number: Option<u32>| number.and_then(|it| u8::try_from(it).ok()).unwrap_or(0);
    let (penalty, bonus) = (
        small(view.integer(sink, "penalty")),
        small(view.integer(sink, "bonus")),
    );
    let keys = ["interface", "script", "process", "file"];
    if keys.iter().filter(|key| view.get(key).is_some()).count() != 1 {
        let message = "each entry of `track` must have exactly one object";
        let fix = "use one of `interface`, `script`, `process` and `file`";
        sink.push(Diagnostic::new(Code::Contradiction, &item.span, message).fix(fix));
        return None;
    }
    let object = interface
        .map(TrackObject::Interface)
        .or(process.map(TrackObject::Process))
        .or(file.map(TrackObject::File))
        .or(script.map(TrackObject::Script))?;
    Some(Track {
        object,
        penalty,
        bonus,
    })
}

fn script(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<TrackScript> {
    let command = command(sink, view, "script");
    let interval = view
        .duration(sink, "interval")
        .unwrap_or(Duration::from_secs(1));
    let script = TrackScript {
        command,
        interval,
        timeout: view.duration(sink, "timeout").unwrap_or(interval),
        rise: view.integer(sink, "rise").unwrap_or(1),
        fall: view.integer(sink, "fall").unwrap_or(1),
        user: view
            .text(sink, "user")
            .and_then(|(name, span)| line(sink, name, span))
            .unwrap_or_else(|| super::SCRIPT_USER.to_owned()),
    };
    (!script.command.is_empty()).then_some(script)
}
