//! `http-request normalize-uri`: in which form paths are compared and passed on.

use super::Context;
use super::line::Line;
use super::rule::condition;
use super::section::Proxy;
use crate::document::{Entry, Table};
use crate::note::Notes;

/// Normalizers that a service's `normalize_path` does in any case, and the one that it may leave out.
const ALWAYS: [&str; 4] = [
    "path-strip-dot",
    "path-strip-dotdot",
    "percent-decode-unreserved",
    "percent-to-uppercase",
];
const MERGE: &str = "path-merge-slashes";

/// haproxy compares paths as they are received where no rule of the frontend normalizes them, and passes on what its rules make.
pub(super) fn normalize_path(
    context: &mut Context<'_>,
    table: &mut Table,
    proxy: &Proxy,
    notes: &mut Notes,
) {
    let rules = proxy.lines.iter().filter(|line| is_normalizer(line));
    let mut asked: Vec<(&str, &Line)> = Vec::new();
    for line in rules {
        let (what, words) = condition(line.arguments());
        let name = what.get(1).map_or("", String::as_str);
        match name {
            _ if !words.is_empty() => {
                line.refuse(
                    notes,
                    "`normalize_path` of a service is for all of its requests",
                );
            }
            name if name == MERGE || ALWAYS.contains(&name) => {
                context.uses(line);
                asked.push((name, line));
            }
            "fragment-strip" | "fragment-encode" => {
                line.refuse(notes, "Weir answers a target with a fragment by 400");
            }
            "query-sort-by-name" => line.refuse(notes, "Weir passes queries on as they are"),
            _ => line.refuse(notes, "`normalize_path` of a service has no such word"),
        }
    }
    let Some((_, first)) = asked.first() else {
        table.push(Entry::implied("normalize_path", false));
        return;
    };
    let is_asked = |name: &str| asked.iter().any(|(asked, _)| *asked == name);
    let mut entries = vec![Entry::new("forward", "normalized", first.place)];
    if !is_asked(MERGE) {
        entries.push(Entry::new("merge_slashes", false, first.place));
    }
    let more: Vec<&str> = ALWAYS.into_iter().filter(|name| !is_asked(name)).collect();
    if !more.is_empty() {
        let more = more.join(", ");
        notes.say(first.place, format!("Weir's normal form includes {more}"));
    }
    table.push(Entry::implied("normalize_path", entries));
}

pub(super) fn is_normalizer(line: &Line) -> bool {
    line.keyword() == "http-request" && line.word(1) == Some("normalize-uri")
}
