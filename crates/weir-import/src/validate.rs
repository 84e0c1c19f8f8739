//! Removes settings that the configuration parser rejects, and adds notes.
//!
//! Only `weir-config` defines which keys, values and combinations this build supports. So this module parses the text,
//! traces each error back to its source line, and removes the smallest removable part, until the parser reports no
//! error.

use std::cmp::Reverse;
use std::collections::HashSet;

use weir_config::{Code, Diagnostic, Host, Severity};

use crate::Imported;
use crate::annotate::annotate;
use crate::document::{
    Document, Entry, Item, Path, Table, Text, Value, visit_item_positions, visit_positions,
};
use crate::note::{Notes, Position};
use crate::shared_check::merge_equal_checks;

/// Returns weir.toml without the parts that the parser rejects, and the notes about the source.
pub(crate) fn validate(mut document: Document, mut notes: Notes) -> Imported {
    loop {
        let text = document.render();
        let diagnostics = match weir_config::parse(&text.text, &Host::default()) {
            Ok(parsed)
                if remove_unreachable(&mut document, &text, &parsed.findings, &mut notes) =>
            {
                continue;
            }
            // Equal checks are merged last: until then, each line of a rejected check gets its own note.
            Ok(_) if merge_equal_checks(&mut document, &notes) => continue,
            Ok(_) => {
                return Imported {
                    toml: annotate(&document, &text, &notes),
                    losses: notes.losses(),
                    unguarded: notes.unguarded(),
                    notes: notes.finish(),
                };
            }
            Err(diagnostics) => diagnostics,
        };
        let size_before = size(&document);
        let errors = diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity() == Severity::Error);
        for error in errors {
            mark_error(&mut document, &text, error, &mut notes);
        }
        remove_marked(&mut document, &mut notes);
        if size(&document) >= size_before {
            // The errors caused no removal: remove the last table.
            remove_last(&mut document, &mut notes);
        }
    }
}

/// Removes routes that no request reaches, because an earlier route matches all of their requests: these are
/// alternatives of one rule, or rules without effect. Returns whether any route was removed.
fn remove_unreachable(
    document: &mut Document,
    text: &Text,
    findings: &[Diagnostic],
    notes: &mut Notes,
) -> bool {
    let table_index = |offset: usize| Some(text.table_at(offset)?.0);
    let mut unreachable: Vec<(usize, usize)> = Vec::new();
    for finding in findings {
        let earlier = finding
            .related
            .first()
            .and_then(|it| table_index(it.span.start));
        let is_route = |index: &usize| document.tables[*index].path == ["route"];
        let Some(earlier) = earlier.filter(is_route) else {
            continue;
        };
        let further = finding.further.iter().map(|it| it.span.start);
        let offsets = std::iter::once(finding.span.start).chain(further);
        if finding.code == Code::UnreachableRoute {
            unreachable.extend(offsets.filter_map(|offset| Some((table_index(offset)?, earlier))));
        }
    }
    for (index, _) in &unreachable {
        document.tables[*index].removed = true;
    }
    let tables = document.tables.iter().filter(|table| !table.removed);
    let lines_in_use: HashSet<Position> = tables.map(|table| table.position.whole_line()).collect();
    for (index, earlier) in &unreachable {
        let (position, earlier_position) = (
            document.tables[*index].position,
            document.tables[*earlier].position,
        );
        if lines_in_use.contains(&position.whole_line()) {
            notes.mark_covered(position);
        } else {
            let line = earlier_position.line();
            notes.remark(
                position,
                format!("not imported: no request reaches it, because line {line} already matches the same requests"),
            );
        }
    }
    document.tables.retain(|table| !table.removed);
    !unreachable.is_empty()
}

/// Returns the number of tables, values and fallbacks in the document; every round reduces it.
fn size(document: &Document) -> usize {
    fn value_size(value: &Value) -> usize {
        1 + match value {
            Value::List(items) => items.iter().map(|item| value_size(&item.value)).sum(),
            Value::Table(entries) => entries.iter().map(entry_size).sum(),
            _ => 0,
        }
    }
    fn entry_size(entry: &Entry) -> usize {
        value_size(&entry.item.value) + usize::from(entry.fallback.is_some())
    }
    let table_size = |table: &Table| 1 + table.entries.iter().map(entry_size).sum::<usize>();
    document.tables.iter().map(table_size).sum()
}

fn remove_last(document: &mut Document, notes: &mut Notes) {
    if let Some(table) = document.tables.pop() {
        notes.add(
            table.position,
            "not imported: weir check rejects the result",
        );
    }
}

/// Marks the smallest part that the error is about.
fn mark_error(document: &mut Document, text: &Text, error: &Diagnostic, notes: &mut Notes) {
    let offset = error.span.start;
    let contains = |(span, _): &&(std::ops::Range<usize>, Path)| span.contains(&offset);
    let Some((_, spans)) = text.table_at(offset) else {
        return;
    };
    let innermost = spans
        .iter()
        .filter(contains)
        .min_by_key(|(span, path)| (span.len(), Reverse(path.len())));
    let Some((_, path)) = innermost else { return };
    let Some((table, inner_path)) = path.split_first() else {
        return;
    };
    let Some(table) = document.tables.get_mut(*table) else {
        return;
    };
    let message = format!("not imported: {}", diagnostic_text(error));
    let Some((entry, inner_path)) = inner_path.split_first() else {
        table.removed = true;
        notes.add(table.position, message);
        return;
    };
    let position = table.position;
    if let Some(entry) = table.entries.get_mut(*entry) {
        mark_entry(entry, inner_path, position, message, notes);
    }
}

/// Replaces the value of a key with its fallback, or marks the key or the inner value at `path` as removed.
fn mark_entry(
    entry: &mut Entry,
    path: &[usize],
    position: Position,
    reason: String,
    notes: &mut Notes,
) {
    let position = entry.item.position.unwrap_or(position);
    let inner = match (&mut entry.item.value, path.split_first()) {
        (Value::List(items), Some((index, path))) => items
            .get_mut(*index)
            .map(|item| mark_item(item, path, position, &reason, notes)),
        (Value::Table(entries), Some((index, path))) => entries
            .get_mut(*index)
            .map(|entry| mark_entry(entry, path, position, reason.clone(), notes)),
        _ => None,
    };
    if inner.is_some() {
        return;
    }
    match entry.fallback.take() {
        Some(fallback) => {
            notes.add(
                position,
                format!("{reason}; {} is used instead", display_value(&fallback)),
            );
            entry.item.value = fallback;
        }
        None => mark_removed(&mut entry.item, position, &reason, notes),
    }
}

/// Marks a value as removed, with a note for each of its source lines.
fn mark_removed(item: &mut Item, position: Position, reason: &str, notes: &mut Notes) {
    item.removed = true;
    notes.add(position, reason);
    visit_item_positions(item, &mut |position| notes.add(position, reason));
}

fn mark_item(item: &mut Item, path: &[usize], position: Position, reason: &str, notes: &mut Notes) {
    let position = item.position.unwrap_or(position);
    if let (Value::Table(entries), Some((index, path))) = (&mut item.value, path.split_first())
        && let Some(entry) = entries.get_mut(*index)
    {
        return mark_entry(entry, path, position, reason.to_owned(), notes);
    }
    mark_removed(item, position, reason, notes);
}

/// Returns the message without backticks, followed by the cause if the error has no label.
fn diagnostic_text(error: &Diagnostic) -> String {
    let message = error.message.replace('`', "");
    match &error.cause {
        Some(cause) if error.label.is_empty() => format!("{message} ({})", cause.replace('`', "")),
        _ => message,
    }
}

fn display_value(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Hundredths(number) => (number / 100).to_string(),
        Value::List(_) | Value::Table(_) => "a simpler value".to_owned(),
    }
}

/// Removes the marked parts and everything that requires them, with a note for each source line that disappears.
fn remove_marked(document: &mut Document, notes: &mut Notes) {
    let mut lines_before = source_lines(document);
    for table in &mut document.tables {
        if let Some(status) = table.rejection_status
            && table
                .entries
                .iter()
                .any(|entry| is_action(entry) && entry.item.removed)
        {
            replace_action(table, status);
            continue;
        }
        let mut lost_essential = false;
        table.entries.retain_mut(|entry| {
            let removed = remove_marked_in(&mut entry.item);
            lost_essential |= removed && entry.essential;
            !removed
        });
        table.removed |= lost_essential;
    }
    let removed_paths: HashSet<Vec<String>> = document
        .tables
        .iter()
        .filter(|table| table.removed && !table.repeated)
        .map(|table| table.path.clone())
        .collect();
    for table in &mut document.tables {
        let mut lengths = 1..=table.path.len();
        table.removed |= lengths.any(|length| removed_paths.contains(&table.path[..length]));
    }
    mark_unused_pools(document);
    for table in document.tables.iter().filter(|table| table.removed) {
        lines_before.extend(
            table
                .dependent_lines
                .iter()
                .map(|position| (*position, table.position)),
        );
    }
    document.tables.retain(|table| !table.removed);
    let lines_after: HashSet<Position> = source_lines(document)
        .into_iter()
        .map(|(position, _)| position)
        .collect();
    for (position, owner) in lines_before {
        if lines_after.contains(&position) || notes.has_note(position) {
            continue;
        }
        let reason = match position == owner {
            true => "not imported: a part that it requires is not imported".to_owned(),
            false => format!(
                "not imported: it depends on a part of line {} that is not imported",
                owner.line()
            ),
        };
        notes.add(position, reason);
    }
}

/// Returns whether a key is an action that is replaced by [`Table::rejection_status`] if it is rejected.
fn is_action(entry: &Entry) -> bool {
    matches!(entry.key, "files" | "basic_auth")
}

/// Replaces the action of a route with a status. Keeps the route's conditions, even those that are marked as removed
/// because the parser reported the missing action at them.
fn replace_action(table: &mut Table, status: u64) {
    const CONDITIONS: [&str; 10] = [
        "service",
        "host",
        "path",
        "path_regex",
        "method",
        "header",
        "cookie",
        "query",
        "source",
        "not",
    ];
    (table.rejection_status, table.removed) = (None, false);
    table
        .entries
        .retain(|entry| CONDITIONS.contains(&entry.key));
    for entry in &mut table.entries {
        entry.item.removed = false;
    }
    table.push(Entry::implied("status", status).essential());
}

/// Returns every source line of the document, each with the line of its table.
fn source_lines(document: &Document) -> Vec<(Position, Position)> {
    let mut lines = Vec::new();
    for table in &document.tables {
        lines.push((table.position, table.position));
        visit_positions(&table.entries, &mut |position| {
            lines.push((position, table.position))
        });
    }
    lines
}

/// Removes the marked parts of a value. Returns whether the value itself must be removed.
fn remove_marked_in(item: &mut Item) -> bool {
    match &mut item.value {
        Value::List(items) => {
            let count_before = items.len();
            items.retain_mut(|item| !remove_marked_in(item));
            item.removed |= items.is_empty() && count_before > 0;
        }
        Value::Table(entries) => {
            let mut lost_essential = false;
            entries.retain_mut(|entry| {
                let removed = remove_marked_in(&mut entry.item);
                lost_essential |= removed && entry.essential;
                !removed
            });
            item.removed |= lost_essential;
        }
        _ => {}
    }
    item.removed
}

/// Marks as removed the pools that only removed tables use.
fn mark_unused_pools(document: &mut Document) {
    let pool_of = |table: &Table| table.text("pool").map(str::to_owned);
    let (removed, remaining): (Vec<&Table>, Vec<&Table>) =
        document.tables.iter().partition(|table| table.removed);
    let remaining_pools: HashSet<String> = remaining.into_iter().filter_map(pool_of).collect();
    let removed_pools: HashSet<String> = removed.into_iter().filter_map(pool_of).collect();
    for table in &mut document.tables {
        if let [kind, name, ..] = table.path.as_slice()
            && kind == "pool"
            && removed_pools.contains(name)
            && !remaining_pools.contains(name)
        {
            table.removed = true;
        }
    }
}

#[cfg(test)]
mod tests;
