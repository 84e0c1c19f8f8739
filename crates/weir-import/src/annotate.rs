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
    let losses = notes.losses_by_line();
    for (position, note) in &losses {
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
    let mut copied_len = 0;
    for (start, comments) in comments_before {
        out.push_str(&text.text[copied_len..start]);
        copied_len = start;
        for comment in comments {
            push_comment(&mut out, &comment);
        }
    }
    out.push_str(&text.text[copied_len..]);
    if !losses.is_empty() {
        out.push('\n');
        let lines = losses
            .iter()
            .map(|(position, _)| position.line().to_string());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Entry as Key, Table};

    /// Returns the annotated text of a document that has a table for each of `table_lines` and a loss for each of
    /// `lost_lines`.
    fn annotate_lines(file: &str, table_lines: &[usize], lost_lines: &[usize]) -> String {
        let mut notes = Notes::default();
        notes.add_file("f", file);
        let mut document = Document::default();
        for line in table_lines {
            let position = Position::new(0, *line);
            let mut table = Table::new(&["pool", &format!("p{line}")], position);
            table.push(Key::implied("key", true));
            document.push(table);
        }
        for line in lost_lines {
            notes.add(Position::new(0, *line), "lost");
        }
        annotate(&document, &document.render(), &notes)
    }

    #[test]
    fn comments_and_lost_lines_precede_their_table() {
        for (file, tables, lost, expected) in [
            ("a", &[1][..], &[][..], "[pool.p1]\nkey = true\n"),
            (
                "# one\na\n# two\nb\n",
                &[2, 4],
                &[],
                "# one\n[pool.p2]\nkey = true\n\n# two\n[pool.p4]\nkey = true\n",
            ),
            // A comment is written once for several tables of one line.
            (
                "# one\na\n",
                &[2, 2],
                &[],
                "# one\n[pool.p2]\nkey = true\n\n[pool.p2]\nkey = true\n",
            ),
            (
                "a\nb\nc\n",
                &[1, 3],
                &[2],
                "# LOST line 2: b: lost\n[pool.p1]\nkey = true\n\n[pool.p3]\nkey = true\n\n\
                 # Lines that are not imported, or imported with changes (LOST above): 2\n",
            ),
            // Without a table that precedes the line, the note is before the first table.
            (
                "a\nb\n",
                &[2],
                &[1],
                "# LOST line 1: a: lost\n[pool.p2]\nkey = true\n\n\
                 # Lines that are not imported, or imported with changes (LOST above): 1\n",
            ),
            (
                "a\nb\n",
                &[],
                &[2, 1],
                "# LOST line 1: a: lost\n# LOST line 2: b: lost\n\n\
                 # Lines that are not imported, or imported with changes (LOST above): 1 2\n",
            ),
        ] {
            assert_eq!(annotate_lines(file, tables, lost), expected, "{file:?}");
        }
    }

    #[test]
    fn comment_has_no_control_characters_except_tabs() {
        for (text, expected) in [
            ("a b", "# a b\n"),
            ("a\tb", "# a\tb\n"),
            ("a\u{1}b\u{7f}c\rd", "# abcd\n"),
            ("  a  ", "# a\n"),
        ] {
            let mut out = String::new();
            push_comment(&mut out, text);
            assert_eq!(out, expected, "{text:?}");
        }
    }
}
