//! `[[route]]`.

mod action;
mod edit;

use std::ops::Range;

use weir_model::{HostPattern, PathRegex, Route};

use self::action::action;
use super::variable;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Item, Table, Value};
use crate::view::{Sink, View, text, wrong_type};

/// A route and the positions of its parts.
pub(crate) struct LoweredRoute {
    pub(crate) route: Route,
    /// Position of its table.
    pub(crate) location: Range<usize>,
    /// Name of the service, and its position.
    pub(crate) service: (String, Range<usize>),
    /// Positions of its path and its expression.
    pub(crate) path: Option<Range<usize>>,
    pub(crate) path_regex: Option<Range<usize>>,
    /// Position of its pool.
    pub(crate) pool: Option<Range<usize>>,
}

/// Every `[[route]]` of the file.
pub(super) fn routes(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<LoweredRoute> {
    let mut routes = Vec::new();
    for item in view.list(sink, "route").unwrap_or_default() {
        match &item.value {
            Value::Table(table) => routes.extend(route(sink, item, table)),
            _ => sink.push(wrong_type(item, &Kind::Table(&catalog::ROUTE)).fix("write [[route]]")),
        }
    }
    routes
}

fn route(sink: &mut Sink<'_>, item: &Item<'_>, table: &Table<'_>) -> Option<LoweredRoute> {
    // The first key represents the table, whose own span is its header or its braces.
    let location = table
        .entries
        .first()
        .map_or(item.span.clone(), |entry| entry.key_span.clone());
    let view = View::open(sink, &catalog::ROUTE, table, &location);
    let host = view
        .text(sink, "host")
        .and_then(|(text, span)| host(sink, text, span));
    let path = view
        .text(sink, "path")
        .and_then(|(text, span)| path(sink, text, span));
    let path_regex = view
        .text(sink, "path_regex")
        .and_then(|(text, span)| path_regex(sink, text, span));
    let methods = methods(sink, &view);
    let headers = headers(sink, &view);
    let queries = edit::pairs(sink, &view, "query");
    let cookies = edit::pairs(sink, &view, "cookie");
    let sources = edit::sources(sink, &view);
    let edits = edit::edits(sink, &view, path_regex.as_ref());
    let action = action(sink, &view, &location);
    let (service, span) = view.text(sink, "service")?;
    let written = |key: &str| view.get(key).map(|(entry, _)| entry.item.span.clone());
    Some(LoweredRoute {
        route: Route {
            host,
            path,
            path_regex,
            methods,
            headers,
            queries,
            cookies,
            sources,
            edits,
            action: action?,
            source: sink.lines.source(location.start),
        },
        location,
        service: (service.to_owned(), span.clone()),
        path: written("path"),
        path_regex: written("path_regex"),
        pool: written("pool").or_else(|| written("split")),
    })
}

fn host(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<HostPattern> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let address = text.parse::<std::net::IpAddr>().is_ok()
        || (text.starts_with('[')
            && text
                .trim_matches(['[', ']'])
                .parse::<std::net::Ipv6Addr>()
                .is_ok());
    if !address && !name.split('.').all(label) {
        sink.push(
            Diagnostic::new(
                Code::BadName,
                span,
                format!("invalid host `{}`", text.escape_debug()),
            )
            .fix("use a host name, \"*.\" and a host name, or an address, without a port"),
        );
        return None;
    }
    let lower = name.to_ascii_lowercase();
    Some(if text.starts_with("*.") {
        HostPattern::Suffix(format!(".{lower}"))
    } else {
        HostPattern::Exact(lower)
    })
}

fn path(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    let sent = |byte: u8| byte > b' ' && byte < 0x7f && !b"?#".contains(&byte);
    if !text.starts_with(['/', '*']) || !text.bytes().all(sent) {
        sink.push(
            Diagnostic::new(
                Code::BadName,
                span,
                format!("invalid path `{}`", text.escape_debug()),
            )
            .cause("a path starts with `/`, contains no query, and is compared percent-encoded")
            .fix("write \"/img/*\" or \"/exact\", and percent-encode other characters"),
        );
        return None;
    }
    Some(text.to_owned())
}

fn path_regex(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<PathRegex> {
    match PathRegex::new(text) {
        Ok(regex) => Some(regex),
        Err(error) => {
            sink.push(
                Diagnostic::new(
                    Code::BadText,
                    span,
                    format!("invalid regular expression: {error}"),
                )
                .fix("use the syntax of the Rust crate `regex`, in single quotes: '^/img/[0-9]+$'"),
            );
            None
        }
    }
}

fn methods(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<String> {
    let mut methods = Vec::new();
    for item in view.list(sink, "method").unwrap_or_default() {
        let Some((text, span)) = text(sink, item, &Kind::DescribedText("a method")) else {
            continue;
        };
        if text.is_empty()
            || !text
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'-')
        {
            sink.push(
                Diagnostic::new(
                    Code::BadName,
                    span,
                    format!("invalid method `{}`", text.escape_debug()),
                )
                .cause("methods are case-sensitive")
                .fix("write it in upper case: \"GET\""),
            );
            continue;
        }
        methods.push(text.to_owned());
    }
    methods
}

/// `"Name"` or `"Name: value"`.
fn headers(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<(String, Option<String>)> {
    let mut headers = Vec::new();
    for item in view.list(sink, "header").unwrap_or_default() {
        let Some((text, span)) = text(sink, item, &Kind::DescribedText("a header field")) else {
            continue;
        };
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| {
            (name, Some(value.trim().to_owned()))
        });
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(token) {
            sink.push(
                Diagnostic::new(
                    Code::BadName,
                    span,
                    format!("invalid header field name `{}`", name.escape_debug()),
                )
                .fix("write \"Name\", or \"Name: value\""),
            );
            continue;
        }
        if variable::is_exact(sink, "header", text, span) {
            headers.push((name.to_ascii_lowercase(), value));
        }
    }
    headers
}
