//! Lowers a proxy service's `forwarded`, `x_forwarded`, `error_pages` and `compression`, and lists of networks.

use std::ops::Range;

use weir_model::{
    ClientField, ClientFields, Coding, Compression, ErrorPage, ErrorResponse, FieldRule, Forwarded,
    Network, RouteClientFields,
};

use super::check::status;
use super::report_error;
use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Item, Table, Value};
use crate::view::{Sink, View, text, wrong_type};

pub(super) fn forwarded(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Forwarded {
    let Some((entry, _)) = view.get("forwarded") else {
        return Forwarded::default();
    };
    match &entry.item.value {
        Value::Text(_) => view
            .choice(sink, "forwarded", &Forwarded::ALL, Forwarded::as_str)
            .unwrap_or_default(),
        _ if view.flag(sink, "forwarded") == Some(false) => Forwarded::Off,
        _ => Forwarded::XForwarded,
    }
}

/// Lowers the `x_forwarded` of a service or a route.
pub(super) fn x_forwarded(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<RouteClientFields> {
    let (entry, kind) = view.get("x_forwarded")?;
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return None;
    };
    let view = View::open(sink, &catalog::X_FORWARDED, table, &entry.key_span);
    let mut rules = ClientFields::default();
    for field in ClientField::ALL {
        let rule = view.choice(sink, field.as_str(), &FieldRule::ALL, FieldRule::as_str);
        rules.set(field, rule);
    }
    let except = networks(sink, &view, "except");
    Some(RouteClientFields { rules, except })
}

/// Returns the networks in a list.
pub(super) fn networks(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str) -> Vec<Network> {
    let mut networks = Vec::new();
    for item in view.list(sink, key).unwrap_or_default() {
        let Some((text, span)) = text(sink, item, &Kind::Network) else {
            continue;
        };
        match address::parse_network(text) {
            Ok(network) => networks.push(network),
            Err(error) => report_error(sink, span, error),
        }
    }
    networks
}

pub(super) fn error_pages(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<ErrorPage> {
    let mut pages = Vec::new();
    for item in view.list(sink, "error_pages").unwrap_or_default() {
        match &item.value {
            Value::Table(table) => pages.extend(error_page(sink, item, table)),
            _ => sink.push(wrong_type(item, &Kind::Table(&catalog::ERROR_PAGE))),
        }
    }
    pages
}

fn error_page(sink: &mut Sink<'_>, item: &Item<'_>, table: &Table<'_>) -> Option<ErrorPage> {
    let view = View::open(sink, &catalog::ERROR_PAGE, table, &item.span);
    let codes = view
        .get("status")
        .and_then(|(entry, kind)| status(sink, &entry.item, kind));
    let (response, start) = match (view.text(sink, "file"), view.text(sink, "redirect")) {
        (Some((file, span)), None) => (page_file(sink, file, span)?, span.start),
        (None, Some((to, span))) => (page_redirect(sink, &view, to, span)?, span.start),
        (found, _) => {
            let (code, message) = match found {
                Some(_) => (
                    Code::Contradiction,
                    "`file` and `redirect` are mutually exclusive",
                ),
                None => (
                    Code::MissingKey,
                    "an error page requires `file` or `redirect`",
                ),
            };
            sink.push(
                Diagnostic::new(code, &item.span, message)
                    .fix("write one of `file` and `redirect`"),
            );
            return None;
        }
    };
    Some(ErrorPage {
        status: codes?,
        response,
        source: sink.lines.source(start),
    })
}

/// The file that means "no response" in HAProxy's `errorfile`.
const NO_RESPONSE: &str = "/dev/null";

fn page_file(sink: &mut Sink<'_>, file: &str, span: &Range<usize>) -> Option<ErrorResponse> {
    if file == NO_RESPONSE {
        return Some(ErrorResponse::Close);
    }
    if !file.starts_with('/') || file.contains('\0') {
        sink.push(
            Diagnostic::new(Code::BadText, span, "`file` must be an absolute path")
                .cause("the daemon's working directory is not defined")
                .fix("write an absolute path, as in \"/etc/weir/sorry.html\""),
        );
        return None;
    }
    Some(ErrorResponse::File(file.to_owned()))
}

fn page_redirect(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    to: &str,
    span: &Range<usize>,
) -> Option<ErrorResponse> {
    let status = view.integer(sink, "redirect_status").unwrap_or(302);
    let is_url_byte = |byte: u8| byte.is_ascii_graphic() && !b"{}\\\"<>^`|".contains(&byte);
    if to.is_empty() || !to.bytes().all(is_url_byte) {
        let message = format!("invalid URL `{}`", to.escape_debug());
        sink.push(
            Diagnostic::new(Code::BadText, span, message)
                .cause("the target of an error page cannot contain spaces, characters outside ASCII, or variables")
                .fix("write a URL or a path, as in \"https://status.example.com/\""),
        );
        return None;
    }
    Some(ErrorResponse::Redirect {
        to: to.to_owned(),
        status: u16::try_from(status).unwrap_or(302),
    })
}

pub(super) fn compression(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Compression> {
    let (entry, _) = view.get("compression")?;
    let Value::Table(table) = &entry.item.value else {
        let is_on = view.flag(sink, "compression") == Some(true);
        return is_on.then(Compression::default);
    };
    let view = View::open(sink, &catalog::COMPRESSION, table, &entry.key_span);
    let default = Compression::default();
    Some(Compression {
        codings: codings(sink, &view).unwrap_or(default.codings),
        types: types(sink, &view).unwrap_or(default.types),
        minimum: view.size(sink, "minimum").unwrap_or(default.minimum),
    })
}

fn codings(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Vec<Coding>> {
    let items = view.list(sink, "codings")?;
    let (_, kind) = view.get("codings")?;
    let Kind::List(kind) = kind else { return None };
    let mut codings = Vec::new();
    for item in items {
        let Some(keyword) = crate::view::keyword(sink, item, kind) else {
            continue;
        };
        let coding = Coding::ALL
            .into_iter()
            .find(|coding| coding.as_str() == keyword);
        codings.extend(coding.filter(|coding| !codings.contains(coding)));
    }
    if items.is_empty() {
        report_empty_list(sink, view, "codings");
    }
    Some(codings)
}

fn types(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Vec<String>> {
    let items = view.list(sink, "types")?;
    let mut types = Vec::new();
    for item in items {
        let Some((kind, span)) = text(sink, item, &Kind::DescribedText("a media type")) else {
            continue;
        };
        let bytes = kind.strip_suffix('*').unwrap_or(kind);
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+/".contains(&byte);
        if !kind.contains('/') || !bytes.bytes().all(is_allowed) {
            let message = format!("invalid media type `{}`", kind.escape_debug());
            sink.push(
                Diagnostic::new(Code::BadText, span, message)
                    .fix("write \"text/html\", or \"text/*\""),
            );
            continue;
        }
        types.push(kind.to_ascii_lowercase());
    }
    if items.is_empty() {
        report_empty_list(sink, view, "types");
    }
    Some(types)
}

fn report_empty_list(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str) {
    if let Some((entry, _)) = view.get(key) {
        sink.push(
            Diagnostic::new(
                Code::EmptyList,
                &entry.item.span,
                "the list is empty, so nothing would be compressed",
            )
            .fix("add an entry, or write compression = false"),
        );
    }
}
