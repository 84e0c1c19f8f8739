//! Parses nginx.conf into directives and blocks, as `src/core/ngx_conf_file.c` does.
//!
//! Words, quotes, `;`, braces, comments and includes are handled.

use std::rc::Rc;

use crate::Environment;
pub(super) use crate::block::Node;
use crate::note::{Notes, Position};

/// Returns the directives with `keyword` that apply: those of the innermost level that has any. `levels` begin with the
/// innermost.
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

/// Maximum nesting depth of blocks, and of includes.
const MAX_DEPTH: usize = 16;

/// Maximum number of files.
const MAX_FILES: usize = 1000;

/// Directives with a block. On a new line, they end the previous directive if its `;` is missing.
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
                "unexpected closing brace; nginx rejects the file",
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

/// Replaces each `include` with the directives of the included files.
fn expand_includes(
    environment: &dyn Environment,
    notes: &mut Notes,
    directory: &str,
    nodes: Vec<Node>,
    depth: usize,
) -> Vec<Node> {
    let mut expanded = Vec::new();
    for mut node in nodes {
        if let Some(inner) = node.block.take() {
            node.block = Some(expand_includes(environment, notes, directory, inner, depth));
        }
        let Some(pattern) = node.word(1).filter(|_| node.keyword() == "include") else {
            expanded.push(node);
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
                Ok(text) => {
                    expanded.extend(parse_file(environment, notes, &name, &text, depth + 1))
                }
                Err(reason) => notes.add(node.position, format!("not imported: {name}: {reason}")),
            }
        }
    }
    expanded
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
                    notes.add(position, "unterminated quote; nginx rejects the file");
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
                }
                tokens.push((position, Token::Word(word)));
            }
        }
    }
    tokens
}

/// Returns the character that a backslash and `c` mean in quotes. If this is no escape sequence, adds the backslash to
/// `word` and returns `c`.
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
                    None => notes.add(*start, "unexpected `;`; nginx rejects the file"),
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
                        "the block has no closing brace; nginx rejects the file",
                    );
                }
                if let (Some((count, block_position)), Some(first)) = (block_start.take(), position)
                {
                    notes.add(first, "the `;` is missing; nginx rejects the file");
                    let block_words = words.split_off(count);
                    let words = std::mem::replace(&mut words, block_words);
                    nodes.push(Node::new(first, words, None));
                    position = Some(block_position);
                }
                if words.is_empty() {
                    notes.add(*start, "the block has no directive; nginx rejects the file");
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
            "not imported: the `;` is missing; nginx rejects the file",
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

    #[test]
    fn words_are_split_as_in_nginx() {
        for (text, expected) in [
            ("a b\tc\n d;", vec!["a", "b", "c", "d"]),
            ("a#b c;", vec!["a#b", "c"]),
            (
                r#"a "b\"c\n\t\r\\\d" 'e"f';"#,
                vec!["a", "b\"c\n\t\r\\\\d", "e\"f"],
            ),
            (r"a \{b\;c\ d;", vec!["a", r"\{b\;c\ d"]),
            ("a $b${c}d$ {x;}", vec!["a", "$b${c}d$"]),
            ("a '^/b{2}c$' ^/{ x; }", vec!["a", "^/b{2}c$", "^/"]),
            ("a ${b c}d;", vec!["a", "${b c}d"]),
            ("a b'c'd;", vec!["a", "b'c'd"]),
            ("# x ;{\na b;", vec!["a", "b"]),
            ("a '';", vec!["a", ""]),
        ] {
            let (nodes, notes) = read_all(text);
            assert_eq!(nodes[0].words, expected, "{text}");
            assert!(notes.is_empty(), "{text}: {notes:?}");
        }
        let (nodes, _) = read_all("a b{c;}");
        assert_eq!(nodes[0].words, ["a", "b"]);
        assert_eq!(nodes[0].inner()[0].words, ["c"]);
    }

    #[test]
    fn lines_are_counted_in_comments_and_quotes() {
        let (nodes, _) = read_all("# a\n\nb 'c\nd' \"\n\";\ne;\n");
        let lines: Vec<usize> = nodes.iter().map(|node| node.position.line()).collect();
        assert_eq!(lines, [3, 6]);
    }

    #[test]
    fn syntax_errors_are_reported_with_line_and_reason() {
        const SUFFIX: &str = "; nginx rejects the file";
        for (text, expected) in [
            ("a;\nb", "line 2: b: not imported: the `;` is missing"),
            ("a;\nb {\nc;", "line 2: b {: the block has no closing brace"),
            ("a;\n}\nb;", "line 2: }: unexpected closing brace"),
            ("a;\n;b;", "line 2: ;b;: unexpected `;`"),
            ("a;\n{ b; }", "line 2: { b; }: the block has no directive"),
            ("a;\nb 'c;", "line 2: b 'c;: unterminated quote"),
            ("a b\nserver {\n}", "line 1: a b: the `;` is missing"),
        ] {
            let (_, notes) = read_all(text);
            assert_eq!(notes[0], format!("{expected}{SUFFIX}"), "{text}");
        }
        let (nodes, notes) = read_all("a;\n}\nb;");
        assert_eq!((nodes.len(), notes.len()), (2, 1));
        // Only a block's directive on a new line ends the previous one.
        for text in ["a\nb {\n}", "a location {\n}", "location\n/ {\n}"] {
            let (nodes, notes) = read_all(text);
            assert_eq!((nodes.len(), notes.len()), (1, 0), "{text}");
        }
        let (nodes, notes) = read_all("a b\nlocation x;\nlocation y {}");
        assert_eq!(nodes[0].words, ["a", "b", "location", "x"]);
        assert_eq!((nodes.len(), notes.len()), (2, 0));
        let (nodes, _) = read_all("a b\nlocation x\nlocation y { }");
        assert_eq!(nodes[1].words, ["location", "x", "location", "y"]);
    }

    #[test]
    fn nesting_depth_of_blocks_is_limited() {
        let nested = |depth: usize| format!("{}{}", "a {\n".repeat(depth), "}\n".repeat(depth));
        let (_, notes) = read_all(&nested(MAX_DEPTH));
        assert!(notes.is_empty(), "{notes:?}");
        let (_, notes) = read_all(&nested(MAX_DEPTH + 1));
        let too_deep = "line 17: a {: not imported: blocks are nested too deeply";
        assert!(notes.contains(&too_deep.to_owned()), "{notes:?}");
    }

    #[test]
    fn directives_of_the_innermost_level_apply() {
        let (inner, _) = read_all("a 1; b 2; a 3;");
        let (outer, _) = read_all("a 4; c 5;");
        let values = |keyword| -> Vec<&str> {
            let lines = inherited(&[&inner, &outer], keyword).into_iter();
            lines.filter_map(|line| line.word(1)).collect()
        };
        assert_eq!(values("a"), ["1", "3"]);
        assert_eq!(values("b"), ["2"]);
        assert_eq!(values("c"), ["5"]);
        assert!(values("d").is_empty());
    }

    #[test]
    fn exclusive_prefixes_and_inheritable_lines_are_found() {
        let (nodes, _) = read_all(
            "server { root /a; location ^~ /b { } location /c { } location ^~ /d { } if ^~ /e { } location ^~; }",
        );
        assert_eq!(exclusive_prefixes(&nodes[0]), ["/b", "/d"]);
        let lines = inheritable_lines(&nodes[0]);
        let keywords: Vec<&str> = lines.iter().map(Node::keyword).collect();
        assert_eq!(keywords, ["root", "if"]);
    }

    /// Contains the files `/etc/N.conf`. Each file with a number below 100 includes the next one.
    struct Files;

    impl Environment for Files {
        fn read(&self, path: &str) -> Result<String, String> {
            let name = path.trim_start_matches("/etc/").trim_end_matches(".conf");
            match name.parse::<usize>() {
                Ok(number) if number < 100 => {
                    Ok(format!("a {number}; include {}.conf;", number + 1))
                }
                Ok(number) => Ok(format!("a {number};")),
                Err(_) => Err("permission denied".to_owned()),
            }
        }

        fn glob(&self, pattern: &str) -> Vec<String> {
            match pattern {
                "/etc/none.conf" => Vec::new(),
                _ => vec![pattern.to_owned()],
            }
        }

        fn address(&self, _: &str, _: bool) -> Option<std::net::IpAddr> {
            None
        }

        fn port(&self, _: &str, _: &str) -> Option<u16> {
            None
        }

        fn host_name(&self) -> String {
            String::new()
        }

        fn variable(&self, _: &str) -> Option<String> {
            None
        }
    }

    fn read_included(name: &str, text: &str) -> (Vec<String>, Vec<String>) {
        let mut notes = Notes::default();
        let nodes = read_file(&Files, &mut notes, name, text);
        let words = nodes.iter().map(|node| node.words.join(" ")).collect();
        (words, notes.finish())
    }

    #[test]
    fn files_are_included_in_place() {
        let (words, notes) = read_included("/etc/nginx.conf", "b;\ninclude 100.conf;\nc;\n");
        assert_eq!(words, ["b", "a 100", "c"]);
        assert!(notes.is_empty(), "{notes:?}");
        for (name, pattern) in [
            ("nginx.conf", "/etc/100.conf"),
            ("/x/nginx.conf", "/etc/100.conf"),
        ] {
            let (words, _) = read_included(name, &format!("include {pattern};"));
            assert_eq!(words, ["a 100"], "{name} {pattern}");
        }
        for (line, expected) in [
            ("include none.conf;", "not imported: no such file"),
            (
                "include x.conf;",
                "not imported: /etc/x.conf: permission denied",
            ),
            (
                "include mime.types;",
                "not imported: Weir has its own list of media types",
            ),
        ] {
            let (words, notes) = read_included("/etc/nginx.conf", &format!("b;\n{line}\n"));
            assert_eq!(words, ["b"], "{line}");
            assert_eq!(notes, [format!("line 2: {line}: {expected}")]);
        }
        // A relative name without a directory remains relative.
        let (words, notes) = read_included("nginx.conf", "include y.conf;");
        assert!(words.is_empty(), "{words:?}");
        assert_eq!(
            notes,
            ["line 1: include y.conf;: not imported: y.conf: permission denied"]
        );
    }

    #[test]
    fn depth_and_number_of_includes_are_limited() {
        let reason = "not imported: includes are nested too deeply, or too many files are included";
        let (words, notes) = read_included("/etc/nginx.conf", "include 1.conf;");
        assert_eq!(words.len(), MAX_DEPTH);
        let line = format!("/etc/16.conf line 1: a 16; include 17.conf;: {reason}");
        assert_eq!(notes, [line]);
        // The main file counts too.
        let files =
            |count: usize| format!("{}include 100.conf;", "include 100.conf;\n".repeat(count));
        let (words, notes) = read_included("/etc/nginx.conf", &files(MAX_FILES - 1));
        assert_eq!((words.len(), notes.len()), (MAX_FILES, 0));
        let (words, notes) = read_included("/etc/nginx.conf", &files(MAX_FILES));
        assert_eq!(words.len(), MAX_FILES);
        assert_eq!(notes, [format!("line 1001: include 100.conf;: {reason}")]);
    }
}
