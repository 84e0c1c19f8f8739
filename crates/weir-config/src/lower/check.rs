//! `[check.NAME]`, and `check` of pools and servers.

use std::cell::Cell;
use std::net::IpAddr;
use std::ops::Range;

use weir_model::{Aim, Check, Http, OnFailure, Probe, ProxyHeader, Start, Timing};

use super::{node, refuse};
use crate::address;
use crate::catalog::{CHECK, EXPECT, OF_KINDS};
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::{Kind, words};
use crate::suggest::nearest;
use crate::tree::{Entry, Item, Table, Value};
use crate::view::{Sink, View, text, wrong_type};

/// A `[check.NAME]`; `None` where it holds an error, which is reported.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) place: Range<usize>,
    check: Option<Check>,
    /// Whether a pool or a server names it.
    pub(crate) used: Cell<bool>,
}

/// A check and where it is written.
pub(crate) type Placed = (Check, Range<usize>);

/// `[check.NAME]`.
pub(super) fn shared(sink: &mut Sink<'_>, entry: &Entry<'_>, table: &Table<'_>) -> Shared {
    Shared {
        name: entry.key.as_ref().to_owned(),
        place: entry.key_span.clone(),
        check: check(sink, table, &entry.key_span),
        used: Cell::new(false),
    }
}

/// `check` of a pool or a server; `None` = something in it is wrong, and reported.
pub(super) fn checks(
    sink: &mut Sink<'_>,
    shared: &[Shared],
    entry: &Entry<'_>,
    kind: &Kind,
) -> Option<Vec<Placed>> {
    let one = |sink: &mut Sink<'_>, item: &Item<'_>, place: &Range<usize>| match &item.value {
        Value::Text(name) => Some((named(sink, shared, name, &item.span)?, item.span.clone())),
        Value::Table(table) => Some((check(sink, table, place)?, place.clone())),
        _ => {
            sink.push(wrong_type(item, kind));
            None
        }
    };
    match &entry.item.value {
        Value::List(items) => {
            let checks: Vec<Option<Placed>> = items
                .iter()
                .map(|item| one(sink, item, &item.span))
                .collect();
            checks.into_iter().collect()
        }
        _ => one(sink, &entry.item, &entry.key_span).map(|check| vec![check]),
    }
}

fn named(sink: &mut Sink<'_>, shared: &[Shared], name: &str, span: &Range<usize>) -> Option<Check> {
    if let Some(found) = shared.iter().find(|check| check.name == name) {
        found.used.set(true);
        return found.check.clone();
    }
    let message = format!("there is no check `{name}`");
    let diagnostic = Diagnostic::new(Code::DanglingCheck, span, message);
    let names = shared.iter().map(|check| check.name.as_str());
    let near = nearest(name, names);
    let near = near.and_then(|near| shared.iter().find(|check| check.name == near));
    sink.push(match near {
        Some(near) => diagnostic
            .also(&near.place, "this one exists")
            .fix(format!("did you mean `{}`?", near.name)),
        None => diagnostic.fix(format!("add [check.{name}], or write a table here")),
    });
    None
}

fn check(sink: &mut Sink<'_>, table: &Table<'_>, place: &Range<usize>) -> Option<Check> {
    let before = sink.errors();
    let view = View::open(sink, &CHECK, table, place);
    let kind = match view.get("kind") {
        Some((entry, of)) => crate::view::word(sink, &entry.item, of)?,
        None => "tcp",
    };
    foreign_keys(sink, &view, kind);
    let probe = match kind {
        "http" => Probe::Http(http(sink, &view)),
        _ => Probe::Tcp,
    };
    let check = Check {
        probe,
        aim: aim(sink, &view),
        timing: timing(sink, &view),
        start: view
            .choice(sink, "start", &Start::ALL, Start::as_str)
            .unwrap_or_default(),
        on_failure: view
            .choice(sink, "on_failure", &OnFailure::ALL, OnFailure::as_str)
            .unwrap_or_default(),
    };
    (sink.errors() == before).then_some(check)
}

/// Keys of other kinds.
fn foreign_keys(sink: &mut Sink<'_>, view: &View<'_, '_>, kind: &str) {
    for (key, kinds) in OF_KINDS {
        if kinds.contains(&kind) {
            continue;
        }
        if let Some((entry, _)) = view.get(key) {
            let message = format!("a `{kind}` check has no `{key}`");
            let mut diagnostic = Diagnostic::new(Code::Contradiction, &entry.key_span, message);
            if let Some((kind, _)) = view.get("kind") {
                diagnostic = diagnostic.also(&kind.item.span, "the kind");
            }
            sink.push(diagnostic.fix(format!("leave it out, or write kind = {}", words(kinds))));
        }
    }
}

fn timing(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Timing {
    let default = Timing::default();
    Timing {
        interval: view.duration(sink, "interval").unwrap_or(default.interval),
        interval_down: view.duration(sink, "interval_down"),
        interval_rising: view.duration(sink, "interval_rising"),
        timeout: view.duration(sink, "timeout").unwrap_or(default.timeout),
        rise: view.integer(sink, "rise").unwrap_or(default.rise),
        fall: view.integer(sink, "fall").unwrap_or(default.fall),
    }
}

fn aim(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Aim {
    let aim = Aim {
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
    };
    if let (Some(address), Some(source)) = (aim.address, aim.source)
        && address.is_ipv4() != source.is_ipv4()
        && let Some((entry, _)) = view.get("source")
    {
        let message = format!("{source} cannot send to {address}");
        let diagnostic = Diagnostic::new(Code::Contradiction, &entry.item.span, message);
        sink.push(diagnostic.fix("write both of one family"));
    }
    aim
}

fn plain_address(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) -> Option<IpAddr> {
    let (text, span) = view.text(sink, name)?;
    match address::server(text) {
        Ok((address, None)) => Some(address),
        Ok((address, Some(port))) => {
            let message = format!("`{text}` has a port");
            let diagnostic = Diagnostic::new(Code::BadAddress, span, message);
            sink.push(diagnostic.fix(format!("write \"{address}\" here, and port = {port}")));
            None
        }
        Err(refusal) => {
            refuse(sink, span, refusal);
            None
        }
    }
}

fn http(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Http {
    let default = Http::default();
    let path = line(sink, view, "path").map(|(path, span)| {
        if !path.starts_with('/') || path.contains(' ') {
            let message = format!("`{path}` is no path");
            let diagnostic = Diagnostic::new(Code::BadText, span, message);
            sink.push(diagnostic.fix("begin it with `/`, and write a space as `%20`"));
        }
        path.to_owned()
    });
    let method = line(sink, view, "method").map(|(method, span)| {
        if method.is_empty() || !method.bytes().all(is_token) {
            let message = format!("`{method}` is no method");
            sink.push(
                Diagnostic::new(Code::BadText, span, message).fix("write GET, HEAD or the like"),
            );
        }
        method.to_owned()
    });
    let zero = view
        .text(sink, "version")
        .is_some_and(|(version, _)| version == "1.0");
    if let Some((entry, kind)) = view.get("version") {
        crate::view::word(sink, &entry.item, kind);
    }
    let mut http = Http {
        method: method.unwrap_or(default.method),
        path: path.unwrap_or(default.path),
        minor_version: u8::from(!zero),
        host: line(sink, view, "host").map(|(host, _)| host.to_owned()),
        headers: headers(sink, view),
        body: view.text(sink, "body").map(|(body, _)| body.to_owned()),
        status: default.status,
        contains: None,
    };
    if let Some((entry, kind)) = view.get("expect") {
        match &entry.item.value {
            Value::Table(table) => expect(sink, table, &entry.key_span, &mut http),
            _ => sink.push(wrong_type(&entry.item, kind)),
        }
    }
    http
}

fn expect(sink: &mut Sink<'_>, table: &Table<'_>, place: &Range<usize>, http: &mut Http) {
    let view = View::open(sink, &EXPECT, table, place);
    if let Some((entry, kind)) = view.get("status") {
        http.status = status(sink, &entry.item, kind).unwrap_or_default();
    }
    http.contains = view.text(sink, "body").map(|(body, _)| body.to_owned());
}

/// `"200-299,304"` or `200`.
fn status(sink: &mut Sink<'_>, item: &Item<'_>, kind: &Kind) -> Option<Vec<(u16, u16)>> {
    let text = match &item.value {
        Value::Text(text) => text.as_ref().to_owned(),
        Value::Integer(Some(code)) => code.to_string(),
        _ => {
            sink.push(wrong_type(item, kind));
            return None;
        }
    };
    let code = |text: &str| {
        let code: u16 = text.trim().parse().ok()?;
        (100..600).contains(&code).then_some(code)
    };
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (code(from)?, code(to)?);
        (from <= to).then_some((from, to))
    };
    let ranges: Option<Vec<(u16, u16)>> = text.split(',').map(range).collect();
    if ranges.is_none() {
        let message = format!("`{text}` holds no status codes");
        let diagnostic = Diagnostic::new(Code::BadText, &item.span, message);
        sink.push(diagnostic.fix("write codes and ranges from 100 to 599, as in \"200-299,304\""));
    }
    ranges
}

fn headers(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for item in view.list(sink, "headers").unwrap_or_default() {
        let Some((field, span)) = text(sink, item, &Kind::Text) else {
            continue;
        };
        match field.split_once(':') {
            Some((name, value))
                if !name.is_empty() && name.bytes().all(is_token) && is_line(value) =>
            {
                headers.push((name.to_owned(), value.trim().to_owned()));
            }
            _ => {
                let message = format!("`{}` is no field", field.escape_debug());
                let diagnostic = Diagnostic::new(Code::BadText, span, message);
                sink.push(diagnostic.fix("write NAME: VALUE on one line"));
            }
        }
    }
    headers
}

/// A text without control characters: it stands in a request.
fn line<'a>(
    sink: &mut Sink<'_>,
    view: &View<'a, '_>,
    name: &str,
) -> Option<(&'a str, &'a Range<usize>)> {
    let (text, span) = view.text(sink, name)?;
    if is_line(text) {
        return Some((text, span));
    }
    let message = format!("`{name}` holds a control character");
    sink.push(Diagnostic::new(Code::BadText, span, message).fix("write it on one line"));
    None
}

fn is_line(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
