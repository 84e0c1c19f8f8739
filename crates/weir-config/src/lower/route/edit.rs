//! Lowers splits, and changes to requests and responses.

use std::ops::Range;

use weir_model::{
    Conditions, HeaderEdit, HeaderEdits, HeaderReplacement, Part, PathRewrite, RouteEdits,
    Template, TextRegex, Variable,
};

use super::condition::regex;
use super::files::has_pool;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::lower::check::status;
use crate::lower::variable::{Scope, template};
use crate::tree::{Item, Table, Value};
use crate::view::{Sink, View, text, wrong_type};

const TEXT: Kind = Kind::DescribedText("text");

pub(super) fn texts<'a>(
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

/// Lowers `split`, a list of `"POOL:WEIGHT"`.
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

/// Keys of header changes: requests first, then responses.
const HEADER_KEYS: [&str; 7] = [
    "set_header",
    "add_header",
    "remove_header",
    "set_response_header",
    "add_response_header",
    "remove_response_header",
    "replace_response_header",
];

pub(super) fn edits(sink: &mut Sink<'_>, view: &View<'_, '_>, when: &Conditions) -> RouteEdits {
    let (request, response) = header_edits(sink, view, Some(when));
    let edits = RouteEdits {
        path: rewrite(sink, view, when),
        request,
        response,
        status: response_status(sink, view),
    };
    for key in ["rewrite", "response_status"]
        .into_iter()
        .chain(HEADER_KEYS)
    {
        let is_applied_to_response = matches!(key, "set_response_header" | "add_response_header")
            && (view.get("redirect").is_some() || view.get("status").is_some());
        if let Some((entry, _)) = view.get(key)
            && view.get("pool").is_none()
            && view.get("split").is_none()
            && !has_pool(view)
            && !(key.ends_with("_response_header") && view.get("files").is_some())
            && !is_applied_to_response
            && !(key == "rewrite" && view.get("restart").is_some())
        {
            let message = format!("`{key}` has no effect: the request is not sent to a server");
            sink.push(
                Diagnostic::new(Code::NoEffect, &entry.key_span, message)
                    .fix(format!("remove `{key}`, or add a `pool`")),
            );
        }
    }
    report_unused_file(sink, view);
    edits
}

/// Reports header fields for a single file in a route without `files`.
fn report_unused_file(sink: &mut Sink<'_>, view: &View<'_, '_>) {
    if view.get("files").is_some() {
        return;
    }
    for key in ["set_response_header", "add_response_header"] {
        let items = match view.get(key).map(|(entry, _)| &entry.item.value) {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        };
        for item in items {
            let Value::Table(table) = &item.value else {
                continue;
            };
            if let Some(entry) = table.entries.iter().find(|entry| entry.key == "file") {
                let message = "`file` has no effect: the route has no `files`";
                sink.push(
                    Diagnostic::new(Code::NoEffect, &entry.key_span, message)
                        .fix("remove the field, or add `files`"),
                );
            }
        }
    }
}

fn response_status(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<u16> {
    let status = view.integer(sink, "response_status")?;
    let status = u16::try_from(status).unwrap_or_default();
    if !RouteEdits::may_replace(status) {
        let (entry, _) = view.get("response_status")?;
        let message = format!("a response with content cannot have status {status}");
        sink.push(
            Diagnostic::new(Code::OutOfRange, &entry.item.span, message)
                .fix("use another status, such as 200 or 404"),
        );
        return None;
    }
    Some(status)
}

/// Lowers the request and response header changes of a route or a service.
pub(crate) fn header_edits(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    route: Option<&Conditions>,
) -> (HeaderEdits, HeaderEdits) {
    let [
        set,
        add,
        remove,
        set_response,
        add_response,
        remove_response,
        replace_response,
    ] = HEADER_KEYS;
    let request_scope = Scope {
        server: false,
        route,
        regex: None,
    };
    let response_scope = Scope {
        server: true,
        ..request_scope
    };
    let request = HeaderEdits {
        set: fields(sink, view, set, request_scope),
        add: fields(sink, view, add, request_scope),
        remove: names(sink, view, remove),
        replace: Vec::new(),
    };
    let response = HeaderEdits {
        set: fields(sink, view, set_response, response_scope),
        add: fields(sink, view, add_response, response_scope),
        remove: names(sink, view, remove_response),
        replace: replacements(sink, view, replace_response),
    };
    (request, response)
}

/// Lowers `replace_response_header`.
fn replacements(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &'static str,
) -> Vec<HeaderReplacement> {
    let mut replacements = Vec::new();
    for item in view.list(sink, key).unwrap_or_default() {
        match &item.value {
            Value::Table(table) => replacements.extend(replacement(sink, item, table)),
            _ => sink.push(wrong_type(item, &Kind::Table(&catalog::HEADER_REPLACEMENT))),
        }
    }
    replacements
}

fn replacement(
    sink: &mut Sink<'_>,
    item: &Item<'_>,
    table: &Table<'_>,
) -> Option<HeaderReplacement> {
    let view = View::open(sink, &catalog::HEADER_REPLACEMENT, table, &item.span);
    let field = view.text(sink, "name");
    let field = field.and_then(|(text, span)| name(sink, text, span));
    let expression = view.text(sink, "regex");
    let expression = expression.and_then(|(text, span)| regex(sink, text, span));
    let (text, span) = view.text(sink, "to")?;
    // Without the expression, the groups are unknown.
    let expression = expression?;
    if !is_field_value(text) {
        report_field_value(sink, span);
        return None;
    }
    let scope = Scope {
        server: false,
        route: None,
        regex: Some(&expression),
    };
    let to = template(sink, text, span, scope)?;
    let is_group = |variable: &Variable| matches!(variable, Variable::Group(_));
    if !to.variables().all(is_group) {
        sink.push(
            Diagnostic::new(
                Code::UnknownValue,
                span,
                "`to` may only use the capture groups of `regex`",
            )
            .cause("the request may no longer be available when the response arrives")
            .fix("use `{1}` to `{9}`"),
        );
        return None;
    }
    Some(HeaderReplacement {
        name: field?,
        regex: expression,
        to,
    })
}

/// Lowers `rewrite`: a path, or a table with a regular expression.
fn rewrite(sink: &mut Sink<'_>, view: &View<'_, '_>, when: &Conditions) -> Option<PathRewrite> {
    let (entry, kind) = view.get("rewrite")?;
    match &entry.item.value {
        Value::Text(text) => Some(PathRewrite {
            regex: None,
            to: path(sink, text, &entry.item.span, when, None)?,
        }),
        Value::Table(table) => {
            let view = View::open(sink, &catalog::ROUTE_REWRITE, table, &entry.key_span);
            let expression = view.text(sink, "regex");
            let expression = expression.and_then(|(text, span)| regex(sink, text, span));
            let (text, span) = view.text(sink, "to")?;
            // Without the expression, the groups are unknown.
            let expression = expression?;
            Some(PathRewrite {
                to: path(sink, text, span, when, Some(&expression))?,
                regex: Some(expression),
            })
        }
        _ => {
            sink.push(wrong_type(&entry.item, kind));
            None
        }
    }
}

fn path(
    sink: &mut Sink<'_>,
    text: &str,
    span: &Range<usize>,
    when: &Conditions,
    regex: Option<&TextRegex>,
) -> Option<Template> {
    let scope = Scope {
        server: false,
        route: Some(when),
        regex,
    };
    let template = template(sink, text, span, scope)?;
    let is_absolute = text.starts_with('/') || text.starts_with("{path}");
    let is_sent_byte = |byte: u8| byte.is_ascii_graphic() && !b"{}#".contains(&byte);
    let is_sent = |part: &Part| match part {
        Part::Text(text) => text.bytes().all(is_sent_byte),
        Part::Variable(_) => true,
    };
    let queries = text.bytes().filter(|byte| *byte == b'?').count();
    if is_absolute && queries <= 1 && template.parts().iter().all(is_sent) {
        return Some(template);
    }
    sink.push(
        Diagnostic::new(
            Code::BadName,
            span,
            format!("invalid path `{}`", text.escape_debug()),
        )
        .cause(
            "`{path}` is the request path, `{rest}` the part after the fixed prefix of `path`, `{1}` the first group \
             of `path_regex`, or of `regex` in `rewrite`",
        )
        .fix("write a path such as \"/v2/{rest}\"; the query is kept"),
    );
    None
}

/// Header fields that cannot be changed: hop-by-hop fields, and fields for message framing and routing.
const UNCHANGEABLE_FIELDS: [&str; 11] = [
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

pub(super) fn name(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let lower_case = text.to_ascii_lowercase();
    let is_unchangeable = UNCHANGEABLE_FIELDS.contains(&lower_case.as_str());
    if text.is_empty() || !text.bytes().all(is_token) || is_unchangeable {
        let message = if is_unchangeable {
            format!("`{text}` cannot be changed here")
        } else {
            format!("invalid header field name `{}`", text.escape_debug())
        };
        sink.push(Diagnostic::new(Code::BadName, span, message).fix("use another field"));
        return None;
    }
    Some(lower_case)
}

fn names(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &'static str) -> Vec<String> {
    let texts = texts(sink, view, key);
    texts
        .into_iter()
        .filter_map(|(text, span)| name(sink, text, span))
        .collect()
}

/// Lowers header fields: each is `"Name: value"` or, for responses, a table with statuses or a file. Names keep their
/// case.
pub(super) fn fields(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &'static str,
    scope: Scope<'_>,
) -> Vec<HeaderEdit> {
    let mut fields = Vec::new();
    for item in view.list(sink, key).unwrap_or_default() {
        let (mut statuses, mut file) = (Vec::new(), None);
        let line = match &item.value {
            Value::Table(table) if scope.server => {
                let view = View::open(sink, &catalog::RESPONSE_HEADER, table, &item.span);
                if let Some((entry, kind)) = view.get("status") {
                    let Some(ranges) = status(sink, &entry.item, kind) else {
                        continue;
                    };
                    statuses = ranges;
                }
                if let Some((path, span)) = view.text(sink, "file") {
                    if !path.starts_with('/') {
                        let message = "the file path must begin with `/`";
                        sink.push(
                            Diagnostic::new(Code::BadText, span, message)
                                .fix("write \"/index.html\""),
                        );
                        continue;
                    }
                    file = Some(path.to_owned());
                }
                view.text(sink, "header")
            }
            _ => text(sink, item, &TEXT),
        };
        let edit = line.and_then(|(text, span)| field(sink, text, span, scope));
        fields.extend(edit.map(|(name, value)| HeaderEdit {
            name,
            value,
            statuses,
            file,
        }));
    }
    fields
}

fn field(
    sink: &mut Sink<'_>,
    text: &str,
    span: &Range<usize>,
    scope: Scope<'_>,
) -> Option<(String, Template)> {
    let Some((field, value)) = text.split_once(':') else {
        sink.push(
            Diagnostic::new(Code::WrongType, span, "expected \"Name: value\"")
                .fix("add a colon after the name"),
        );
        return None;
    };
    let value = value.trim();
    if !is_field_value(value) {
        report_field_value(sink, span);
        return None;
    }
    name(sink, field, span)?;
    Some((field.to_owned(), template(sink, value, span, scope)?))
}

/// Returns whether a header field value may contain the text.
fn is_field_value(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

fn report_field_value(sink: &mut Sink<'_>, span: &Range<usize>) {
    let message = "the value contains characters that are not allowed in a header field";
    sink.push(Diagnostic::new(Code::BadText, span, message).fix("use printable ASCII characters"));
}
