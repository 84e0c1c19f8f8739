//! Lowers the probes of checks, by kind.

use std::ops::Range;

use weir_model::{
    CheckAuthority, CheckTls, Digest, DnsRecord, ExchangeStep, Http, Pattern, Probe, Script,
};

use super::plain_address;
use crate::catalog::{CheckKind, EXCHANGE, EXPECT};
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::{Kind, quoted_list};
use crate::tree::{Item, Value};
use crate::view::{Sink, View, text, wrong_type};

pub(super) fn probe(sink: &mut Sink<'_>, view: &View<'_, '_>, kind: CheckKind) -> Probe {
    match kind {
        CheckKind::Http | CheckKind::Https => Probe::Http(Box::new(http(sink, view))),
        CheckKind::Grpc => Probe::Grpc {
            service: single_line_or(sink, view, "service", ""),
        },
        CheckKind::Smtp => Probe::Smtp {
            helo: single_line_or(sink, view, "helo", "localhost"),
        },
        CheckKind::Redis => Probe::Redis,
        CheckKind::Mysql => Probe::Mysql {
            user: single_line_or(sink, view, "user", "weir"),
        },
        CheckKind::Postgres => Probe::Postgres {
            user: single_line_or(sink, view, "user", "postgres"),
        },
        CheckKind::Agent => Probe::Agent {
            send: view.text(sink, "send").map(|(text, _)| text.to_owned()),
        },
        CheckKind::Dns => dns(sink, view),
        CheckKind::Udp => udp(sink, view),
        CheckKind::Ping => Probe::Ping,
        CheckKind::Script => Probe::Script(script(sink, view)),
        CheckKind::File => Probe::File {
            path: file(sink, view),
        },
        CheckKind::Tcp | CheckKind::Tls => match exchange(sink, view) {
            steps if steps.is_empty() => Probe::Tcp,
            steps => Probe::Exchange(steps),
        },
    }
}

fn exchange(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<ExchangeStep> {
    let mut steps = Vec::new();
    let items = view.list(sink, "exchange").unwrap_or_default();
    for item in items {
        let Value::Table(table) = &item.value else {
            sink.push(wrong_type(item, &Kind::Table(&EXCHANGE)));
            continue;
        };
        let step = View::open(sink, &EXCHANGE, table, &item.span);
        let text =
            |sink: &mut Sink<'_>, name| step.text(sink, name).map(|(text, _)| text.to_owned());
        let (send, expect) = (text(sink, "send"), text(sink, "expect"));
        steps.push(ExchangeStep {
            send: send.unwrap_or_default(),
            expect: expect.unwrap_or_default(),
            regex: pattern(sink, &step, "regex"),
        });
    }
    if let (Some(last), Some(item)) = (steps.last(), items.last())
        && !last.expects_data()
    {
        let message = "the last step of `exchange` has neither `expect` nor `regex`";
        let fix = "add `expect`, as in { send = \"PING\\r\\n\", expect = \"+PONG\" }";
        sink.push(Diagnostic::new(Code::MissingKey, &item.span, message).fix(fix));
    }
    steps
}

fn single_line_or(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str, default: &str) -> String {
    let text = single_line(sink, view, name).map(|(text, _)| text);
    text.unwrap_or(default).to_owned()
}

fn dns(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Probe {
    let query = single_line(sink, view, "query");
    if let Some((name, span)) = query
        && (name.len() > 253 || name.split('.').any(|label| label.len() > 63))
    {
        let message = format!("`{name}` is not a valid DNS name");
        let diagnostic = Diagnostic::new(Code::BadText, span, message);
        sink.push(
            diagnostic.fix("use a name of at most 253 bytes, with labels of at most 63 bytes"),
        );
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
    let payload = hex_bytes(sink, view, "payload").unwrap_or_default();
    let payload: Option<Vec<u8>> = payload.into_iter().collect();
    if payload.is_none()
        && let Some((entry, _)) = view.get("payload")
    {
        let message = "wildcards are not allowed in `payload`";
        let diagnostic = Diagnostic::new(Code::BadText, &entry.item.span, message);
        sink.push(diagnostic.fix("write every byte, as in \"00 ff 10\""));
    }
    let expect = expect(sink, view, &["bytes"]);
    Probe::Udp {
        payload: payload.unwrap_or_default(),
        bytes: expect.and_then(|expect| hex_bytes(sink, &expect, "bytes")),
    }
}

/// Parses `"00 ff xx"`; `xx` becomes `None`, which matches any byte.
fn hex_bytes(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) -> Option<Vec<Option<u8>>> {
    let (text, span) = view.text(sink, name)?;
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let parse_byte = |pair: &[char]| match pair {
        ['x' | 'X', 'x' | 'X'] => Some(None),
        [high, low] => {
            let byte = high.to_digit(16)? * 16 + low.to_digit(16)?;
            Some(u8::try_from(byte).ok())
        }
        _ => None,
    };
    let bytes: Option<Vec<Option<u8>>> = digits.chunks(2).map(parse_byte).collect();
    if bytes.is_none() {
        let message = format!(
            "expected hexadecimal bytes, found `{}`",
            text.escape_debug()
        );
        let diagnostic = Diagnostic::new(Code::BadText, span, message);
        sink.push(diagnostic.fix(match name {
            "bytes" => {
                "write pairs of hexadecimal digits, or `xx` for any byte, as in \"00 ff xx\""
            }
            _ => "write pairs of hexadecimal digits, as in \"00 ff 10\"",
        }));
    }
    bytes
}

fn script(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Script {
    Script {
        command: command(sink, view, "command"),
        user: single_line_or(sink, view, "user", crate::lower::SCRIPT_USER),
        dynamic: view.flag(sink, "dynamic").unwrap_or(false),
    }
}

/// Returns a command: the program and its arguments. Reports a program whose path is not absolute, and an empty list.
pub(crate) fn command(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) -> Vec<String> {
    if let Some((entry, _)) = view.get(name)
        && matches!(entry.item.value, Value::Text(_))
    {
        return program(sink, &entry.item);
    }
    let mut command = Vec::new();
    for item in view.list(sink, name).unwrap_or_default() {
        let Some((argument, span)) = text(sink, item, &Kind::Text) else {
            continue;
        };
        if command.is_empty() {
            check_absolute(sink, argument, span);
            crate::lower::present::check_program(sink, argument, span);
        }
        command.push(argument.to_owned());
    }
    if let Some((entry, _)) = view.get(name)
        && matches!(&entry.item.value, Value::List(items) if items.is_empty())
    {
        let message = format!("`{name}` is empty");
        let diagnostic = Diagnostic::new(Code::EmptyList, &entry.item.span, message);
        sink.push(diagnostic.fix("add a program, as in [\"/usr/local/bin/check\"]"));
    }
    command
}

/// Returns a command that is written as a string: a program without arguments.
fn program(sink: &mut Sink<'_>, item: &Item<'_>) -> Vec<String> {
    let Some((path, span)) = text(sink, item, &Kind::Text) else {
        return Vec::new();
    };
    if path.contains(char::is_whitespace) {
        let words: Vec<String> = path
            .split_whitespace()
            .map(|it| format!("{it:?}"))
            .collect();
        let message = "arguments must be separate list elements";
        let diagnostic = Diagnostic::new(Code::WrongType, span, message);
        sink.push(diagnostic.fix(format!("write [{}]", words.join(", "))));
    } else {
        check_absolute(sink, path, span);
        crate::lower::present::check_program(sink, path, span);
    }
    vec![path.to_owned()]
}

fn file(sink: &mut Sink<'_>, view: &View<'_, '_>) -> String {
    let Some((path, span)) = single_line(sink, view, "file") else {
        return String::new();
    };
    check_absolute(sink, path, span);
    path.to_owned()
}

/// Returns the TLS settings of a check; `None` = it does not use TLS.
pub(super) fn tls(sink: &mut Sink<'_>, view: &View<'_, '_>, kind: CheckKind) -> Option<CheckTls> {
    let uses_tls = view.flag(sink, "tls").unwrap_or(false);
    let verify = view.flag(sink, "verify");
    let ca = single_line(sink, view, "ca").map(|(path, span)| {
        check_absolute(sink, path, span);
        path.to_owned()
    });
    let name = single_line(sink, view, "server_name").map(|(name, _)| name.to_owned());
    if kind == CheckKind::Grpc && !uses_tls {
        for key in ["verify", "ca", "server_name"] {
            if let Some((entry, _)) = view.get(key) {
                let message = format!("`{key}` has no effect: this check does not use TLS");
                let diagnostic = Diagnostic::new(Code::NoEffect, &entry.key_span, message);
                sink.push(diagnostic.fix("remove it, or add tls = true"));
            }
        }
        return None;
    }
    if !uses_tls && !matches!(kind, CheckKind::Https | CheckKind::Tls) {
        return None;
    }
    // The name in the certificate does not include the port of `Host`.
    let host = view
        .get("host")
        .and_then(|(entry, _)| match &entry.item.value {
            Value::Text(host) => Some(host.split(':').next().unwrap_or_default().to_owned()),
            _ => None,
        });
    let verify = verify.unwrap_or(true);
    if verify && let Some((entry, _)) = view.get("ca").or_else(|| view.get("kind")) {
        let source = sink.lines.source(entry.key_span.start);
        let ca = ca.clone();
        sink.check_authorities.push(CheckAuthority { ca, source });
    }
    Some(CheckTls {
        verify,
        ca,
        server_name: name.or(host),
    })
}

/// Reports a path that is not absolute or contains a NUL character.
pub(crate) fn check_absolute(sink: &mut Sink<'_>, path: &str, span: &Range<usize>) {
    let (problem, fix) = if path.contains('\0') {
        ("contains a NUL character", "remove it")
    } else if !path.starts_with('/') {
        ("is not an absolute path", "start it with `/`")
    } else {
        return;
    };
    let message = format!("`{}` {problem}", path.escape_debug());
    sink.push(Diagnostic::new(Code::BadText, span, message).fix(fix));
}

fn http(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Http {
    let default = Http::default();
    let path = single_line(sink, view, "path").map(|(path, span)| {
        if !path.starts_with('/') || path.contains(' ') {
            let message = format!("`{path}` is not a valid path");
            let diagnostic = Diagnostic::new(Code::BadText, span, message);
            sink.push(diagnostic.fix("start it with `/`, and encode spaces as `%20`"));
        }
        path.to_owned()
    });
    let method = single_line(sink, view, "method").map(|(method, span)| {
        if method.is_empty() || !method.bytes().all(is_token) {
            let message = format!("`{method}` is not a valid method");
            sink.push(
                Diagnostic::new(Code::BadText, span, message)
                    .fix("use a method such as GET or HEAD"),
            );
        }
        method.to_owned()
    });
    let is_version_1_0 = view
        .text(sink, "version")
        .is_some_and(|(version, _)| version == "1.0");
    if let Some((entry, kind)) = view.get("version") {
        crate::view::keyword(sink, &entry.item, kind);
    }
    let mut http = Http {
        method: method.unwrap_or(default.method),
        path: path.unwrap_or(default.path),
        minor_version: u8::from(!is_version_1_0),
        host: single_line(sink, view, "host").map(|(host, _)| host.to_owned()),
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
        Err(cause) => {
            let message = format!(
                "`{}` is not a valid regular expression",
                text.escape_debug()
            );
            let diagnostic = Diagnostic::new(Code::BadText, span, message).cause(cause);
            sink.push(
                diagnostic
                    .fix("in TOML, use single quotes '…' so that `\\` is not an escape character"),
            );
            None
        }
    }
}

/// Parses 32 or 64 hexadecimal digits.
fn digest(sink: &mut Sink<'_>, expect: &View<'_, '_>) -> Option<Digest> {
    let (text, span) = expect.text(sink, "digest")?;
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| u8::try_from(digit.to_digit(16)?).ok())
        .collect();
    let bytes = digits.unwrap_or_default();
    let bytes: Vec<u8> = bytes
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |sum, digit| sum * 16 + digit))
        .collect();
    let digest = match text.len() {
        32 => bytes.try_into().ok().map(Digest::Md5),
        64 => bytes.try_into().ok().map(Digest::Sha256),
        _ => None,
    };
    if digest.is_none() {
        let message = format!("`{}` is not a valid digest", text.escape_debug());
        let diagnostic = Diagnostic::new(Code::BadText, span, message);
        sink.push(
            diagnostic.fix(
                "write 32 hexadecimal digits for MD5, as printed by md5sum, or 64 for SHA-256",
            ),
        );
    }
    digest
}

/// Opens the `expect` table of a check; reports keys other than `keys`, which the check's kind supports.
fn expect<'a, 't>(sink: &mut Sink<'_>, view: &View<'a, 't>, keys: &[&str]) -> Option<View<'a, 't>> {
    let (entry, kind) = view.get("expect")?;
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return None;
    };
    let expect_view = View::open(sink, &EXPECT, table, &entry.key_span);
    for entry in &table.entries {
        if EXPECT.key(&entry.key).is_some() && !keys.contains(&entry.key.as_ref()) {
            let message = format!(
                "`{}` is not a valid condition for this kind of check",
                entry.key
            );
            let diagnostic = Diagnostic::new(Code::Contradiction, &entry.key_span, message);
            sink.push(diagnostic.fix(format!("use {}", quoted_list(keys))));
        }
    }
    Some(expect_view)
}

/// Parses status codes: `"200-299,304"` or `200`.
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
    let parse_code = |text: &str| {
        let code: u16 = text.trim().parse().ok()?;
        (100..600).contains(&code).then_some(code)
    };
    let parse_range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_code(first)?, parse_code(last)?);
        (first <= last).then_some((first, last))
    };
    let ranges: Option<Vec<(u16, u16)>> = text.split(',').map(parse_range).collect();
    if ranges.is_none() {
        let message = format!("`{text}` is not a list of status codes");
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
                if !name.is_empty() && name.bytes().all(is_token) && is_single_line(value) =>
            {
                headers.push((name.to_owned(), value.trim().to_owned()));
            }
            _ => {
                let message = format!("`{}` is not a valid header field", field.escape_debug());
                let diagnostic = Diagnostic::new(Code::BadText, span, message);
                sink.push(diagnostic.fix("write NAME: VALUE on one line"));
            }
        }
    }
    headers
}

/// Returns a string. Reports and rejects a string with control characters: most of these strings become part of a
/// request.
fn single_line<'a>(
    sink: &mut Sink<'_>,
    view: &View<'a, '_>,
    name: &str,
) -> Option<(&'a str, &'a Range<usize>)> {
    let (text, span) = view.text(sink, name)?;
    if is_single_line(text) {
        return Some((text, span));
    }
    let message = format!("`{name}` contains a control character");
    sink.push(
        Diagnostic::new(Code::BadText, span, message)
            .fix("remove line breaks and other control characters"),
    );
    None
}

fn is_single_line(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// Returns whether a byte is allowed in a token (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
