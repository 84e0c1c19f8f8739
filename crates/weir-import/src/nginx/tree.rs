//! Parses nginx.conf into directives and blocks, as `src/core/ngx_conf_file.c` does.
//!
//! Words, quotes, `;`, braces, comments and includes are handled.

use std::rc::Rc;

use crate::Environment;
pub(super) use crate::block::Node;
use crate::note::{Notes, Position};

/// Returns the directives with `keyword` that apply, which are those of the first level that has any. `levels` are
/// innermost first.
pub(super) fn inherited<'n>(levels: &[&'n [Node]], keyword: &str) -> Vec<&'n Node> {
    let lines_of = |level: &&'n [Node]| -> Vec<&'n Node> {
        let lines = level.iter().filter(|line| line.keyword() == keyword);
        lines.collect()
    };
    let mut levels = levels.iter().map(lines_of);
    levels.find(|lines| !lines.is_empty()).unwrap_or_default()
}

/// Returns the server block's directives other than `location`; the locations inherit them.
pub(super) fn inheritable_lines(server: &Node) -> Rc<[Node]> {
    let lines = server.inner().iter();
    lines
        .filter(|line| line.keyword() != "location")
        .cloned()
        .collect()
}

/// Returns the prefixes of `^~` locations.
pub(super) fn exclusive_prefixes(server: &Node) -> Vec<String> {
    let is_exclusive = |node: &&Node| node.keyword() == "location" && node.word(1) == Some("^~");
    let paths = server.inner().iter().filter(is_exclusive);
    paths
        .filter_map(|node| node.word(2).map(str::to_owned))
        .collect()
}

/// Maximum depth of blocks and of included files.
const MAX_DEPTH: usize = 16;

/// Maximum number of files.
const MAX_FILES: usize = 1000;

/// Directives with a block that may follow a directive whose `;` is missing.
const BLOCKS: &[&str] = &[
    "location",
    "server",
    "upstream",
    "if",
    "map",
    "geo",
    "limit_except",
    "split_clients",
    "types",
    "events",
    "http",
    "stream",
];

enum Token {
    Word(String),
    End,
    Open,
    Close,
}

/// Returns the directives of a file and its includes.
pub(super) fn read_file(
    environment: &dyn Environment,
    notes: &mut Notes,
    name: &str,
    text: &str,
) -> Vec<Node> {
    parse_file(environment, notes, name, text, 0)
}

fn parse_file(
    environment: &dyn Environment,
    notes: &mut Notes,
    name: &str,
    text: &str,
    depth: usize,
) -> Vec<Node> {
    let file_index = notes.add_file(name, text);
    let tokens = tokenize(notes, file_index, text);
    let mut token_index = 0;
    let mut nodes = Vec::new();
    while token_index < tokens.len() {
        nodes.extend(parse_block(notes, &tokens, &mut token_index, 0));
        if let Some((position, _)) = tokens.get(token_index) {
            notes.add(
                *position,
                "unexpected closing brace, and nginx rejects the file",
            );
            token_index += 1;
        }
    }
    let directory = name
        .rsplit_once('/')
        .map_or("", |(directory, _)| directory)
        .to_owned();
    expand_includes(environment, notes, &directory, nodes, depth)
}

/// Replaces `include` with the contents of the files.
fn expand_includes(
    environment: &dyn Environment,
    notes: &mut Notes,
    directory: &str,
    nodes: Vec<Node>,
    depth: usize,
) -> Vec<Node> {
    let mut all = Vec::new();
    for mut node in nodes {
        if let Some(inner) = node.block.take() {
            node.block = Some(expand_includes(environment, notes, directory, inner, depth));
        }
        let Some(pattern) = node.word(1).filter(|_| node.keyword() == "include") else {
            all.push(node);
            continue;
        };
        if pattern.ends_with("mime.types") {
            let reason = "not imported: Weir has its own list of media types";
            notes.remark(node.position, reason);
            continue;
        }
        let path = if pattern.starts_with('/') || directory.is_empty() {
            pattern.to_owned()
        } else {
            format!("{directory}/{pattern}")
        };
        if depth >= MAX_DEPTH || notes.file_count() > MAX_FILES {
            notes.add(
                node.position,
                "not imported: includes are nested too deeply, or too many files are included",
            );
            continue;
        }
        let paths = environment.glob(&path);
        if paths.is_empty() {
            notes.add(node.position, "not imported: no such file");
        }
        for name in paths {
            match environment.read(&name) {
                Ok(text) => all.extend(parse_file(environment, notes, &name, &text, depth + 1)),
                Err(reason) => notes.add(node.position, format!("not imported: {name}: {reason}")),
            }
        }
    }
    all
}

fn tokenize(notes: &mut Notes, file: usize, text: &str) -> Vec<(Position, Token)> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let position = Position::new(file, line).token(tokens.len());
        match c {
            '\n' => line += 1,
            c if c.is_whitespace() => {}
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            ';' => tokens.push((position, Token::End)),
            '{' => tokens.push((position, Token::Open)),
            '}' => tokens.push((position, Token::Close)),
            quote @ ('"' | '\'') => {
                let mut word = String::new();
                let mut is_closed = false;
                while let Some(c) = chars.next() {
                    line += usize::from(c == '\n');
                    match c {
                        '\\' => {
                            let c = decode_escape(chars.next().unwrap_or('\\'), &mut word);
                            word.push(c);
                        }
                        c if c == quote => {
                            is_closed = true;
                            break;
                        }
                        c => word.push(c),
                    }
                }
                if !is_closed {
                    notes.add(position, "unterminated quote, and nginx rejects the file");
                }
                tokens.push((position, Token::Word(word)));
            }
            first => {
                let mut word = String::new();
                let mut next = Some(first);
                while let Some(c) = next {
                    match c {
                        '\\' => {
                            word.push('\\');
                            word.extend(chars.next());
                        }
                        // `${name}` is part of a word.
                        '$' if chars.peek() == Some(&'{') => {
                            word.push('$');
                            for c in chars.by_ref().take_while(|c| *c != '}') {
                                word.push(c);
                            }
                            word.push('}');
                        }
                        c => word.push(c),
                    }
                    next = chars.next_if(|c| !c.is_whitespace() && !matches!(c, ';' | '{' | '}'));
                    // A brace in a regular expression is a quantifier.
                    if next.is_none() && chars.peek() == Some(&'{') && word.starts_with(['^', '~'])
                    {
                        next = chars.next();
                    }
                }
                tokens.push((position, Token::Word(word)));
            }
        }
    }
    tokens
}

/// Decodes a character after a backslash in quotes; other characters keep the backslash.
fn decode_escape(c: char, word: &mut String) -> char {
    match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        '"' | '\'' | '\\' => c,
        c => {
            word.push('\\');
            c
        }
    }
}

fn parse_block(
    notes: &mut Notes,
    tokens: &[(Position, Token)],
    index: &mut usize,
    depth: usize,
) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut position: Option<Position> = None;
    // A directive with a block begins on a new line, after a directive whose `;` is missing.
    let mut block_start: Option<(usize, Position)> = None;
    while let Some((start, token)) = tokens.get(*index) {
        match token {
            Token::Word(word) => {
                let is_on_new_line = position.is_some_and(|first| !first.is_on_same_line(*start));
                if block_start.is_none() && is_on_new_line && BLOCKS.contains(&word.as_str()) {
                    block_start = Some((words.len(), *start));
                }
                words.push(word.clone());
                position.get_or_insert(*start);
            }
            Token::End => {
                block_start = None;
                let words = std::mem::take(&mut words);
                match position.take() {
                    Some(position) => nodes.push(Node::new(position, words, None)),
                    None => notes.add(*start, "unexpected `;`, and nginx rejects the file"),
                }
            }
            Token::Open => {
                *index += 1;
                if depth >= MAX_DEPTH {
                    notes.add(*start, "not imported: blocks are nested too deeply");
                    *index = tokens.len();
                    return nodes;
                }
                let inner = parse_block(notes, tokens, index, depth + 1);
                if *index >= tokens.len() {
                    notes.add(
                        *start,
                        "the block has no closing brace, and nginx rejects the file",
                    );
                }
                if let (Some((count, block_position)), Some(first)) = (block_start.take(), position)
                {
                    notes.add(first, "the `;` is missing, and nginx rejects the file");
                    let block_words = words.split_off(count);
                    let words = std::mem::replace(&mut words, block_words);
                    nodes.push(Node::new(first, words, None));
                    position = Some(block_position);
                }
                if words.is_empty() {
                    notes.add(
                        *start,
                        "the block has no directive, and nginx rejects the file",
                    );
                    words.push(String::new());
                }
                let position = position.take().unwrap_or(*start);
                let words = std::mem::take(&mut words);
                nodes.push(Node::new(position, words, Some(inner)));
            }
            Token::Close => break,
        }
        *index += 1;
    }
    if let Some(position) = position {
        notes.add(
            position,
            "not imported: the `;` is missing, and nginx rejects the file",
        );
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;

    fn read_all(text: &str) -> (Vec<Node>, Vec<String>) {
        let mut notes = Notes::default();
        let nodes = read_file(&EmptyEnvironment, &mut notes, "f", text);
        (nodes, notes.finish())
    }

    #[test]
    fn directives_and_blocks_are_parsed() {
        let (nodes, notes) = read_all("a 'b c' \"d;\"; # e\nf ~ \\.(x|y)$ {\n  g ${h}i;\n}\n");
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!(nodes[0].words, ["a", "b c", "d;"]);
        assert_eq!(nodes[1].words, ["f", "~", "\\.(x|y)$"]);
        assert_eq!(nodes[1].inner()[0].words, ["g", "${h}i"]);
        assert!(
            nodes[1].inner()[0]
                .position
                .is_on_same_line(Position::new(0, 3))
        );
    }

    #[test]
    fn block_after_directive_without_semicolon_is_parsed() {
        let (nodes, notes) = read_all("a b\nlocation / {\n c;\n}\n");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert_eq!(nodes[0].words, ["a", "b"]);
        assert_eq!(nodes[1].words, ["location", "/"]);
        assert_eq!(nodes[1].inner()[0].words, ["c"]);
        let (nodes, notes) = read_all("location\n~ x {\n c;\n}\n");
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!(nodes[0].words, ["location", "~", "x"]);
    }

    #[test]
    fn each_syntax_error_adds_a_note() {
        for text in ["a", "a {", "}", ";", "{ a; }", "a 'b;"] {
            let (_, notes) = read_all(text);
            assert!(!notes.is_empty(), "{text}");
        }
    }
}
