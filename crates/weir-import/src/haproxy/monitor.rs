//! Converts `monitor-uri` and `monitor-net`.
//!
//! haproxy responds to these requests itself, before all rules, and neither counts nor logs them.

use std::net::IpAddr;

use super::Context;
use super::header::{Changes, variants};
use super::line::Line;
use super::section::Proxy;
use crate::document::{Entry, Table};
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Position};

/// Adds routes for `monitor-uri /alive` and `monitor-net 10.0.0.0/8`, before the other routes of the service. `limits`
/// contains keys of the service's `limits`.
pub(super) fn add_routes(
    context: &mut Context<'_>,
    proxy: &Proxy,
    service: &str,
    (changes, limits): (&Changes, &[Entry]),
    notes: &mut Notes,
) {
    let mut conditions = Vec::new();
    for line in ["monitor-net", "monitor-uri"]
        .into_iter()
        .filter_map(|keyword| proxy.last(&[keyword]))
        .filter(|_| proxy.is_http())
    {
        let Some(condition) = condition_of(line) else {
            continue;
        };
        context.mark_used(line);
        let mut reasons = Vec::new();
        if !limits.is_empty() {
            reasons.push(
                "these requests count toward the service's `limits`; excess requests get status 429",
            );
        }
        if condition.path.is_some() {
            reasons.push("the route also matches the path with a query");
        }
        match limits.is_empty() {
            _ if reasons.is_empty() => {}
            true => notes.remark(line.position, reasons.join("; ")),
            false => notes.add(line.position, reasons.join("; ")),
        }
        conditions.push((line.position, condition));
    }
    if conditions.is_empty() {
        return;
    }
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
    for (position, condition) in &conditions {
        let route = (*position, condition, &action);
        write_response(context, service, route, &changes, notes);
    }
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

/// Returns the condition for the requests that haproxy responds to itself, or `None` if Weir has no such condition.
fn condition_of(line: &Line) -> Option<Condition> {
    let argument = line.word(1)?;
    if line.keyword() == "monitor-uri" {
        let is_path = argument.starts_with('/') && !argument.contains(['*', '?']);
        return is_path.then(|| Condition {
            path: Some(argument.to_owned()),
            ..Condition::default()
        });
    }
    let (address, prefix) = argument.split_once('/').unwrap_or((argument, "0"));
    let is_network = address.parse::<IpAddr>().is_ok() && prefix.parse::<u8>().is_ok();
    is_network.then(|| Condition {
        sources: vec![argument.to_owned()],
        ..Condition::default()
    })
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
