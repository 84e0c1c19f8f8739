//! Lowers `[check.NAME]`, and `check` of pools and servers.

mod probe;

pub(super) use probe::status;

pub(super) use probe::{check_absolute, command};

use std::cell::Cell;
use std::net::IpAddr;
use std::ops::Range;

use weir_model::{Check, OnFailure, ProbeTarget, ProxyHeader, Start, Timing, Via};

use super::{node, report_error};
use crate::address;
use crate::catalog::{CHECK, CheckKind};
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::{Kind, quoted_list};
use crate::spelling::header;
use crate::suggest::nearest;
use crate::tree::{Entry, Item, Table, Value};
use crate::view::{Sink, View, wrong_type};

/// A `[check.NAME]`; `check` is `None` if the table contains a reported error.
pub(crate) struct SharedCheck {
    pub(crate) name: String,
    pub(crate) location: Range<usize>,
    pub(crate) check: Option<Check>,
    /// Whether a pool or a server refers to it.
    pub(crate) used: Cell<bool>,
}

/// A check and its position.
pub(crate) type LocatedCheck = (Check, Range<usize>);

/// Lowers `[check.NAME]`.
pub(super) fn shared(sink: &mut Sink<'_>, entry: &Entry<'_>, table: &Table<'_>) -> SharedCheck {
    SharedCheck {
        name: entry.key.as_ref().to_owned(),
        location: entry.key_span.clone(),
        check: check(sink, table, &entry.key_span),
        used: Cell::new(false),
    }
}

/// Lowers the `check` of a pool or a server; `None` if it contains a reported error.
pub(super) fn checks(
    sink: &mut Sink<'_>,
    shared: &[SharedCheck],
    entry: &Entry<'_>,
    kind: &Kind,
) -> Option<Vec<LocatedCheck>> {
    let lower_item =
        |sink: &mut Sink<'_>, item: &Item<'_>, location: &Range<usize>| match &item.value {
            Value::Text(name) => Some((
                find_shared(sink, shared, name, &item.span)?,
                item.span.clone(),
            )),
            Value::Table(table) => Some((check(sink, table, location)?, location.clone())),
            _ => {
                sink.push(wrong_type(item, kind));
                None
            }
        };
    match &entry.item.value {
        Value::List(items) => {
            let checks: Vec<Option<LocatedCheck>> = items
                .iter()
                .map(|item| lower_item(sink, item, &item.span))
                .collect();
            checks.into_iter().collect()
        }
        _ => lower_item(sink, &entry.item, &entry.key_span).map(|check| vec![check]),
    }
}

fn find_shared(
    sink: &mut Sink<'_>,
    shared: &[SharedCheck],
    name: &str,
    span: &Range<usize>,
) -> Option<Check> {
    if let Some(shared_check) = shared.iter().find(|check| check.name == name) {
        shared_check.used.set(true);
        return shared_check.check.clone();
    }
    let message = format!("check `{name}` does not exist");
    let diagnostic = Diagnostic::new(Code::DanglingCheck, span, message);
    let names = shared.iter().map(|check| check.name.as_str());
    let closest = nearest(name, names);
    let closest = closest.and_then(|closest| shared.iter().find(|check| check.name == closest));
    sink.push(match closest {
        Some(closest) => diagnostic
            .related(&closest.location, "similar name")
            .fix(format!("did you mean `{}`?", closest.name)),
        None => {
            let header = header(&["check", name]);
            let table = match CheckKind::from_name(name) {
                Some(_) => format!("write {{ kind = \"{name}\" }}"),
                None => "write { kind = \"…\" }".to_owned(),
            };
            diagnostic.fix(format!("add {header}, or {table} here"))
        }
    });
    None
}

fn check(sink: &mut Sink<'_>, table: &Table<'_>, location: &Range<usize>) -> Option<Check> {
    let errors_before = sink.errors();
    let view = View::open(sink, &CHECK, table, location);
    let kind = match view.get("kind") {
        Some((entry, key_kind)) => {
            CheckKind::from_name(crate::view::keyword(sink, &entry.item, key_kind)?)?
        }
        None => CheckKind::Tcp,
    };
    report_keys_of_other_kinds(sink, &view, kind);
    report_missing_keys(sink, &view, kind, location);
    let probe = probe::probe(sink, &view, kind);
    let check = Check {
        probe,
        target: ProbeTarget {
            tls: probe::tls(sink, &view, kind),
            ..target(sink, &view)
        },
        timing: timing(sink, &view),
        start: view
            .choice(sink, "start", &Start::ALL, Start::as_str)
            .unwrap_or_default(),
        on_failure: view
            .choice(sink, "on_failure", &OnFailure::ALL, OnFailure::as_str)
            .unwrap_or_default(),
    };
    (sink.errors() == errors_before).then_some(check)
}

/// Reports keys that are not valid for the kind.
fn report_keys_of_other_kinds(sink: &mut Sink<'_>, view: &View<'_, '_>, kind: CheckKind) {
    for key in CHECK.keys.iter().map(|key| key.name) {
        if kind.allows(key) || !CheckKind::is_kind_specific(key) {
            continue;
        }
        if let Some((entry, _)) = view.get(key) {
            let message = format!("`{key}` is not valid for `{}` checks", kind.as_str());
            let mut diagnostic = Diagnostic::new(Code::Contradiction, &entry.key_span, message);
            if let Some((kind, _)) = view.get("kind") {
                diagnostic = diagnostic.related(&kind.item.span, "the kind of check");
            }
            let kinds = CheckKind::ALL.into_iter().filter(|kind| kind.allows(key));
            let kinds: Vec<&str> = kinds.map(CheckKind::as_str).collect();
            sink.push(diagnostic.fix(format!(
                "remove it, or write kind = {}",
                quoted_list(&kinds)
            )));
        }
    }
}

/// Reports missing keys that the kind requires.
fn report_missing_keys(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    kind: CheckKind,
    location: &Range<usize>,
) {
    for key in kind.required_keys() {
        if view.get(key).is_none() {
            let message = format!("a `{}` check requires `{key}`", kind.as_str());
            let example = CHECK.key(key).map_or("", |key| key.example);
            sink.push(
                Diagnostic::new(Code::MissingKey, location, message)
                    .fix(format!("add it, for example `{example}`")),
            );
        }
    }
}

fn timing(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Timing {
    let default = Timing::default();
    Timing {
        interval: view.duration(sink, "interval").unwrap_or(default.interval),
        interval_falling: view.duration(sink, "interval_falling"),
        interval_down: view.duration(sink, "interval_down"),
        interval_rising: view.duration(sink, "interval_rising"),
        timeout: view.duration(sink, "timeout").unwrap_or(default.timeout),
        rise: view.integer(sink, "rise").unwrap_or(default.rise),
        fall: view.integer(sink, "fall").unwrap_or(default.fall),
    }
}

fn target(sink: &mut Sink<'_>, view: &View<'_, '_>) -> ProbeTarget {
    let target = ProbeTarget {
        address: plain_address(sink, view, "address"),
        port: view
            .integer(sink, "port")
            .and_then(|port| u16::try_from(port).ok()),
        source: plain_address(sink, view, "source"),
        interface: view
            .text(sink, "interface")
            .and_then(|(name, span)| node::interface(sink, name, span))
            .map(str::to_owned),
        proxy_protocol: view.choice(
            sink,
            "proxy_protocol",
            &ProxyHeader::ALL,
            ProxyHeader::as_str,
        ),
        via: view
            .choice(sink, "via", &Via::ALL, Via::as_str)
            .unwrap_or_default(),
        tls: None,
    };
    if let (Some((address, _)), true) = (view.get("address"), target.via.uses_forwarding_path())
        && let Some((via, _)) = view.get("via")
    {
        let message = "probes that take the forwarding path are sent to the VIP, not to `address`";
        sink.push(
            Diagnostic::new(Code::Contradiction, &address.key_span, message)
                .related(&via.item.span, "the probe path")
                .fix("remove one of them, or define two checks"),
        );
    }
    if let (Some(address), Some(source)) = (target.address, target.source)
        && address.is_ipv4() != source.is_ipv4()
        && let Some((entry, _)) = view.get("source")
    {
        let message =
            format!("source {source} and address {address} have different address families");
        let diagnostic = Diagnostic::new(Code::Contradiction, &entry.item.span, message);
        sink.push(diagnostic.fix("use addresses of the same family"));
    }
    target
}

fn plain_address(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) -> Option<IpAddr> {
    let (text, span) = view.text(sink, name)?;
    match address::parse_server(text) {
        Ok((address, None)) => Some(address),
        Ok((address, Some(port))) => {
            let message = format!("a port is not allowed in `{text}`");
            let diagnostic = Diagnostic::new(Code::BadAddress, span, message);
            sink.push(diagnostic.fix(format!("write \"{address}\" here and port = {port}")));
            None
        }
        Err(error) => {
            report_error(sink, span, error);
            None
        }
    }
}
