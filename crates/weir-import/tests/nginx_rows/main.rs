//! Tests the import of nginx.conf row by row.
//!
//! Rows are separated by empty lines. A row has lines of nginx.conf, and after `=>` the tables and notes of its import;
//! `..` continues a line. If a row contains no server block, its lines are those of one.

mod expand;
mod header;
mod limit;
mod location;
mod location_targets;
mod page;
mod server;
mod split;
mod value_map;

use std::net::IpAddr;

use weir_import::{Environment, Imported, nginx};

/// Defines the upstreams `a` and `b`.
const UPSTREAMS: &str = "upstream a { server 10.0.0.5; } upstream b { server 10.0.0.6; }";
/// The statuses of responses to which nginx adds fields without `always`.
const SUCCESSES: &str = "status = \"200-201,204,206,301-304,307-308\"";
/// Maximum length, in characters, of the part of a note's reason that a row contains.
const REASON_LENGTH: usize = 50;

/// An environment in which one file is known to be missing.
struct Files;

impl Environment for Files {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("there are no files".to_owned())
    }

    fn has_file(&self, path: &str) -> Option<bool> {
        (path == "/srv/none.html").then_some(false)
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn address(&self, _: &str, _: bool) -> Option<IpAddr> {
        None
    }

    fn port(&self, _: &str, _: &str) -> Option<u16> {
        None
    }

    fn host_name(&self) -> String {
        String::new()
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// Returns the tables, without those of the upstreams and of the empty pool, and without keys that have the same value
/// in every row.
fn tables(toml: &str) -> Vec<String> {
    const OMITTED_TABLES: [&str; 3] = ["[pool.a]", "[pool.b]", "[pool.no-servers]"];
    const OMITTED_KEYS: [&str; 4] = ["forward", "forwarded", "protocol", "service"];
    let mut texts = Vec::new();
    for table in toml.split("\n\n") {
        let mut lines = table.lines().filter(|line| !line.starts_with('#'));
        let Some(name) = lines.by_ref().find(|line| line.starts_with('[')) else {
            continue;
        };
        if OMITTED_TABLES.contains(&name) {
            continue;
        }
        let is_shown = |line: &&str| {
            let key = line.split(' ').next().unwrap_or_default();
            !OMITTED_KEYS.contains(&key) && *line != "listen = [\"0.0.0.0:80\"]"
        };
        let keys: Vec<&str> = lines.filter(is_shown).map(str::trim).collect();
        let keys = keys.join("; ").replace(SUCCESSES, "status = SUCCESSES");
        texts.push(format!("{}: {keys}", name.trim_matches(['[', ']'])));
    }
    texts
}

/// Returns the kind, the line and the beginning of the reason of each note, except for notes about unused upstreams.
fn notes(text: &str, imported: &Imported) -> Vec<String> {
    let mut texts = Vec::new();
    for note in &imported.notes {
        let kind = match (
            imported.losses.contains(note),
            imported.unguarded.contains(note),
        ) {
            (_, true) => "unguarded",
            (true, false) => "lost",
            (false, false) => "remark",
        };
        let rest = note
            .strip_prefix("line ")
            .and_then(|rest| rest.split_once(": "));
        let (number, rest) = rest.unwrap_or_else(|| panic!("no line: {note}"));
        let index = number.parse::<usize>().expect("the line has a number") - 1;
        let source = text.lines().nth(index).unwrap_or_default().trim();
        let reason = rest
            .strip_prefix(source)
            .and_then(|rest| rest.strip_prefix(": "));
        let reason = reason.unwrap_or(rest);
        let reason = reason.strip_prefix("not imported: ").unwrap_or(reason);
        if !reason.ends_with("uses this upstream") {
            let reason: String = reason.chars().take(REASON_LENGTH).collect();
            texts.push(format!("{kind} {number}: {}", reason.trim_end()));
        }
    }
    texts
}

/// Asserts that the import of each row's lines has the row's tables and notes.
#[track_caller]
fn assert_rows(rows: &str) {
    for row in rows.trim_matches('\n').split("\n\n") {
        let (mut lines, mut expected) = (Vec::new(), Vec::<String>::new());
        for line in row.lines() {
            match (
                line.strip_prefix("=> "),
                line.strip_prefix(".. "),
                expected.last_mut(),
            ) {
                (Some(line), ..) => expected.push(line.to_owned()),
                (None, Some(rest), Some(last)) => last.push_str(&format!(" {rest}")),
                _ => lines.push(line),
            }
        }
        let lines = lines.join("\n");
        let text = match lines.contains("server {") {
            true => format!("{UPSTREAMS}\n{lines}"),
            false => format!("{UPSTREAMS} server {{ listen 80;\n{lines}\n}}"),
        };
        let imported = nginx("nginx.conf", &text, &Files);
        let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
        assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
        let mut actual = tables(&imported.toml);
        actual.extend(notes(&text, &imported));
        assert_eq!(actual, expected, "{lines}");
    }
}
