//! Represents directives with nested blocks, as in nginx.conf and keepalived.conf.

use crate::note::{Notes, Position};

/// A directive.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) position: Position,
    /// The keyword and its arguments. The keyword is empty for a block without a directive.
    pub(crate) words: Vec<String>,
    /// The arguments as text, because keepalived parses some of them with shell quoting; empty for nginx.
    pub(crate) arguments: String,
    pub(crate) block: Option<Vec<Self>>,
}

impl Node {
    /// Returns a directive with an empty argument text.
    pub(crate) const fn new(
        position: Position,
        words: Vec<String>,
        block: Option<Vec<Self>>,
    ) -> Self {
        Self {
            position,
            words,
            arguments: String::new(),
            block,
        }
    }

    /// Returns the keyword.
    pub(crate) fn keyword(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Returns the word at an index; the keyword is word 0.
    pub(crate) fn word(&self, index: usize) -> Option<&str> {
        self.words.get(index).map(String::as_str)
    }

    /// Returns the directives of the block.
    pub(crate) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Returns the positions of all directives in the block, including those in nested blocks.
    pub(crate) fn block_positions(&self) -> Vec<Position> {
        let mut positions = Vec::new();
        let mut pending: Vec<&Self> = self.inner().iter().collect();
        while let Some(node) = pending.pop() {
            positions.push(node.position);
            pending.extend(node.inner());
        }
        positions
    }

    /// Adds notes that the directive and every line of its block are not imported.
    pub(crate) fn reject(&self, notes: &mut Notes, reason: &str) {
        notes.add(self.position, format!("not imported: {reason}"));
        let reason = format!(
            "not imported: it is in the block that begins on line {}, which is not imported",
            self.position.line()
        );
        for position in self.block_positions() {
            match position.is_on_same_line(self.position) {
                true => notes.mark_covered(position),
                false => notes.add(position, &reason),
            }
        }
    }

    /// Adds a remark to the directive and its block: the program does not use them, or Weir does not need them.
    pub(crate) fn ignore(&self, notes: &mut Notes, reason: &str) {
        let reason = format!("not imported: {reason}");
        for position in self.block_positions().into_iter().chain([self.position]) {
            notes.remark(position, &reason);
        }
    }
}
