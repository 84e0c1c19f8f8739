//! Parses lines into a tree of blocks. A directive is a line of words, optionally followed by a block in braces.

use super::line::Line;
pub(super) use crate::block::Node;
use crate::note::{Notes, Position};

/// Maximum nesting depth; keepalived's blocks are at most five deep.
const MAX_DEPTH: usize = 32;

/// Parses lines into blocks, and adds notes about syntax errors.
pub(super) fn parse_blocks(notes: &mut Notes, lines: &[Line]) -> Vec<Node> {
    let mut index = 0;
    let mut nodes = Vec::new();
    while index < lines.len() {
        nodes.extend(parse_block(notes, lines, &mut index, 0));
        if let Some(line) = lines.get(index) {
            notes.add(line.position, "unexpected closing brace");
            index += 1;
        }
    }
    nodes
}

/// Returns the directives up to the closing brace or the end of the file, and advances `index` to the closing brace.
fn parse_block(notes: &mut Notes, lines: &[Line], index: &mut usize, depth: usize) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    while let Some(line) = lines.get(*index) {
        match line.text.as_str() {
            "}" => return nodes,
            "{" => {
                *index += 1;
                if depth >= MAX_DEPTH {
                    notes.add(line.position, "not imported: blocks are nested too deeply");
                    *index = lines.len();
                    return nodes;
                }
                let inner = parse_block(notes, lines, index, depth + 1);
                match lines.get(*index) {
                    Some(_) => *index += 1,
                    None => notes.add(line.position, "the block has no closing brace"),
                }
                match nodes.last_mut() {
                    Some(directive) if directive.block.is_none() => directive.block = Some(inner),
                    _ => {
                        notes.add(line.position, "not imported: the block has no keyword");
                        for node in inner {
                            node.reject(notes, "it is in a block without a keyword");
                        }
                    }
                }
            }
            text => {
                nodes.push(parse_directive(line.position, text));
                *index += 1;
            }
        }
    }
    nodes
}

fn parse_directive(position: Position, text: &str) -> Node {
    let words = split_words(text);
    let keyword_end = text.find([' ', '\t']).unwrap_or(text.len());
    Node {
        position,
        words,
        arguments: text[keyword_end..].trim().to_owned(),
        block: None,
    }
}

/// Splits text at spaces and tabs; double quotes group words.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut remaining = text.trim();
    while !remaining.is_empty() {
        let (word, rest) = match remaining.strip_prefix('"') {
            Some(inner) => inner.split_once('"').unwrap_or((inner, "")),
            None => remaining.split_at(remaining.find([' ', '\t', '"']).unwrap_or(remaining.len())),
        };
        words.push(word.to_owned());
        remaining = rest.trim_start();
    }
    words
}

/// Splits text into words according to shell quoting rules. Returns `None` if a quote is unterminated or the last
/// character is a backslash.
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

/// Parses a program path and its arguments. If the first word contains spaces, it is the whole command line.
pub(super) fn parse_command(text: &str) -> Option<Vec<String>> {
    let words = shell_words(text)?;
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
        assert_eq!(split_words("a \"b c\" d"), ["a", "b c", "d"]);
        assert_eq!(
            parse_command("\"/bin/a 'b c' d\" user"),
            Some(vec!["/bin/a".into(), "b c".into(), "d".into()])
        );
        assert_eq!(shell_words("a 'b"), None);
        assert_eq!(shell_words("a\\"), None);
    }

    #[test]
    fn words_are_split_at_blanks_outside_of_quotes() {
        for (text, expected) in [
            ("", &[][..]),
            (" \t", &[]),
            ("a\tb  c ", &["a", "b", "c"]),
            ("a\"b c\"d", &["a", "b c", "d"]),
            ("\"\" a", &["", "a"]),
            ("\"a b", &["a b"]),
        ] {
            assert_eq!(split_words(text), expected, "{text}");
        }
        for (text, expected) in [
            ("", &[][..]),
            ("a\tb  c ", &["a", "b", "c"]),
            ("a\"b c\"d", &["ab cd"]),
            ("a'b c'd", &["ab cd"]),
            ("\"a'b\" 'c\"d'", &["a'b", "c\"d"]),
            (r"a\ b \\", &["a b", "\\"]),
            (r#""a\"b" 'c\d'"#, &["a\"b", "c\\d"]),
            ("\"\" ''", &["", ""]),
        ] {
            let words = shell_words(text).unwrap();
            assert_eq!(words, expected, "{text}");
        }
        for text in ["\"a", "'a\"", "a 'b", "\\"] {
            assert_eq!(shell_words(text), None, "{text}");
        }
    }

    #[test]
    fn quoted_command_line_is_split_again() {
        for (text, expected) in [
            ("\"/bin/a 'b c'\" d", Some(&["/bin/a", "b c"][..])),
            ("/bin/a 'b c'", Some(&["/bin/a", "b c"])),
            // A quoted word without spaces is a program path.
            ("\"it's\"", Some(&["it's"])),
            ("\"/bin/a it's\"", None),
            ("/bin/a it's", None),
            ("", Some(&[])),
        ] {
            let expected = expected.map(|words| words.iter().map(ToString::to_string).collect());
            assert_eq!(parse_command(text), expected, "{text}");
        }
    }

    #[test]
    fn blocks_are_nested_up_to_the_limit() {
        let nested = |depth: usize| {
            let texts = (0..depth)
                .flat_map(|_| ["a", "{"])
                .chain((0..depth).map(|_| "}"));
            let lines: Vec<Line> = texts
                .map(|text| Line {
                    position: Position::FIRST,
                    text: text.to_owned(),
                })
                .collect();
            let mut notes = Notes::default();
            notes.add_file("f", "");
            let mut nodes = parse_blocks(&mut notes, &lines);
            let mut count = 0;
            while let Some(node) = nodes.pop() {
                count += 1;
                nodes.extend(node.block.into_iter().flatten());
            }
            (count, notes.finish())
        };
        assert_eq!(nested(2), (2, vec![]));
        assert_eq!(nested(MAX_DEPTH), (MAX_DEPTH, vec![]));
        let (count, notes) = nested(MAX_DEPTH + 1);
        assert_eq!(count, MAX_DEPTH + 1);
        assert!(
            notes
                .iter()
                .any(|note| note.ends_with("blocks are nested too deeply")),
            "{notes:?}"
        );
    }
}
