//! Lowers `[[route]]`.

mod action;
mod condition;
mod edit;
mod files;
mod forward_auth;
mod limit;
mod option;

use std::ops::Range;

use weir_model::Route;

use self::action::action;
use self::condition::conditions;
use crate::catalog;
use crate::key::Kind;
use crate::tree::{Item, Table, Value};
use crate::view::{Sink, View, wrong_type};

pub(crate) use condition::LoweredConditions;
pub(super) use edit::header_edits;
pub(super) use limit::{check_burst, rate};

/// A route and the positions of its parts.
pub(crate) struct LoweredRoute {
    pub(crate) route: Route,
    /// Position of its table.
    pub(crate) location: Range<usize>,
    /// Whether the table has no errors. Otherwise, conditions may be missing.
    pub(crate) complete: bool,
    /// Name of the service, and its position.
    pub(crate) service: (String, Range<usize>),
    /// The conditions as written; the conditions in `route` are adapted to the service.
    pub(crate) when: LoweredConditions,
    pub(crate) not: Option<LoweredConditions>,
    /// Position of `pool`, `split` or `files`.
    pub(crate) pool: Option<Range<usize>>,
    /// Position of `mirror`.
    pub(crate) mirror: Option<Range<usize>>,
    /// Position of `server`.
    pub(crate) server: Option<Range<usize>>,
    /// Position of `forward_auth`.
    pub(crate) forward_auth: Option<Range<usize>>,
    /// Position of `rewrite`'s regular expression.
    pub(crate) rewrite: Option<Range<usize>>,
}

/// Lowers every `[[route]]` in the file.
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
    // Diagnostics for a table are shown at its first key, because the span of the table covers its header or its
    // braces.
    let location = table
        .entries
        .first()
        .map_or(item.span.clone(), |entry| entry.key_span.clone());
    let errors = sink.errors();
    let view = View::open(sink, &catalog::ROUTE, table, &location);
    let when = conditions(sink, &view);
    let not = view
        .get("not")
        .and_then(|(entry, kind)| match &entry.item.value {
            Value::Table(table) => {
                let view = View::open(sink, &catalog::ROUTE_NOT, table, &entry.key_span);
                Some(conditions(sink, &view))
            }
            _ => {
                sink.push(wrong_type(&entry.item, kind));
                None
            }
        });
    let edits = edit::edits(sink, &view, &when.conditions);
    let options = option::options(sink, &view, &when.conditions);
    let action = action(sink, &view, &when.conditions, &location);
    let (service, span) = view.text(sink, "service")?;
    let span_of = |key: &str| view.get(key).map(|(entry, _)| entry.item.span.clone());
    Some(LoweredRoute {
        route: Route {
            when: when.conditions.clone(),
            not: not.as_ref().map(|not| Box::new(not.conditions.clone())),
            edits,
            options,
            action: action?,
            source: sink.lines.source(location.start),
        },
        location,
        complete: sink.errors() == errors,
        service: (service.to_owned(), span.clone()),
        when,
        not,
        pool: ["pool", "split", "files"].into_iter().find_map(span_of),
        mirror: span_of("mirror"),
        server: span_of("server"),
        forward_auth: span_of("forward_auth"),
        rewrite: view
            .get("rewrite")
            .and_then(|(entry, _)| match &entry.item.value {
                Value::Table(table) => {
                    let regex = table.entries.iter().find(|entry| entry.key == "regex")?;
                    Some(regex.item.span.clone())
                }
                _ => None,
            }),
    })
}
