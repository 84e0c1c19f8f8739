//! `monitor-uri`: haproxy itself responds to these requests, before all rules, and neither counts nor logs them.

use super::Context;
use super::header::{Changes, variants};
use super::section::Proxy;
use crate::document::{Entry, Table};
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Position};

/// Adds a route for `monitor-uri /alive`, before the other routes of the service. `limits` are keys of its `limits`.
pub(super) fn add_route(
    context: &mut Context<'_>,
    proxy: &Proxy,
    service: &str,
    (changes, limits): (&Changes, &[Entry]),
    notes: &mut Notes,
) {
    let Some(line) = proxy.last(&["monitor-uri"]).filter(|_| proxy.is_http()) else {
        return;
    };
    let Some(path) = line
        .word(1)
        .filter(|path| path.starts_with('/') && !path.contains(['*', '?']))
    else {
        return;
    };
    context.mark_used(line);
    let query = "the route also matches the path with a query";
    match limits.is_empty() {
        true => notes.remark(line.position, query),
        false => notes.add(
            line.position,
            format!(
                "requests to it count in `limits` of the service, and get 429 above them; {query}"
            ),
        ),
    }
    let condition = Condition {
        path: Some(path.to_owned()),
        ..Condition::default()
    };
    let action = Action::RespondWithFields {
        status: 200,
        body: "<html><body><h1>200 OK</h1>\nService ready.\n</body></html>\n".to_owned(),
        fields: vec![
            "Cache-Control: no-cache".to_owned(),
            "Content-Type: text/html".to_owned(),
        ],
    };
    let tables = &mut context.writer.document.tables;
    let is_first =
        |table: &Table| table.path == ["route"] && table.text("service") == Some(service);
    let end = tables.len();
    let first = tables.iter().position(is_first).unwrap_or(end);
    let changes = changes.for_response(|_| false);
    let route = (line.position, &condition, &action);
    write_response(context, service, route, &changes, notes);
    let tables = &mut context.writer.document.tables;
    let is_service = |table: &&Table| table.path == ["service", service];
    let mut keys = tables.iter().filter(is_service).flat_map(|it| &it.entries);
    if keys.any(|entry| entry.key == "access_log") {
        for route in &mut tables[end..] {
            route.push(Entry::implied("access_log", false));
        }
    }
    tables[first..].rotate_left(end - first);
}

/// Writes the routes for a response that no rule defines.
pub(super) fn write_response(
    context: &mut Context<'_>,
    service: &str,
    (position, condition, action): (Position, &Condition, &Action),
    changes: &Changes,
    notes: &mut Notes,
) {
    for (condition, edits) in variants(condition, changes, &Changes::default(), notes) {
        context
            .writer
            .route_with_edits(service, position, &condition, action, &edits, notes);
    }
}
