//! Builds blocks from lines: a directive is a line of words with an optional block in braces.

use super::line::Line;
use crate::note::{Notes, Position};

/// A directive.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) position: Position,
    /// At least one.
    pub(super) words: Vec<String>,
    /// The line without its keyword, for arguments that keepalived parses with shell quoting.
    pub(super) rest: String,
    pub(super) block: Option<Vec<Self>>,
}

/// Maximum nesting depth; keepalived's blocks are at most five deep.
const MAX_DEPTH: usize = 32;

impl Node {
    /// Returns the keyword.
    pub(super) fn keyword(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Returns a word after the keyword, which is word 0.
    pub(super) fn word(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }

    /// Returns the directives of its block.
    pub(super) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Adds notes that the directive and every line of its block are not imported.
    pub(super) fn reject(&self, notes: &mut Notes, why: &str) {
        notes.add(self.position, format!("not imported: {why}"));
        for inner in self.inner() {
            let why = format!(
                "not imported: it is in the block of line {}, which is not imported",
                self.position.line()
            );
            inner.reject_with(notes, &why);
        }
    }

    /// Returns all lines of the block.
    pub(super) fn lines(&self) -> Vec<Position> {
        let mut lines = Vec::new();
        let mut open: Vec<&Self> = self.inner().iter().collect();
        while let Some(node) = open.pop() {
            lines.push(node.position);
            open.extend(node.inner());
        }
        lines
    }

    /// Adds remarks that keepalived uses neither the directive nor any line of its block.
    pub(super) fn ignore(&self, notes: &mut Notes, why: &str) {
        notes.remark(self.position, format!("not imported: {why}"));
        for inner in self.inner() {
            inner.ignore(notes, why);
        }
    }

    fn reject_with(&self, notes: &mut Notes, why: &str) {
        notes.add(self.position, why);
        for inner in self.inner() {
            inner.reject_with(notes, why);
        }
    }
}

/// Parses lines into blocks, and adds notes about unbalanced braces.
pub(super) fn tree(notes: &mut Notes, lines: &[Line]) -> Vec<Node> {
    let mut at = 0;
    let mut nodes = Vec::new();
    while at < lines.len() {
        nodes.extend(block(notes, lines, &mut at, 0));
        if let Some(line) = lines.get(at) {
            notes.add(line.position, "unexpected closing brace");
            at += 1;
        }
    }
    nodes
}

/// Returns the directives up to the closing brace, or to the end.
fn block(notes: &mut Notes, lines: &[Line], at: &mut usize, depth: usize) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    while let Some(line) = lines.get(*at) {
        match line.text.as_str() {
            "}" => return nodes,
            "{" => {
                *at += 1;
                if depth >= MAX_DEPTH {
                    notes.add(line.position, "not imported: blocks are nested too deeply");
                    *at = lines.len();
                    return nodes;
                }
                let inner = block(notes, lines, at, depth + 1);
                match lines.get(*at) {
                    Some(_) => *at += 1,
                    None => notes.add(line.position, "the block has no closing brace"),
                }
                match nodes.last_mut() {
                    Some(owner) if owner.block.is_none() => owner.block = Some(inner),
                    _ => {
                        notes.add(line.position, "not imported: the block has no keyword");
                        for node in inner {
                            node.reject(notes, "it is in a block without a keyword");
                        }
                    }
                }
            }
            text => {
                nodes.push(node(line.position, text));
                *at += 1;
            }
        }
    }
    nodes
}

fn node(position: Position, text: &str) -> Node {
    let words = words(text);
    let keyword = text.find([' ', '\t']).unwrap_or(text.len());
    Node {
        position,
        words,
        rest: text[keyword..].trim().to_owned(),
        block: None,
    }
}

/// Splits at blanks; double quotes group words.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (word, tail) = match rest.strip_prefix('"') {
            Some(inner) => inner.split_once('"').unwrap_or((inner, "")),
            None => rest.split_at(rest.find([' ', '\t', '"']).unwrap_or(rest.len())),
        };
        words.push(word.to_owned());
        rest = tail.trim_start();
    }
    words
}

/// Splits words like a shell, without other shell syntax; `None` = an unterminated quote.
pub(super) fn shell_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => word.get_or_insert_default().push(chars.next()?),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.take());
    quote.is_none().then_some(words)
}

/// Parses a program with its arguments from everything after the keyword. Text in one pair of quotes is a command
/// line.
pub(super) fn command(rest: &str) -> Option<Vec<String>> {
    let words = shell_words(rest)?;
    match words.as_slice() {
        [line, ..] if line.contains(' ') => shell_words(line),
        _ => Some(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_group_words() {
        assert_eq!(words("a \"b c\" d"), ["a", "b c", "d"]);
        assert_eq!(
            command("\"/bin/a 'b c' d\" user"),
            Some(vec!["/bin/a".into(), "b c".into(), "d".into()])
        );
        assert_eq!(shell_words("a 'b"), None);
        assert_eq!(shell_words("a\\"), None);
    }
}
