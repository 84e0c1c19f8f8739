//! nginx.conf to directives and blocks (`src/core/ngx_conf_file.c`): words, quotes, `;`, braces, comments, includes.

use crate::World;
use crate::note::{Notes, Place};

/// A directive.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    /// At least one.
    pub(super) words: Vec<String>,
    pub(super) block: Option<Vec<Self>>,
}

impl Node {
    pub(super) fn keyword(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn word(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }

    pub(super) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Says of it, and of everything in its braces, that it was not carried over.
    pub(super) fn refuse(&self, notes: &mut Notes, why: &str) {
        notes.say(self.place, format!("not carried over: {why}"));
        let why = format!(
            "not carried over, with the block of line {}",
            self.place.line()
        );
        for place in self.lines() {
            match place.is_beside(self.place) {
                true => notes.covered(place),
                false => notes.say(place, &why),
            }
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
}

const DEEPEST: usize = 16;

const MOST_FILES: usize = 1000;

enum Token {
    Word(String),
    End,
    Open,
    Close,
}

/// The whole file with what it includes.
pub(super) fn read(world: &dyn World, notes: &mut Notes, name: &str, text: &str) -> Vec<Node> {
    file(world, notes, name, text, 0)
}

fn file(world: &dyn World, notes: &mut Notes, name: &str, text: &str, depth: usize) -> Vec<Node> {
    let index = notes.file(name, text);
    let tokens = tokens(notes, index, text);
    let mut at = 0;
    let mut nodes = Vec::new();
    while at < tokens.len() {
        nodes.extend(block(notes, &tokens, &mut at, 0));
        if let Some((place, _)) = tokens.get(at) {
            notes.say(
                *place,
                "a closing brace too many, and nginx refuses the file",
            );
            at += 1;
        }
    }
    let directory = name
        .rsplit_once('/')
        .map_or("", |(directory, _)| directory)
        .to_owned();
    included(world, notes, &directory, nodes, depth)
}

/// Puts what `include` names in its place.
fn included(
    world: &dyn World,
    notes: &mut Notes,
    directory: &str,
    nodes: Vec<Node>,
    depth: usize,
) -> Vec<Node> {
    let mut all = Vec::new();
    for mut node in nodes {
        if let Some(inner) = node.block.take() {
            node.block = Some(included(world, notes, directory, inner, depth));
        }
        let Some(pattern) = node.word(1).filter(|_| node.keyword() == "include") else {
            all.push(node);
            continue;
        };
        // What a request is answered with by its name's end is nothing to a balancer.
        if pattern.ends_with("mime.types") {
            notes.say(node.place, "not carried over: Weir serves no files");
            continue;
        }
        let path = if pattern.starts_with('/') || directory.is_empty() {
            pattern.to_owned()
        } else {
            format!("{directory}/{pattern}")
        };
        if depth >= DEEPEST || notes.files() > MOST_FILES {
            notes.say(
                node.place,
                "not carried over: files include each other without end",
            );
            continue;
        }
        let found = world.glob(&path);
        if found.is_empty() {
            notes.say(node.place, "not carried over: there is no such file");
        }
        for name in found {
            match world.read(&name) {
                Ok(text) => all.extend(file(world, notes, &name, &text, depth + 1)),
                Err(why) => notes.say(node.place, format!("not carried over: {name}: {why}")),
            }
        }
    }
    all
}

fn tokens(notes: &mut Notes, file: usize, text: &str) -> Vec<(Place, Token)> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let place = Place::new(file, line).part(tokens.len());
        match c {
            '\n' => line += 1,
            c if c.is_whitespace() => {}
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            ';' => tokens.push((place, Token::End)),
            '{' => tokens.push((place, Token::Open)),
            '}' => tokens.push((place, Token::Close)),
            quote @ ('"' | '\'') => {
                let mut word = String::new();
                let mut closed = false;
                while let Some(c) = chars.next() {
                    line += usize::from(c == '\n');
                    match c {
                        '\\' => {
                            let c = escaped(chars.next().unwrap_or('\\'), &mut word);
                            word.push(c);
                        }
                        c if c == quote => {
                            closed = true;
                            break;
                        }
                        c => word.push(c),
                    }
                }
                if !closed {
                    notes.say(
                        place,
                        "a quote that does not end, and nginx refuses the file",
                    );
                }
                tokens.push((place, Token::Word(word)));
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
                    // A brace in an expression is a quantifier.
                    if next.is_none() && chars.peek() == Some(&'{') && word.starts_with(['^', '~'])
                    {
                        next = chars.next();
                    }
                }
                tokens.push((place, Token::Word(word)));
            }
        }
    }
    tokens
}

/// What stands behind a backslash in quotes; others keep theirs.
fn escaped(c: char, word: &mut String) -> char {
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

fn block(notes: &mut Notes, tokens: &[(Place, Token)], at: &mut usize, depth: usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut place: Option<Place> = None;
    while let Some((here, token)) = tokens.get(*at) {
        match token {
            Token::Word(word) => {
                words.push(word.clone());
                place.get_or_insert(*here);
            }
            Token::End => {
                let words = std::mem::take(&mut words);
                match place.take() {
                    Some(place) => nodes.push(Node {
                        place,
                        words,
                        block: None,
                    }),
                    None => notes.say(*here, "a `;` behind nothing, and nginx refuses the file"),
                }
            }
            Token::Open => {
                *at += 1;
                if depth >= DEEPEST {
                    notes.say(*here, "not carried over: blocks in blocks without end");
                    *at = tokens.len();
                    return nodes;
                }
                let inner = block(notes, tokens, at, depth + 1);
                if *at >= tokens.len() {
                    notes.say(
                        *here,
                        "this block has no closing brace, and nginx refuses the file",
                    );
                }
                if words.is_empty() {
                    notes.say(
                        *here,
                        "a block that belongs to nothing, and nginx refuses the file",
                    );
                    words.push(String::new());
                }
                nodes.push(Node {
                    place: place.take().unwrap_or(*here),
                    words: std::mem::take(&mut words),
                    block: Some(inner),
                });
            }
            Token::Close => break,
        }
        *at += 1;
    }
    if let Some(place) = place {
        notes.say(
            place,
            "not carried over: no `;` ends it, and nginx refuses the file",
        );
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alone;

    fn read_all(text: &str) -> (Vec<Node>, Vec<String>) {
        let mut notes = Notes::default();
        let nodes = read(&Alone, &mut notes, "f", text);
        (nodes, notes.finish())
    }

    #[test]
    fn directives_and_blocks_are_read() {
        let (nodes, notes) = read_all("a 'b c' \"d;\"; # e\nf ~ \\.(x|y)$ {\n  g ${h}i;\n}\n");
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!(nodes[0].words, ["a", "b c", "d;"]);
        assert_eq!(nodes[1].words, ["f", "~", "\\.(x|y)$"]);
        assert_eq!(nodes[1].inner()[0].words, ["g", "${h}i"]);
        assert!(nodes[1].inner()[0].place.is_beside(Place::new(0, 3)));
    }

    #[test]
    fn what_nginx_refuses_is_said() {
        for wrong in ["a", "a {", "}", ";", "{ a; }", "a 'b;"] {
            let (_, notes) = read_all(wrong);
            assert!(!notes.is_empty(), "{wrong}");
        }
    }
}
