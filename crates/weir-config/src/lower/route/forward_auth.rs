//! Lowers a route's `forward_auth`: the pool that authorizes its requests, and the content of authorization requests.

use std::ops::Range;

use weir_model::{Conditions, ForwardAuth, Variable};

use super::edit::{fields, name, texts};
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::variable::Scope;
use crate::tree::Value;
use crate::view::{Sink, View, wrong_type};

pub(super) fn forward_auth(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    when: &Conditions,
) -> Option<ForwardAuth> {
    let (entry, kind) = view.get("forward_auth")?;
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return None;
    };
    let view = View::open(sink, &catalog::FORWARD_AUTH, table, &entry.key_span);
    let scope = Scope {
        server: false,
        route: Some(when),
        regex: None,
    };
    let path = match view.text(sink, "path") {
        Some((text, span)) => path(sink, text, span),
        None => Some(ForwardAuth::PATH.to_owned()),
    };
    let timeout = view.duration(sink, "timeout");
    let copy = copies(sink, &view);
    let mut set = fields(sink, &view, "set_header", scope);
    // As in a redirect, `{path}` is the path as received, with the query, unless `{query}` is used.
    for field in &mut set {
        let has_query = field.value.variables().any(|it| *it == Variable::Query);
        if !has_query {
            let value = std::mem::take(&mut field.value);
            field.value = value.replacing(&Variable::Path, &Variable::PathAndQuery);
        }
    }
    let (pool, _) = view.text(sink, "pool")?;
    Some(ForwardAuth {
        pool: pool.to_owned(),
        path: path?,
        timeout: timeout.unwrap_or(ForwardAuth::TIMEOUT[0]),
        copy,
        set,
    })
}

/// Parses a path with an optional query.
fn path(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    let is_sent = |byte: u8| byte.is_ascii_graphic() && !b"{}#".contains(&byte);
    if text.starts_with('/') && text.bytes().all(is_sent) {
        return Some(text.to_owned());
    }
    let message = format!("invalid path `{}`", text.escape_debug());
    sink.push(
        Diagnostic::new(Code::BadName, span, message)
            .cause("the path must begin with `/`; a client could use variables to change the query")
            .fix(
                "write a fixed path such as \"/verify\", and send properties of the request with `set_header`",
            ),
    );
    None
}

/// Lowers `copy_header`: `"Name"`, or `"Name: Name"` if the names differ.
fn copies(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<(String, String)> {
    let mut copies: Vec<(String, String)> = Vec::new();
    for (text, span) in texts(sink, view, "copy_header") {
        let (target, source) = match text.split_once(':') {
            Some((target, source)) => (target, source.trim()),
            None => (text, text),
        };
        if name(sink, target, span).is_none()
            || source != target && name(sink, source, span).is_none()
        {
            continue;
        }
        if copies
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(target))
        {
            let message = format!("`{target}` is listed twice");
            sink.push(
                Diagnostic::new(Code::DuplicateEntry, span, message).fix("remove one of them"),
            );
            continue;
        }
        copies.push((target.to_owned(), source.to_owned()));
    }
    copies
}
