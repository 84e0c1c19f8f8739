//! Defines diagnostics: code, position, cause and fix, and related positions.
//!
//! A diagnostic contains byte spans of the text, not the text itself.

use std::ops::Range;

use weir_model::Source;

use crate::bundle_file;
use crate::code::{Code, Severity};
use crate::tree::shift;

/// A related position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelatedSpan {
    /// Byte range in the text.
    pub span: Range<usize>,
    /// Line and column of the start of the span.
    pub at: Source,
    /// Label of the position.
    pub label: String,
}

/// One problem in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Code of the diagnostic, which determines the severity.
    pub code: Code,
    /// The problem, in one line.
    pub message: String,
    /// Byte range in the text.
    pub span: Range<usize>,
    /// Line and column of the start of the span.
    pub at: Source,
    /// Label of the span; may be empty.
    pub label: String,
    /// Related positions.
    pub related: Vec<RelatedSpan>,
    /// The reason, if the message does not contain it.
    pub cause: Option<String>,
    /// How to fix the problem.
    pub fix: Option<String>,
    /// Further occurrences of the same problem, in text order; at most `MAX_FURTHER`.
    pub further: Vec<Occurrence>,
    /// Number of further occurrences.
    pub further_count: usize,
    /// Identifies the problem if the messages of its occurrences quote different values.
    pub(crate) merge_group: Option<String>,
}

/// A further occurrence of the same problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// Byte range in the text.
    pub span: Range<usize>,
    /// Line and column of the start of the span.
    pub at: Source,
}

impl Diagnostic {
    /// Maximum number of further occurrences to store; the rest are only counted.
    const MAX_FURTHER: usize = 100_000;

    pub(crate) fn new(code: Code, span: &Range<usize>, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            span: span.clone(),
            at: Source::default(),
            label: String::new(),
            related: Vec::new(),
            cause: None,
            fix: None,
            further: Vec::new(),
            further_count: 0,
            merge_group: None,
        }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(crate) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    pub(crate) fn related(mut self, span: &Range<usize>, label: impl Into<String>) -> Self {
        self.related.push(RelatedSpan {
            span: span.clone(),
            at: Source::default(),
            label: label.into(),
        });
        self
    }

    /// Sets the merge group: diagnostics with the same code and group are merged, even if their messages quote
    /// different values.
    pub(crate) fn merge_group(mut self, group: impl Into<String>) -> Self {
        self.merge_group = Some(group.into());
        self
    }

    /// Returns the key for merging occurrences: the merge group if it is set, otherwise texts and related positions.
    pub(crate) fn merge_key(&self) -> String {
        let code = self.code;
        if let Some(group) = &self.merge_group {
            return format!("{code}\0{group}");
        }
        let [cause, fix] = [&self.cause, &self.fix].map(|text| text.as_deref().unwrap_or(""));
        let mut kind = format!("{code}\0\0{}\0{}\0{cause}\0{fix}", self.message, self.label);
        for related in &self.related {
            let Range { start, end } = related.span;
            kind += &format!("\0{start}-{end} {}", related.label);
        }
        kind
    }

    /// Adds an occurrence; the diagnostic keeps the position of the one that comes first in the text.
    pub(crate) fn merge(&mut self, mut other: Self) {
        if other.span == self.span {
            return;
        }
        if other.span.start < self.span.start {
            std::mem::swap(self, &mut other);
            self.further = std::mem::take(&mut other.further);
            self.further_count = other.further_count;
        }
        self.further_count += 1;
        if self.further.len() < Self::MAX_FURTHER {
            self.further.push(Occurrence {
                span: other.span,
                at: Source::default(),
            });
        }
    }

    /// Returns a text such as "1999 more on lines 5-2003"; `None` if there is only one occurrence.
    pub(crate) fn further_text(&self) -> Option<String> {
        /// Maximum number of line ranges to list.
        const MAX_RUNS: usize = 10;
        let count = self.further_count;
        if count == 0 {
            return None;
        }
        let file = self.at.file;
        if self.further.iter().any(|it| it.at.file != file) {
            return Some(format!("{count} more, also in other files"));
        }
        let mut lines: Vec<u32> = self.further.iter().map(|it| it.at.line).collect();
        lines.sort_unstable();
        lines.dedup();
        let is_single_line = lines.len() == 1;
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for line in lines {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == line => *last = line,
                _ => runs.push((line, line)),
            }
        }
        let format_run = |(first, last): &(u32, u32)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let listed_runs: Vec<String> = runs.iter().take(MAX_RUNS).map(format_run).collect();
        let is_complete = runs.len() <= MAX_RUNS && self.further.len() == count;
        let ellipsis = if is_complete { "" } else { ", \u{2026}" };
        let lines = if is_single_line { "line" } else { "lines" };
        let listed_runs = listed_runs.join(", ");
        Some(format!("{count} more on {lines} {listed_runs}{ellipsis}"))
    }

    /// Moves all spans by a number of bytes, for a text that is part of a longer text.
    pub(crate) fn shift(&mut self, offset: usize) {
        shift(&mut self.span, offset);
        self.related
            .iter_mut()
            .for_each(|it| shift(&mut it.span, offset));
        self.further
            .iter_mut()
            .for_each(|it| shift(&mut it.span, offset));
    }

    /// Returns the severity of the code.
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// Line starts of a text, for fast conversion of byte offsets to line and column.
pub(crate) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
    /// Number of characters that start before each multiple of [`STEP`](Self::STEP). It avoids counting columns from
    /// the start of a line with thousands of servers.
    characters: Vec<usize>,
    /// First line and name of every included file; empty without `include`.
    files: Vec<(usize, &'t str)>,
}

impl<'t> Lines<'t> {
    /// Distance between two stored numbers of characters, in bytes: a conversion reads at most this many.
    const STEP: usize = 256;

    pub(crate) fn new(text: &'t str) -> Self {
        let breaks = text
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'\n')
            .map(|(index, _)| index + 1);
        let mut counts = vec![0];
        let mut count = 0;
        for step in text.as_bytes().chunks(Self::STEP) {
            count += characters(step);
            counts.push(count);
        }
        let mut lines = Self {
            text,
            starts: std::iter::once(0).chain(breaks).collect(),
            characters: counts,
            files: Vec::new(),
        };
        if bundle_file::is_bundle(text) {
            let parts = bundle_file::split_bundle(text);
            let included = parts.iter().skip(1);
            lines.files = included
                .map(|part| (lines.index(part.start), part.name))
                .collect();
        }
        lines
    }

    /// Returns the file that contains a line: its number (0 = the main file), its name (empty for the main file) and
    /// its first line.
    fn file(&self, line: usize) -> (usize, &'t str, usize) {
        let count = self.files.partition_point(|(first, _)| *first <= line);
        let file = count.checked_sub(1).and_then(|index| self.files.get(index));
        file.map_or((0, "", 0), |(first, name)| (count, name, *first))
    }

    /// Returns the name of the file that contains a line; `None` = the main file.
    pub(crate) fn file_name(&self, line: usize) -> Option<&'t str> {
        let (number, name, _) = self.file(line);
        (number > 0).then_some(name)
    }

    /// Returns the number of a line in its file, from 1.
    pub(crate) fn number(&self, line: usize) -> usize {
        line - self.file(line).2 + 1
    }

    /// Returns the index, from 0, of the line that contains the offset; the last line for offsets after the end of the
    /// text.
    pub(crate) fn index(&self, offset: usize) -> usize {
        self.starts
            .partition_point(|start| *start <= offset)
            .saturating_sub(1)
    }

    /// Returns the byte range of a line, without its line break.
    pub(crate) fn range(&self, index: usize) -> Range<usize> {
        let start = self.starts.get(index).copied().unwrap_or(self.text.len());
        let end = self
            .starts
            .get(index + 1)
            .map_or(self.text.len(), |next| next - 1);
        let line = self.text.get(start..end).unwrap_or("");
        start..start + line.strip_suffix('\r').unwrap_or(line).len()
    }

    /// Returns the number of characters that start before the offset.
    fn characters_before(&self, offset: usize) -> usize {
        let counted = self.characters.get(offset / Self::STEP).copied();
        let rest = self.text.as_bytes().get(Self::uncounted_bytes(offset));
        counted.unwrap_or(0) + rest.map_or(0, characters)
    }

    /// Returns the range of the bytes between the last stored number and the offset.
    const fn uncounted_bytes(offset: usize) -> Range<usize> {
        offset - offset % Self::STEP..offset
    }

    /// Returns the line and the column, both from 1; the column counts characters.
    pub(crate) fn source(&self, offset: usize) -> Source {
        let index = self.index(offset);
        let start = self.starts.get(index).copied().unwrap_or(0);
        let end = offset.clamp(start, self.text.len());
        let column = self.characters_before(end) - self.characters_before(start);
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (file, _, first) = self.file(index);
        Source {
            line: narrow(index - first + 1),
            column: narrow(column + 1),
            file: narrow(file),
        }
    }
}

/// Returns the number of characters that start in these bytes of UTF-8.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn source_at(line: u32, column: u32) -> Source {
        Source {
            line,
            column,
            file: 0,
        }
    }

    #[test]
    fn columns_count_characters() {
        let lines = Lines::new("a = 1\r\n\u{e9}\u{e9} = 2\n");
        assert_eq!(lines.source(0), source_at(1, 1));
        assert_eq!(lines.range(0), 0..5);
        assert_eq!(lines.source(12), source_at(2, 4));
        assert_eq!(lines.source(99), source_at(3, 1));
    }

    #[test]
    fn long_line_columns_are_not_counted_from_the_line_start() {
        // The text has characters of one to four bytes, so some of them cross a step.
        let text = format!("a = 1\n{}\nb = 2", "x\u{e9}\u{20ac}\u{1f600}".repeat(1_000));
        let lines = Lines::new(&text);
        for (offset, _) in text.char_indices().chain([(text.len(), ' ')]) {
            let before = &text[..offset];
            let start = before.rfind('\n').map_or(0, |index| index + 1);
            let line = 1 + before.matches('\n').count() as u32;
            let column = 1 + text[start..offset].chars().count() as u32;
            assert_eq!(
                lines.source(offset),
                source_at(line, column),
                "offset {offset}"
            );
            assert!(Lines::uncounted_bytes(offset).len() < Lines::STEP);
        }
        let whole = "y".repeat(2 * Lines::STEP);
        assert_eq!(Lines::new(&whole).source(whole.len()), source_at(1, 513));
    }

    fn occurrence(span: Range<usize>, line: u32, file: u32) -> Occurrence {
        let at = Source {
            line,
            column: 1,
            file,
        };
        Occurrence { span, at }
    }

    #[test]
    fn shift_moves_all_positions() {
        let mut diagnostic = Diagnostic::new(Code::Syntax, &(1..2), "").related(&(3..5), "");
        diagnostic.further.push(occurrence(6..9, 1, 0));
        diagnostic.shift(100);
        assert_eq!(diagnostic.span, 101..102);
        assert_eq!(diagnostic.related[0].span, 103..105);
        assert_eq!(diagnostic.further[0].span, 106..109);
    }

    #[test]
    fn merged_diagnostic_keeps_the_first_position() {
        let diagnostic_at = |span| Diagnostic::new(Code::Syntax, &span, "");
        let mut diagnostic = diagnostic_at(5..6);
        diagnostic.merge(diagnostic_at(5..6));
        assert_eq!(diagnostic.further_count, 0);
        diagnostic.merge(diagnostic_at(8..9));
        diagnostic.merge(diagnostic_at(1..2));
        let further: Vec<_> = diagnostic
            .further
            .iter()
            .map(|it| it.span.clone())
            .collect();
        assert_eq!((diagnostic.span, further), (1..2, vec![8..9, 5..6]));
        assert_eq!(diagnostic.further_count, 2);
    }

    #[test]
    fn further_occurrences_are_listed_by_line() {
        let text = |lines: &[u32], count: usize| {
            let mut diagnostic = Diagnostic::new(Code::Syntax, &(0..1), "");
            let further = lines.iter().map(|line| occurrence(0..0, *line, 0));
            diagnostic.further = further.collect();
            diagnostic.further_count = count;
            diagnostic.further_text()
        };
        assert_eq!(text(&[], 0), None);
        let ten: Vec<u32> = (1..=10).map(|number| number * 2).collect();
        let eleven: Vec<u32> = (1..=11).map(|number| number * 2).collect();
        for (lines, count, expected) in [
            (&[5][..], 1, "1 more on line 5"),
            (&[5, 5], 2, "2 more on line 5"),
            (&[7, 5, 6, 9], 4, "4 more on lines 5-7, 9"),
            (&[5], 3, "3 more on line 5, …"),
            (
                &ten,
                10,
                "10 more on lines 2, 4, 6, 8, 10, 12, 14, 16, 18, 20",
            ),
            (
                &eleven,
                11,
                "11 more on lines 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, …",
            ),
        ] {
            assert_eq!(text(lines, count).as_deref(), Some(expected));
        }
        let mut diagnostic = Diagnostic::new(Code::Syntax, &(0..1), "");
        diagnostic.further = vec![occurrence(0..0, 1, 0), occurrence(0..0, 2, 1)];
        diagnostic.further_count = 2;
        let text = diagnostic.further_text();
        assert_eq!(text.as_deref(), Some("2 more, also in other files"));
    }
}
