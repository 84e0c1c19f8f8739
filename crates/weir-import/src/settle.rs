//! What the configuration's parser refuses is taken out, and said.
//!
//! The importers write what a line means; whether this build has the key, takes the value, and can run the whole, only
//! `weir-config` knows. So the text is given to it, each error is followed back to the line that it comes from, and the
//! smallest part that can be missing is removed, until nothing is refused.

use std::collections::HashSet;

use weir_config::{Code, Diagnostic, Host, Severity};

use crate::Imported;
use crate::document::{Document, Entry, Item, Path, Table, Text, Value};
use crate::note::{Notes, Place};

/// The text that `weir check` accepts, and all notes.
pub(crate) fn settle(mut document: Document, mut notes: Notes) -> Imported {
    loop {
        let text = document.render();
        let found = match weir_config::parse(&text.text, &Host::default()) {
            Ok(parsed) if unreachable(&mut document, &text, &parsed.findings, &mut notes) => {
                continue;
            }
            Ok(_) => {
                return Imported {
                    toml: text.text,
                    losses: notes.losses(),
                    unguarded: notes.unguarded(),
                    notes: notes.finish(),
                };
            }
            Err(found) => found,
        };
        let before = size(&document);
        let errors = found
            .iter()
            .filter(|found| found.severity() == Severity::Error);
        for error in errors {
            strike(&mut document, &text, error, &mut notes);
        }
        sweep(&mut document, &mut notes);
        if size(&document) >= before {
            // An error that belongs to no part of the text: nothing smaller than the last table can go.
            drop_last(&mut document, &mut notes);
        }
    }
}

/// Removes routes to which no request comes, as an earlier one takes them all: alternatives of one rule, and rules that never had an
/// effect. Returns whether there were any.
fn unreachable(
    document: &mut Document,
    text: &Text,
    findings: &[Diagnostic],
    notes: &mut Notes,
) -> bool {
    let table = |at: usize| {
        let tables = text.spans.iter().filter(|(_, path)| path.len() == 1);
        let mut holding = tables.filter(|(span, _)| span.contains(&at));
        holding.next().map(|(_, path)| path[0])
    };
    let mut gone: Vec<(usize, usize)> = Vec::new();
    for finding in findings {
        let earlier = finding.related.first().and_then(|it| table(it.span.start));
        let is_route = |at: &usize| document.tables[*at].path == ["route"];
        let Some(earlier) = earlier.filter(is_route) else {
            continue;
        };
        let further = finding.further.iter().map(|it| it.span.start);
        let places = std::iter::once(finding.span.start).chain(further);
        if finding.code == Code::UnreachableRoute {
            gone.extend(places.filter_map(|at| Some((table(at)?, earlier))));
        }
    }
    for (at, _) in &gone {
        document.tables[*at].dead = true;
    }
    for (at, earlier) in &gone {
        let (from, by) = (document.tables[*at].from, document.tables[*earlier].from);
        let alive = |table: &Table| !table.dead && table.from.is_beside(from);
        if document.tables.iter().any(alive) {
            notes.covered(from);
        } else {
            let line = by.line();
            notes.remark(
                from,
                format!("not carried over: no request comes to it, line {line} takes them before"),
            );
        }
    }
    document.tables.retain(|table| !table.dead);
    !gone.is_empty()
}

/// How much there is; every round makes it less.
fn size(document: &Document) -> usize {
    fn of(value: &Value) -> usize {
        1 + match value {
            Value::List(items) => items.iter().map(|item| of(&item.value)).sum(),
            Value::Table(entries) => entries.iter().map(entry).sum(),
            _ => 0,
        }
    }
    fn entry(entry: &Entry) -> usize {
        of(&entry.item.value) + usize::from(entry.otherwise.is_some())
    }
    let table = |table: &Table| 1 + table.entries.iter().map(entry).sum::<usize>();
    document.tables.iter().map(table).sum()
}

fn drop_last(document: &mut Document, notes: &mut Notes) {
    if let Some(table) = document.tables.pop() {
        notes.say(
            table.from,
            "not carried over: weir check refuses what came of it",
        );
    }
}

/// Marks the smallest part that the error is about.
fn strike(document: &mut Document, text: &Text, error: &Diagnostic, notes: &mut Notes) {
    let at = error.span.start;
    let holds = |(span, _): &&(std::ops::Range<usize>, Path)| span.contains(&at);
    let innermost = text
        .spans
        .iter()
        .filter(holds)
        .min_by_key(|(span, path)| (span.len(), usize::MAX - path.len()));
    let Some((_, path)) = innermost else { return };
    let Some((table, rest)) = path.split_first() else {
        return;
    };
    let Some(table) = document.tables.get_mut(*table) else {
        return;
    };
    let why = format!("not carried over: {}", reason(error));
    let Some((entry, rest)) = rest.split_first() else {
        table.dead = true;
        notes.say(table.from, why);
        return;
    };
    let from = table.from;
    if let Some(entry) = table.entries.get_mut(*entry) {
        strike_entry(entry, rest, from, why, notes);
    }
}

fn strike_entry(entry: &mut Entry, rest: &[usize], from: Place, why: String, notes: &mut Notes) {
    let from = entry.item.from.unwrap_or(from);
    let inner = match (&mut entry.item.value, rest.split_first()) {
        (Value::List(items), Some((at, rest))) => items
            .get_mut(*at)
            .map(|item| strike_item(item, rest, from, &why, notes)),
        (Value::Table(entries), Some((at, rest))) => entries
            .get_mut(*at)
            .map(|entry| strike_entry(entry, rest, from, why.clone(), notes)),
        _ => None,
    };
    if inner.is_some() {
        return;
    }
    match entry.otherwise.take() {
        Some(otherwise) => {
            notes.say(from, format!("{why}; {} in its place", plain(&otherwise)));
            entry.item.value = otherwise;
        }
        None => kill(&mut entry.item, from, &why, notes),
    }
}

/// Marks it, and says so of every line in it.
fn kill(item: &mut Item, from: Place, why: &str, notes: &mut Notes) {
    item.dead = true;
    notes.say(from, why);
    places_of(item, &mut |place| notes.say(place, why));
}

fn strike_item(item: &mut Item, rest: &[usize], from: Place, why: &str, notes: &mut Notes) {
    let from = item.from.unwrap_or(from);
    if let (Value::Table(entries), Some((at, rest))) = (&mut item.value, rest.split_first())
        && let Some(entry) = entries.get_mut(*at)
    {
        return strike_entry(entry, rest, from, why.to_owned(), notes);
    }
    kill(item, from, why, notes);
}

/// The message without its marks of code.
fn reason(error: &Diagnostic) -> String {
    let message = error.message.replace('`', "");
    match &error.cause {
        Some(cause) if error.label.is_empty() => format!("{message} ({})", cause.replace('`', "")),
        _ => message,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Hundredths(number) => (number / 100).to_string(),
        Value::List(_) | Value::Table(_) => "something simpler".to_owned(),
    }
}

/// Removes what is marked, and with it what means nothing without it.
fn sweep(document: &mut Document, notes: &mut Notes) {
    let mut before = lines(document);
    for table in &mut document.tables {
        let mut essential = false;
        table.entries.retain_mut(|entry| {
            let dead = sweep_item(&mut entry.item);
            essential |= dead && entry.essential;
            !dead
        });
        table.dead |= essential;
    }
    let dead: Vec<Vec<String>> = document
        .tables
        .iter()
        .filter(|table| table.dead && !table.repeated)
        .map(|table| table.path.clone())
        .collect();
    for table in &mut document.tables {
        table.dead |= dead.iter().any(|dead| table.path.starts_with(dead));
    }
    orphans(document);
    for table in document.tables.iter().filter(|table| table.dead) {
        before.extend(table.covers.iter().map(|place| (*place, table.from)));
    }
    document.tables.retain(|table| !table.dead);
    let after: HashSet<Place> = lines(document)
        .into_iter()
        .map(|(place, _)| place)
        .collect();
    for (place, owner) in before {
        if after.contains(&place) || notes.speaks_of(place) {
            continue;
        }
        let why = match place == owner {
            true => "not carried over, for want of what it needs".to_owned(),
            false => format!("not carried over, with the rest of line {}", owner.line()),
        };
        notes.say(place, why);
    }
}

/// Every line that something comes of, and that of the table that it stands in.
fn lines(document: &Document) -> Vec<(Place, Place)> {
    let mut lines = Vec::new();
    for table in &document.tables {
        lines.push((table.from, table.from));
        places(&table.entries, &mut |place| lines.push((place, table.from)));
    }
    lines
}

/// Whether nothing is left of it.
fn sweep_item(item: &mut Item) -> bool {
    match &mut item.value {
        Value::List(items) => {
            let before = items.len();
            items.retain_mut(|item| !sweep_item(item));
            item.dead |= items.is_empty() && before > 0;
        }
        Value::Table(entries) => {
            let mut essential = false;
            entries.retain_mut(|entry| {
                let dead = sweep_item(&mut entry.item);
                essential |= dead && entry.essential;
                !dead
            });
            item.dead |= essential;
        }
        _ => {}
    }
    item.dead
}

/// Pools that only a service which is gone had use for go too.
fn orphans(document: &mut Document) {
    let pools = |table: &Table| table.text("pool").map(str::to_owned);
    let (gone, left): (Vec<&Table>, Vec<&Table>) =
        document.tables.iter().partition(|table| table.dead);
    let left: HashSet<String> = left.into_iter().filter_map(pools).collect();
    let gone: HashSet<String> = gone.into_iter().filter_map(pools).collect();
    for table in &mut document.tables {
        if let [kind, name, ..] = table.path.as_slice()
            && kind == "pool"
            && gone.contains(name)
            && !left.contains(name)
        {
            table.dead = true;
        }
    }
}

/// Tells every line that keys and values come from.
pub(crate) fn places(entries: &[Entry], tell: &mut dyn FnMut(Place)) {
    for entry in entries {
        places_of(&entry.item, tell);
    }
}

fn places_of(item: &Item, tell: &mut dyn FnMut(Place)) {
    if let Some(place) = item.from {
        tell(place);
    }
    match &item.value {
        Value::List(items) => items.iter().for_each(|inner| places_of(inner, tell)),
        Value::Table(entries) => places(entries, tell),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: usize) -> Notes {
        let mut notes = Notes::default();
        notes.file("a", &"word\n".repeat(lines));
        notes
    }

    fn pool(place: Place, address: &str) -> Table {
        let mut pool = Table::new(&["pool", "a"], place);
        let servers = vec![Item::new(address, Some(place))];
        pool.push(Entry::new("servers", servers, place));
        pool
    }

    #[test]
    fn a_key_that_is_refused_goes_alone() {
        let place = Place::new(0, 1);
        let mut document = Document::default();
        let mut pool = pool(place, "10.0.0.5");
        pool.push(Entry::new("colour", "red", Place::new(0, 2)));
        document.push(pool);
        let imported = settle(document, file(2));
        assert_eq!(imported.toml, "[pool.a]\nservers = [\n  \"10.0.0.5\",\n]\n");
        assert_eq!(imported.notes.len(), 1);
        assert!(imported.notes[0].starts_with("line 2: word: not carried over:"));
    }

    #[test]
    fn a_service_without_what_it_needs_takes_its_pool_along() {
        let mut document = Document::default();
        document.push(pool(Place::new(0, 3), "10.0.0.5"));
        let mut service = Table::new(&["service", "a"], Place::new(0, 1));
        let listen = vec![Item::new("sctp/192.0.2.1:80", None)];
        service.push(Entry::new("listen", listen, Place::new(0, 2)).essential());
        service.push(Entry::implied("forward", "nat").essential());
        service.push(Entry::implied("pool", "a").essential());
        document.push(service);
        let imported = settle(document, file(3));
        assert_eq!(imported.toml, "");
        let lines: Vec<&str> = imported
            .notes
            .iter()
            .filter_map(|note| note.get(..6))
            .collect();
        assert_eq!(lines, ["line 1", "line 2", "line 3"]);
    }

    #[test]
    fn a_value_that_is_refused_has_another_in_its_place() {
        let place = Place::new(0, 1);
        let mut document = Document::default();
        let mut table = pool(place, "10.0.0.5");
        table.push(Entry::new("no_server", "shout", place).or("drop"));
        document.push(table);
        let imported = settle(document, file(1));
        assert!(imported.toml.contains("no_server = \"drop\""));
        assert!(imported.notes[0].ends_with("; drop in its place"));
    }
}
