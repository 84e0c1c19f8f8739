//! Adds comments to the output: each comment and each lost line of the input precedes the table that it belongs to.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::document::{Document, Text};
use crate::note::{Notes, Position};

/// Returns the text with each comment before the table that it belongs to, and a summary at the end. A lost line is
/// written before the last table whose source precedes it, or before the first table.
pub(crate) fn annotate(document: &Document, text: &Text, notes: &Notes) -> String {
    let starts: Vec<(usize, Position)> = text
        .spans
        .iter()
        .filter(|(_, path)| path.len() == 1)
        .map(|(span, path)| (span.start, document.tables[path[0]].position.whole_line()))
        .collect();
    let mut comments_before: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    // Offset of the first table that each line produced.
    let mut first_tables: BTreeMap<Position, usize> = BTreeMap::new();
    for (start, line_position) in &starts {
        // One line can become several tables.
        if let Entry::Vacant(vacant) = first_tables.entry(*line_position) {
            vacant.insert(*start);
            let comments = notes.comments_before(*line_position);
            comments_before.entry(*start).or_default().extend(comments);
        }
    }
    let lost = notes.losses_by_line();
    for (position, note) in &lost {
        let nearest = first_tables.range(..=*position).next_back();
        let nearest = nearest.map(|(_, start)| *start);
        let offset = nearest.or(starts.first().map(|start| start.0));
        let offset = offset.unwrap_or(text.text.len());
        comments_before
            .entry(offset)
            .or_default()
            .push(format!("LOST {note}"));
    }
    let mut out = String::with_capacity(text.text.len());
    let mut written = 0;
    for (start, comments) in comments_before {
        out.push_str(&text.text[written..start]);
        written = start;
        for comment in comments {
            push_comment(&mut out, &comment);
        }
    }
    out.push_str(&text.text[written..]);
    if !lost.is_empty() {
        if !out.is_empty() && !out.ends_with("\n\n") {
            out.push('\n');
        }
        let lines = lost.iter().map(|(position, _)| position.line().to_string());
        let mut lines: Vec<String> = lines.collect();
        lines.dedup();
        push_comment(
            &mut out,
            &format!(
                "Lines that are not imported, or imported with changes (LOST above): {}",
                lines.join(" ")
            ),
        );
    }
    out
}

/// Appends a comment line. TOML allows no control characters except tabs in comments, so other control characters are
/// removed.
fn push_comment(out: &mut String, text: &str) {
    let is_allowed = |c: &char| !c.is_control() || *c == '\t';
    let text: String = text.chars().filter(is_allowed).collect();
    out.push_str("# ");
    out.push_str(text.trim());
    out.push('\n');
}
