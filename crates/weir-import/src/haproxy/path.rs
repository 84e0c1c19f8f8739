//! Converts `http-request normalize-uri`, which determines the form in which paths are compared and forwarded.

use super::Context;
use super::line::Line;
use super::rule::condition;
use super::section::Proxy;
use crate::document::{Entry, Table};
use crate::note::Notes;

/// Normalizers that `normalize_path` of a service always applies.
const ALWAYS_APPLIED: [&str; 4] = [
    "path-strip-dot",
    "path-strip-dotdot",
    "percent-decode-unreserved",
    "percent-to-uppercase",
];
/// Normalizer that is optional in Weir.
const MERGE_SLASHES: &str = "path-merge-slashes";

/// Adds `normalize_path`. Without a normalizing rule in the frontend, haproxy compares paths as received; with such a
/// rule, it compares and forwards the normalized path.
pub(super) fn push_normalize_path(
    context: &mut Context<'_>,
    table: &mut Table,
    proxy: &Proxy,
    notes: &mut Notes,
) {
    let rules = proxy.lines.iter().filter(|line| is_normalizer(line));
    let mut requested: Vec<(&str, &Line)> = Vec::new();
    for line in rules {
        let (action, words) = condition(line.arguments());
        let name = action.get(1).map_or("", String::as_str);
        match name {
            _ if !words.is_empty() => {
                line.reject(
                    notes,
                    "a service's `normalize_path` applies to all of its requests",
                );
            }
            name if name == MERGE_SLASHES || ALWAYS_APPLIED.contains(&name) => {
                context.mark_used(line);
                requested.push((name, line));
            }
            "fragment-strip" | "fragment-encode" => {
                line.reject(
                    notes,
                    "Weir responds with status 400 to a target with a fragment",
                );
            }
            "query-sort-by-name" => line.reject(notes, "Weir does not change queries"),
            _ => line.reject(notes, "a service's `normalize_path` has no such option"),
        }
    }
    let Some((_, first)) = requested.first() else {
        table.push(Entry::implied("normalize_path", false));
        return;
    };
    let is_requested = |name: &str| requested.iter().any(|(requested, _)| *requested == name);
    let mut entries = vec![Entry::new("forward", "normalized", first.position)];
    if !is_requested(MERGE_SLASHES) {
        entries.push(Entry::new("merge_slashes", false, first.position));
    }
    let additional: Vec<&str> = ALWAYS_APPLIED
        .into_iter()
        .filter(|name| !is_requested(name))
        .collect();
    if !additional.is_empty() {
        let additional = additional.join(", ");
        notes.add(
            first.position,
            format!("a service's `normalize_path` also applies {additional}"),
        );
    }
    table.push(Entry::implied("normalize_path", entries));
}

/// Returns whether a line normalizes paths.
pub(super) fn is_normalizer(line: &Line) -> bool {
    line.keyword() == "http-request" && line.word(1) == Some("normalize-uri")
}

#[cfg(test)]
mod tests;
