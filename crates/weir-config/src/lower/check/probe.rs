//! What a check asks, by its kind.

use std::ops::Range;

use weir_model::{CheckTls, Digest, DnsRecord, Http, Pattern, Probe, Script};

use super::plain_address;
use crate::catalog::EXPECT;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::{Kind, words};
use crate::tree::{Item, Value};
use crate::view::{Sink, View, text, wrong_type};

pub(super) fn probe(sink: &mut Sink<'_>, view: &View<'_, '_>, kind: &str) -> Probe {
    match kind {
        "http" | "https" => Probe::Http(Box::new(http(sink, view))),
        "grpc" => Probe::Grpc {
            service: word(sink, view, "service", ""),
        },
        "smtp" => Probe::Smtp {
            helo: word(sink, view, "helo", "localhost"),
        },
        "redis" => Probe::Redis,
        "mysql" => Probe::Mysql {
            user: word(sink, view, "user", "weir"),
        },
        "postgres" => Probe::Postgres {
            user: word(sink, view, "user", "postgres"),
        },
        "agent" => Probe::Agent {
            send: view.text(sink, "send").map(|(text, _)| text.to_owned()),
        },
        "dns" => dns(sink, view),
        "udp" => udp(sink, view),
        "ping" => Probe::Ping,
        "script" => Probe::Script(script(sink, view)),
        "file" => Probe::File {
            path: file(sink, view),
        },
        _ => Probe::Tcp,
    }
}

fn word(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str, default: &str) -> String {
    let text = line(sink, view, name).map(|(text, _)| text);
    text.unwrap_or(default).to_owned()
}

fn dns(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Probe {
    let query = line(sink, view, "query");
    if let Some((name, span)) = query
        && (name.len() > 253 || name.split('.').any(|label| label.len() > 63))
    {
        let message = format!("`{name}` is no name of DNS");
        let diagnostic = Diagnostic::new(Code::BadText, span, message);
        sink.push(diagnostic.fix("names have up to 253 octets, and 63 between dots"));
    }
    let record = view.choice(sink, "record", &DnsRecord::ALL, DnsRecord::as_str);
    let expect = expect(sink, view, &["answer"]);
    let answer = expect.and_then(|expect| plain_address(sink, &expect, "answer"));
    Probe::Dns {
        name: query.map_or_else(String::new, |(name, _)| name.to_owned()),
        record: record.unwrap_or_default(),
        answer,
    }
}

fn udp(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Probe {
    let payload = octets(sink, view, "payload").unwrap_or_default();
    let payload: Option<Vec<u8>> = payload.into_iter().collect();
    if payload.is_none()
        && let Some((entry, _)) = view.get("payload")
    {
        let message = "what is sent has no wildcards";
        let diagnostic = Diagnostic::new(Code::BadText, &entry.item.span, message);
        sink.push(diagnostic.fix("write every octet, as in \"00 ff 10\""));
    }
    let expect = expect(sink, view, &["bytes"]);
    Probe::Udp {
        payload: payload.unwrap_or_default(),
        bytes: expect.and_then(|expect| octets(sink, &expect, "bytes")),
    }
}

/// `"00 ff xx"`; `None` in place of an octet = any.
fn octets(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) -> Option<Vec<Option<u8>>> {
    let (text, span) = view.text(sink, name)?;
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let octet = |pair: &[char]| match pair {
        ['x' | 'X', 'x' | 'X'] => Some(None),
        [high, low] => {
            let octet = high.to_digit(16)? * 16 + low.to_digit(16)?;
            Some(u8::try_from(octet).ok())
        }
        _ => None,
    };
    let octets: Option<Vec<Option<u8>>> = digits.chunks(2).map(octet).collect();
    if octets.is_none() {
        let message = format!("`{}` holds no octets", text.escape_debug());
        let diagnostic = Diagnostic::new(Code::BadText, span, message);
        sink.push(diagnostic.fix("write pairs of hexadecimal digits, as in \"00 ff 10\""));
    }
    octets
}

fn script(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Script {
    Script {
        command: command(sink, view, "command"),
        user: word(sink, view, "user", "nobody"),
        dynamic: view.flag(sink, "dynamic").unwrap_or(false),
    }
}

/// A program, absolute, and its arguments.
pub(crate) fn command(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) -> Vec<String> {
    if let Some((entry, _)) = view.get(name)
        && matches!(entry.item.value, Value::Text(_))
    {
        return program(sink, &entry.item);
    }
    let mut command = Vec::new();
    for item in view.list(sink, name).unwrap_or_default() {
        let Some((word, span)) = text(sink, item, &Kind::Text) else {
            continue;
        };
        if command.is_empty() {
            absolute(sink, word, span);
        }
        command.push(word.to_owned());
    }
    if let Some((entry, _)) = view.get(name)
        && matches!(&entry.item.value, Value::List(items) if items.is_empty())
    {
        let message = format!("`{name}` is empty");
        let diagnostic = Diagnostic::new(Code::EmptyList, &entry.item.span, message);
        sink.push(diagnostic.fix("name a program, as in [\"/usr/local/bin/check\"]"));
    }
    command
}

/// A program without arguments.
fn program(sink: &mut Sink<'_>, item: &Item<'_>) -> Vec<String> {
    let Some((path, span)) = text(sink, item, &Kind::Text) else {
        return Vec::new();
    };
    if path.contains(char::is_whitespace) {
        let words: Vec<String> = path
            .split_whitespace()
            .map(|it| format!("{it:?}"))
            .collect();
        let message = "a program's arguments are words of their own";
        let diagnostic = Diagnostic::new(Code::WrongType, span, message);
        sink.push(diagnostic.fix(format!("write [{}]", words.join(", "))));
    } else {
        absolute(sink, path, span);
    }
    vec![path.to_owned()]
}

fn file(sink: &mut Sink<'_>, view: &View<'_, '_>) -> String {
    let Some((path, span)) = line(sink, view, "file") else {
        return String::new();
    };
    absolute(sink, path, span);
    path.to_owned()
}

/// How a kind that goes by TLS knows the server; `None` = it goes in the clear.
pub(super) fn tls(sink: &mut Sink<'_>, view: &View<'_, '_>, kind: &str) -> Option<CheckTls> {
    let asked = view.flag(sink, "tls").unwrap_or(false);
    let verify = view.flag(sink, "verify");
    let ca = line(sink, view, "ca").map(|(path, span)| {
        absolute(sink, path, span);
        path.to_owned()
    });
    let name = line(sink, view, "server_name").map(|(name, _)| name.to_owned());
    if kind == "grpc" && !asked {
        for key in ["verify", "ca", "server_name"] {
            if let Some((entry, _)) = view.get(key) {
                let message = format!("`{key}` has no effect: this check does not go by TLS");
                let diagnostic = Diagnostic::new(Code::NoEffect, &entry.key_span, message);
                sink.push(diagnostic.fix("leave it out, or add tls = true"));
            }
        }
        return None;
    }
    if !asked && !matches!(kind, "https" | "tls") {
        return None;
    }
    // Of the request's `Host` the port is no part of a certificate's name.
    let host = view
        .get("host")
        .and_then(|(entry, _)| match &entry.item.value {
            Value::Text(host) => Some(host.split(':').next().unwrap_or_default().to_owned()),
            _ => None,
        });
    Some(CheckTls {
        verify: verify.unwrap_or(true),
        ca,
        server_name: name.or(host),
    })
}

/// Whether a path is one that does not depend on where the daemon was started.
pub(crate) fn absolute(sink: &mut Sink<'_>, path: &str, span: &Range<usize>) {
    if !path.starts_with('/') || path.contains('\0') {
        let message = format!("`{}` is no absolute path", path.escape_debug());
        sink.push(Diagnostic::new(Code::BadText, span, message).fix("begin it with `/`"));
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
        ..default
    };
    if let Some(expect) = expect(
        sink,
        view,
        &["status", "body", "regex", "without", "digest"],
    ) {
        if let Some((entry, kind)) = expect.get("status") {
            http.status = status(sink, &entry.item, kind).unwrap_or_default();
        }
        http.contains = expect.text(sink, "body").map(|(body, _)| body.to_owned());
        http.pattern = pattern(sink, &expect, "regex");
        http.without = pattern(sink, &expect, "without");
        http.digest = digest(sink, &expect);
    }
    http
}

fn pattern(sink: &mut Sink<'_>, expect: &View<'_, '_>, name: &str) -> Option<Pattern> {
    let (text, span) = expect.text(sink, name)?;
    match Pattern::new(text) {
        Ok(pattern) => Some(pattern),
        Err(why) => {
            let message = format!("`{}` is no regular expression", text.escape_debug());
            let diagnostic = Diagnostic::new(Code::BadText, span, message).cause(why);
            sink.push(
                diagnostic.fix("in TOML, write it within '…', so that `\\` stays what it is"),
            );
            None
        }
    }
}

/// Of 32 or 64 hexadecimal digits.
fn digest(sink: &mut Sink<'_>, expect: &View<'_, '_>) -> Option<Digest> {
    let (text, span) = expect.text(sink, "digest")?;
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| u8::try_from(digit.to_digit(16)?).ok())
        .collect();
    let octets = digits.unwrap_or_default();
    let octets: Vec<u8> = octets
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |sum, digit| sum << 4 | digit))
        .collect();
    let found = match text.len() {
        32 => octets.try_into().ok().map(Digest::Md5),
        64 => octets.try_into().ok().map(Digest::Sha256),
        _ => None,
    };
    if found.is_none() {
        let message = format!("`{}` is no digest", text.escape_debug());
        let diagnostic = Diagnostic::new(Code::BadText, span, message);
        sink.push(
            diagnostic
                .fix("write 32 hexadecimal digits of MD5, as md5sum prints them, or 64 of SHA-256"),
        );
    }
    found
}

/// `expect` of a check whose kind has these keys.
fn expect<'a, 't>(sink: &mut Sink<'_>, view: &View<'a, 't>, keys: &[&str]) -> Option<View<'a, 't>> {
    let (entry, kind) = view.get("expect")?;
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return None;
    };
    let opened = View::open(sink, &EXPECT, table, &entry.key_span);
    for entry in &table.entries {
        if EXPECT.key(&entry.key).is_some() && !keys.contains(&entry.key.as_ref()) {
            let message = format!("this kind of check expects no `{}`", entry.key);
            let diagnostic = Diagnostic::new(Code::Contradiction, &entry.key_span, message);
            sink.push(diagnostic.fix(format!("it may expect {}", words(keys))));
        }
    }
    Some(opened)
}

/// `"200-299,304"` or `200`.
pub(in crate::lower) fn status(
    sink: &mut Sink<'_>,
    item: &Item<'_>,
    kind: &Kind,
) -> Option<Vec<(u16, u16)>> {
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
