//! Conditions on query, cookies and source, splits, and modifications of requests and responses.

use std::ops::Range;

use weir_model::{Network, PathRegex, RouteEdits};

use crate::address;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::lower::{refuse, variable};
use crate::view::{Sink, View, text};

const TEXT: Kind = Kind::DescribedText("text");

fn texts<'a>(
    sink: &mut Sink<'_>,
    view: &View<'a, '_>,
    key: &'static str,
) -> Vec<(&'a str, &'a Range<usize>)> {
    let items = view.list(sink, key).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| text(sink, item, &TEXT))
        .collect()
}

/// `"name"` or `"name=value"`.
pub(super) fn pairs(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &'static str,
) -> Vec<(String, Option<String>)> {
    let mut pairs = Vec::new();
    for (text, span) in texts(sink, view, key) {
        let (name, value) = text
            .split_once('=')
            .map_or((text, None), |(name, value)| (name, Some(value.to_owned())));
        if name.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            sink.push(
                Diagnostic::new(Code::BadName, span, format!("invalid {key} condition"))
                    .cause("values are compared without decoding")
                    .fix("write \"name\" or \"name=value\""),
            );
            continue;
        }
        if variable::is_exact(sink, key, text, span) {
            pairs.push((name.to_owned(), value));
        }
    }
    pairs
}

pub(super) fn sources(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<Network> {
    let mut networks = Vec::new();
    for (text, span) in texts(sink, view, "source") {
        match address::network(text) {
            Ok(network) => networks.push(network),
            Err(refusal) => refuse(sink, span, refusal),
        }
    }
    networks
}

/// `"POOL:WEIGHT"`.
pub(super) fn split(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Vec<(String, u32)>> {
    let mut parts = Vec::new();
    for (text, span) in texts(sink, view, "split") {
        let part = text.rsplit_once(':').and_then(|(pool, weight)| {
            let weight: u32 = weight.parse().ok().filter(|weight| *weight <= 65_535)?;
            (!pool.is_empty()).then(|| (pool.to_owned(), weight))
        });
        match part {
            Some(part) => parts.push(part),
            None => sink.push(
                Diagnostic::new(Code::WrongType, span, "expected \"POOL:WEIGHT\"")
                    .fix("write a pool and an integer up to 65535, for example \"blue:90\""),
            ),
        }
    }
    if parts.iter().all(|(_, weight)| *weight == 0)
        && let Some((entry, _)) = view.get("split")
    {
        sink.push(
            Diagnostic::new(
                Code::EmptyList,
                &entry.item.span,
                "all weights of this split are 0",
            )
            .fix("set at least one weight above 0"),
        );
        return None;
    }
    Some(parts)
}

pub(super) fn edits(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    regex: Option<&PathRegex>,
) -> RouteEdits {
    let edits = RouteEdits {
        path: view
            .text(sink, "rewrite")
            .and_then(|(text, span)| path(sink, text, span, regex)),
        set: fields(sink, view, "set_header"),
        remove: names(sink, view, "remove_header"),
        set_response: fields(sink, view, "set_response_header"),
        remove_response: names(sink, view, "remove_response_header"),
    };
    for key in [
        "rewrite",
        "set_header",
        "remove_header",
        "set_response_header",
        "remove_response_header",
    ] {
        if let Some((entry, _)) = view.get(key)
            && view.get("pool").is_none()
            && view.get("split").is_none()
        {
            let message = format!("`{key}` has no effect: the request is not sent to a server");
            sink.push(
                Diagnostic::new(Code::NoEffect, &entry.key_span, message)
                    .fix(format!("remove `{key}`, or add a `pool`")),
            );
        }
    }
    edits
}

fn path(
    sink: &mut Sink<'_>,
    text: &str,
    span: &Range<usize>,
    regex: Option<&PathRegex>,
) -> Option<String> {
    let mut plain = text.replace("{path}", "").replace("{rest}", "");
    let groups = regex.map_or(0, PathRegex::group_count);
    for group in 1..=groups.min(PathRegex::GROUPS) {
        plain = plain.replace(&format!("{{{group}}}"), "");
    }
    let begins = text.starts_with('/') || text.starts_with("{path}");
    let sent = |byte: u8| byte.is_ascii_graphic() && !b"{}?#".contains(&byte);
    if begins && plain.bytes().all(sent) {
        return Some(text.to_owned());
    }
    let rewrites = ["path", "rest", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    if !variable::are_built(sink, text, span, &rewrites) {
        return None;
    }
    sink.push(
        Diagnostic::new(
            Code::BadName,
            span,
            format!("invalid path `{}`", text.escape_debug()),
        )
        .cause(
            "`{path}` is the path of the request, `{rest}` the part after the fixed prefix of `path`, `{1}` the first \
             group of `path_regex`",
        )
        .fix("write a path such as \"/v2/{rest}\"; the query is kept"),
    );
    None
}

/// Fields for message framing and hop-by-hop fields cannot be changed.
const KEPT: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

fn name(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let lower = text.to_ascii_lowercase();
    let own = KEPT.contains(&lower.as_str());
    if text.is_empty() || !text.bytes().all(token) || own {
        let message = if own {
            format!("`{text}` cannot be changed here")
        } else {
            format!("invalid header field name `{}`", text.escape_debug())
        };
        sink.push(Diagnostic::new(Code::BadName, span, message).fix("use another field"));
        return None;
    }
    Some(lower)
}

fn names(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &'static str) -> Vec<String> {
    let texts = texts(sink, view, key);
    texts
        .into_iter()
        .filter_map(|(text, span)| name(sink, text, span))
        .collect()
}

/// Parses `"Name: value"`; the name keeps its case.
fn fields(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &'static str) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (text, span) in texts(sink, view, key) {
        let Some((field, value)) = text.split_once(':') else {
            sink.push(
                Diagnostic::new(Code::WrongType, span, "expected \"Name: value\"")
                    .fix("add a colon after the name"),
            );
            continue;
        };
        let value = value.trim();
        if !value
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
        {
            sink.push(
                Diagnostic::new(
                    Code::BadText,
                    span,
                    "the value contains characters that are not allowed in a header \
                    field",
                )
                .fix("use printable ASCII characters"),
            );
            continue;
        }
        if name(sink, field, span).is_some() && variable::are_built(sink, value, span, &[]) {
            fields.push((field.to_owned(), value.to_owned()));
        }
    }
    fields
}
