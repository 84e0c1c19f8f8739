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

/// A route and where its parts are written.
pub(crate) struct LoweredRoute {
    pub(crate) route: Route,
    /// Its table.
    pub(crate) place: Range<usize>,
    /// Name of the service, and where it is written.
    pub(crate) service: (String, Range<usize>),
    /// Where its path and its expression are written.
    pub(crate) path: Option<Range<usize>>,
    pub(crate) path_regex: Option<Range<usize>>,
    /// Where its pool is written.
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
    // The first key stands for the table, whose own span is its header's or its braces'.
    let place = table
        .entries
        .first()
        .map_or(item.span.clone(), |entry| entry.key_span.clone());
    let view = View::open(sink, &catalog::ROUTE, table, &place);
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
    let action = action(sink, &view, &place);
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
            source: sink.lines.source(place.start),
        },
        place,
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
                .all(|octet| octet.is_ascii_alphanumeric() || b"-_".contains(&octet))
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
                format!("no host is called `{}`", text.escape_debug()),
            )
            .fix("write a name, \"*.\" and a name, or an address; without a port"),
        );
        return None;
    }
    let lower = name.to_ascii_lowercase();
    Some(if text.starts_with("*.") {
        HostPattern::Below(format!(".{lower}"))
    } else {
        HostPattern::Exact(lower)
    })
}

fn path(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    let sent = |octet: u8| octet > b' ' && octet < 0x7f && !b"?#".contains(&octet);
    if !text.starts_with(['/', '*']) || !text.bytes().all(sent) {
        sink.push(
            Diagnostic::new(
                Code::BadName,
                span,
                format!("no path is `{}`", text.escape_debug()),
            )
            .cause("a path begins with `/`, and is compared with its escapes, without the query")
            .fix("write \"/img/*\" or \"/exact\", with other characters percent-encoded"),
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
                Diagnostic::new(Code::BadText, span, format!("no expression: {error}"))
                    .fix("write one of the crate `regex`, in single quotes: '^/img/[0-9]+$'"),
            );
            None
        }
    }
}

fn methods(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<String> {
    let mut methods = Vec::new();
    for item in view.list(sink, "method").unwrap_or_default() {
        let Some((text, span)) = text(sink, item, &Kind::Words("a method")) else {
            continue;
        };
        if text.is_empty()
            || !text
                .bytes()
                .all(|octet| octet.is_ascii_uppercase() || octet == b'-')
        {
            sink.push(
                Diagnostic::new(
                    Code::BadName,
                    span,
                    format!("no method is called `{}`", text.escape_debug()),
                )
                .cause("methods are compared letter by letter")
                .fix("write it as it is sent, in upper case: \"GET\""),
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
        let Some((text, span)) = text(sink, item, &Kind::Words("a header field")) else {
            continue;
        };
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| {
            (name, Some(value.trim().to_owned()))
        });
        let token =
            |octet: u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet);
        if name.is_empty() || !name.bytes().all(token) {
            sink.push(
                Diagnostic::new(
                    Code::BadName,
                    span,
                    format!("no header field is called `{}`", name.escape_debug()),
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
