//! One finding: code, place, cause and fix, and the second place when two contradict.
//!
//! A diagnostic holds byte spans into the text that it was found in; it does not hold the text.

use std::ops::Range;

use weir_model::Source;

use crate::code::{Code, Severity};

/// A second place that a finding speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Related {
    /// Bytes of the text.
    pub span: Range<usize>,
    /// Line and column of the span's start.
    pub at: Source,
    /// What is there.
    pub label: String,
}

/// One finding about a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Number, which gives the severity too.
    pub code: Code,
    /// What is wrong, in one line.
    pub message: String,
    /// Bytes of the text.
    pub span: Range<usize>,
    /// Line and column of the span's start.
    pub at: Source,
    /// What is at the span; may be empty.
    pub label: String,
    /// Other places of the same finding.
    pub related: Vec<Related>,
    /// Why it is so; may be absent where the message says it.
    pub cause: Option<String>,
    /// What to write instead.
    pub fix: Option<String>,
}

impl Diagnostic {
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

    pub(crate) fn also(mut self, span: &Range<usize>, label: impl Into<String>) -> Self {
        self.related.push(Related {
            span: span.clone(),
            at: Source::default(),
            label: label.into(),
        });
        self
    }

    /// The weight of the code.
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// Line starts of a text, to turn byte offsets into line and column without reading it again each time.
pub(crate) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let breaks = text
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'\n')
            .map(|(at, _)| at + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(breaks).collect(),
        }
    }

    /// Index of the line, from 0, that holds the offset; an offset behind the text is in the last line.
    pub(crate) fn index(&self, offset: usize) -> usize {
        self.starts
            .partition_point(|start| *start <= offset)
            .saturating_sub(1)
    }

    /// Bytes of a line, without its line break.
    pub(crate) fn range(&self, index: usize) -> Range<usize> {
        let start = self.starts.get(index).copied().unwrap_or(self.text.len());
        let end = self
            .starts
            .get(index + 1)
            .map_or(self.text.len(), |next| next - 1);
        let line = self.text.get(start..end).unwrap_or("");
        start..start + line.strip_suffix('\r').unwrap_or(line).len()
    }

    /// Line and column, both from 1, the column in characters.
    pub(crate) fn source(&self, offset: usize) -> Source {
        let index = self.index(offset);
        let start = self.starts.get(index).copied().unwrap_or(0);
        let end = offset.clamp(start, self.text.len());
        // An offset inside a character counts it: what counts are the octets that begin one.
        let column = self.text.as_bytes()[start..end]
            .iter()
            .filter(|octet| **octet & 0xc0 != 0x80)
            .count();
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Source {
            line: narrow(index + 1),
            column: narrow(column + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_end_at_their_break() {
        let lines = Lines::new("a = 1\r\n\u{e9}\u{e9} = 2\n");
        assert_eq!(lines.source(0), Source { line: 1, column: 1 });
        assert_eq!(lines.range(0), 0..5);
        assert_eq!(lines.source(12), Source { line: 2, column: 4 });
        assert_eq!(lines.source(99), Source { line: 3, column: 1 });
    }
}
