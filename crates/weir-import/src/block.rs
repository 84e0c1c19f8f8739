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

    /// Adds a remark about the directive and its block: the program does not use them, or Weir does not need them.
    pub(crate) fn ignore(&self, notes: &mut Notes, reason: &str) {
        let reason = format!("not imported: {reason}");
        for position in self.block_positions().into_iter().chain([self.position]) {
            notes.remark(position, &reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(line: usize, token: usize, words: &[&str], block: Option<Vec<Node>>) -> Node {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Node::new(Position::new(0, line).token(token), words, block)
    }

    /// Returns the directive `a` of the lines `a x { f;`, `b; c { d }` and `e`, and the notes for this file.
    fn tree() -> (Node, Notes) {
        let inner = vec![node(2, 6, &["d"], None)];
        let block = vec![
            node(1, 3, &["f"], None),
            node(2, 4, &["b"], None),
            node(2, 5, &["c"], Some(inner)),
            node(3, 7, &["e"], None),
        ];
        let mut notes = Notes::default();
        notes.add_file("f", "a x { f;\nb; c { d }\ne\n");
        (node(1, 1, &["a", "x"], Some(block)), notes)
    }

    #[test]
    fn words_and_inner_directives_are_returned() {
        let (node, _) = tree();
        assert_eq!(node.keyword(), "a");
        assert_eq!(
            (node.word(0), node.word(1), node.word(2)),
            (Some("a"), Some("x"), None)
        );
        let inner: Vec<&str> = node.inner().iter().map(Node::keyword).collect();
        assert_eq!(inner, ["f", "b", "c", "e"]);
        let empty = super::Node::new(Position::FIRST, Vec::new(), None);
        assert_eq!((empty.keyword(), empty.word(0)), ("", None));
        assert!(empty.inner().is_empty());
        let mut positions = node.block_positions();
        positions.sort_unstable();
        let at = |line, token| Position::new(0, line).token(token);
        assert_eq!(
            positions,
            [at(1, 3), at(2, 4), at(2, 5), at(2, 6), at(3, 7)]
        );
    }

    #[test]
    fn rejected_block_has_a_note_for_each_line() {
        let (node, mut notes) = tree();
        node.reject(&mut notes, "why");
        assert!(notes.has_note(Position::new(0, 1).token(3)));
        assert_eq!(notes.losses().len(), 3);
        assert_eq!(
            notes.finish(),
            [
                "line 1: a x { f;: not imported: why",
                "line 2: b; c { d }: not imported: it is in the block that begins on line 1, which is not imported",
                "line 3: e: not imported: it is in the block that begins on line 1, which is not imported",
            ]
        );
    }

    #[test]
    fn ignored_block_has_a_remark_for_each_line() {
        let (node, mut notes) = tree();
        node.ignore(&mut notes, "why");
        assert!(notes.losses().is_empty());
        assert!(notes.has_note(Position::new(0, 2).token(6)));
        assert_eq!(
            notes.finish(),
            [
                "line 1: a x { f;: not imported: why",
                "line 2: b; c { d }: not imported: why",
                "line 3: e: not imported: why",
            ]
        );
    }
}
