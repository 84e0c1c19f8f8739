//! Tests lines of nginx.conf: each row has lines, and what they add to weir.toml and to the notes.

mod access;
mod locations;
mod logs;
mod others;
mod pools;
mod rewrites;
mod routes;
mod streams;
mod subrequests;

use super::nginx;
use crate::{EmptyEnvironment, Imported};

/// Lines of nginx.conf, and what they add.
type Row = (&'static str, &'static [&'static str]);

/// Returns the tables of weir.toml without comments, each on one line. Routes have no `service`.
fn tables(toml: &str) -> Vec<String> {
    let table = |block: &str| {
        let lines = block.lines().filter(|line| !line.starts_with('#'));
        let is_route = block.contains("[[route]]");
        let lines = lines.filter(|line| !is_route || !line.starts_with("service = "));
        let lines: Vec<&str> = lines
            .map(|line| line.trim().trim_end_matches(','))
            .collect();
        lines.join("; ").replace("[; ", "[").replace("; ]", "]")
    };
    let tables = toml.split("\n\n").map(table);
    tables.filter(|table| !table.is_empty()).collect()
}

/// Returns the notes without the text of the line; losses begin with `!`, and losses that may admit clients with `!!`.
fn notes(imported: &Imported, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let note = |note: &String| {
        let mark = match (
            imported.unguarded.contains(note),
            imported.losses.contains(note),
        ) {
            (true, _) => "!!",
            (false, true) => "!",
            (false, false) => "",
        };
        let short_note = note.strip_prefix("line ").and_then(|rest| {
            let (number, rest) = rest.split_once(": ")?;
            let line = lines.get(number.parse::<usize>().ok()? - 1)?;
            Some(format!(
                "{number}: {}",
                rest.strip_prefix(line)?.strip_prefix(": ")?
            ))
        });
        format!("{mark}{}", short_note.unwrap_or_else(|| note.clone()))
    };
    imported.notes.iter().map(note).collect()
}

/// Returns what `lines`, in place of `@@` in the template, add to weir.toml and to the notes: new notes; tables that
/// differ, without the entries that they have without `lines`; and new routes with their index.
fn added(template: &str, lines: &str) -> Vec<String> {
    let import = |lines: &str| {
        let text = template.replace("@@", lines);
        let imported = nginx("nginx.conf", &text, &EmptyEnvironment);
        let notes = notes(&imported, &text);
        (tables(&imported.toml), notes)
    };
    let (base_tables, base_notes) = import("");
    let (tables, mut out) = import(lines);
    out.retain(|note| !base_notes.contains(note));
    let is_route = |table: &&String| table.starts_with("[[route]]");
    let routes =
        |tables: &[String]| -> Vec<String> { tables.iter().filter(is_route).cloned().collect() };
    for table in tables
        .iter()
        .filter(|table| !is_route(table) && !base_tables.contains(table))
    {
        let header = table.split("; ").next().unwrap_or_default();
        let mut others = base_tables.iter();
        let base = others.find(|other| other.split("; ").next() == Some(header));
        let base: Vec<&str> = base.map_or(Vec::new(), |base| base.split("; ").skip(1).collect());
        let entries: Vec<&str> = table
            .split("; ")
            .filter(|entry| !base.contains(entry))
            .collect();
        out.push(entries.join("; "));
    }
    let base_routes = routes(&base_tables);
    for (index, route) in routes(&tables).iter().enumerate() {
        if !base_routes.contains(route) {
            out.push(route.replacen("[[route]];", &format!("route {index}:"), 1));
        }
    }
    out.iter().map(|line| line.replace('"', "'")).collect()
}

#[track_caller]
fn assert_added(template: &str, rows: &[Row]) {
    for (lines, expected) in rows {
        assert_eq!(added(template, lines), *expected, "{lines}");
    }
}
