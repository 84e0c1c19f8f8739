//! Lines to blocks: a directive is a line of words, and what stands in braces behind it.

use super::line::Line;
use crate::note::{Notes, Place};

/// A directive.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    /// At least one.
    pub(super) words: Vec<String>,
    /// The line without its keyword, for what keepalived hands to a shell's rules of quoting.
    pub(super) rest: String,
    pub(super) block: Option<Vec<Self>>,
}

/// Blocks of keepalived are five deep at most.
const DEEPEST: usize = 32;

impl Node {
    /// The word that says what it is.
    pub(super) fn keyword(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// A word behind the keyword, from 1.
    pub(super) fn word(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }

    /// What stands in its braces.
    pub(super) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Says of it, and of every line in its braces, that it was not carried over.
    pub(super) fn refuse(&self, notes: &mut Notes, why: &str) {
        notes.say(self.place, format!("not carried over: {why}"));
        for inner in self.inner() {
            let why = format!(
                "not carried over, with the block of line {}",
                self.place.line()
            );
            inner.refuse_with(notes, &why);
        }
    }

    /// The lines of everything in its braces.
    pub(super) fn lines(&self) -> Vec<Place> {
        let mut lines = Vec::new();
        let mut open: Vec<&Self> = self.inner().iter().collect();
        while let Some(node) = open.pop() {
            lines.push(node.place);
            open.extend(node.inner());
        }
        lines
    }

    fn refuse_with(&self, notes: &mut Notes, why: &str) {
        notes.say(self.place, why);
        for inner in self.inner() {
            inner.refuse_with(notes, why);
        }
    }
}

/// The blocks that the lines make. A brace too many, or too few, is said.
pub(super) fn tree(notes: &mut Notes, lines: &[Line]) -> Vec<Node> {
    let mut at = 0;
    let mut nodes = Vec::new();
    while at < lines.len() {
        nodes.extend(block(notes, lines, &mut at, 0));
        if let Some(line) = lines.get(at) {
            notes.say(line.place, "a closing brace too many");
            at += 1;
        }
    }
    nodes
}

/// Directives up to the brace that closes the block, or to the end.
fn block(notes: &mut Notes, lines: &[Line], at: &mut usize, depth: usize) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    while let Some(line) = lines.get(*at) {
        match line.text.as_str() {
            "}" => return nodes,
            "{" => {
                *at += 1;
                if depth >= DEEPEST {
                    notes.say(line.place, "not carried over: blocks in blocks without end");
                    *at = lines.len();
                    return nodes;
                }
                let inner = block(notes, lines, at, depth + 1);
                match lines.get(*at) {
                    Some(_) => *at += 1,
                    None => notes.say(line.place, "this block has no closing brace"),
                }
                match nodes.last_mut() {
                    Some(owner) if owner.block.is_none() => owner.block = Some(inner),
                    _ => {
                        notes.say(
                            line.place,
                            "not carried over: a block that belongs to nothing",
                        );
                        for node in inner {
                            node.refuse(notes, "it stands in a block that belongs to nothing");
                        }
                    }
                }
            }
            text => {
                nodes.push(node(line.place, text));
                *at += 1;
            }
        }
    }
    nodes
}

fn node(place: Place, text: &str) -> Node {
    let words = words(text);
    let keyword = text.find([' ', '\t']).unwrap_or(text.len());
    Node {
        place,
        words,
        rest: text[keyword..].trim().to_owned(),
        block: None,
    }
}

/// Words between blanks; double quotes hold words together.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (word, left) = match rest.strip_prefix('"') {
            Some(inner) => inner.split_once('"').unwrap_or((inner, "")),
            None => rest.split_at(rest.find([' ', '\t', '"']).unwrap_or(rest.len())),
        };
        words.push(word.to_owned());
        rest = left.trim_start();
    }
    words
}

/// Words as a shell would cut them, without anything else of a shell; `None` = a quote does not end.
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

/// A program with its arguments, from all that stands behind the keyword; what is in one pair of quotes is a line of its own.
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
    fn quotes_hold_words_together() {
        assert_eq!(words("a \"b c\" d"), ["a", "b c", "d"]);
        assert_eq!(
            command("\"/bin/a 'b c' d\" user"),
            Some(vec!["/bin/a".into(), "b c".into(), "d".into()])
        );
        assert_eq!(shell_words("a 'b"), None);
        assert_eq!(shell_words("a\\"), None);
    }
}
