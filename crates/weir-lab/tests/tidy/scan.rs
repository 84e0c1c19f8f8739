//! Splits source text into names, string literals, module headers and other comments, without a parser.

/// The language of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    C,
    Shell,
    Markdown,
}

impl Language {
    /// Returns the language of a file by its name; `None` = the file is not checked.
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "rs" => Some(Self::Rust),
            "c" | "h" => Some(Self::C),
            "sh" => Some(Self::Shell),
            "md" => Some(Self::Markdown),
            _ => None,
        }
    }

    pub(crate) const fn is_source(self) -> bool {
        !matches!(self, Self::Markdown)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    /// An identifier.
    Name,
    /// The content of a string literal, as written.
    Text,
    /// A line of a module header or of a document.
    Header,
    /// A line of another comment.
    Comment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) region: Region,
    /// The line number, from 1.
    pub(crate) line: usize,
    pub(crate) text: &'a str,
}

pub(crate) fn pieces(language: Language, text: &str) -> Vec<Piece<'_>> {
    match language {
        Language::Rust | Language::C => Scanner::new(text, language == Language::Rust).run(),
        Language::Shell => lines(text, Region::Comment, |line| {
            line.trim_start().starts_with('#')
        }),
        Language::Markdown => lines(text, Region::Header, |_| true),
    }
}

fn lines(text: &str, region: Region, is_included: impl Fn(&str) -> bool) -> Vec<Piece<'_>> {
    let numbered = text
        .lines()
        .enumerate()
        .filter(|(_, line)| is_included(line));
    numbered
        .map(|(index, text)| Piece {
            region,
            line: index + 1,
            text,
        })
        .collect()
}

struct Scanner<'a> {
    text: &'a str,
    /// Offset of the text that has not been consumed.
    offset: usize,
    line: usize,
    is_rust: bool,
    pieces: Vec<Piece<'a>>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str, is_rust: bool) -> Self {
        Self {
            text,
            offset: 0,
            line: 1,
            is_rust,
            pieces: Vec::new(),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }

    /// Consumes a number of bytes, and records them as a piece if a region is given.
    fn take(&mut self, length: usize, region: Option<Region>) {
        let text = &self.rest()[..length];
        if let Some(region) = region {
            self.pieces.push(Piece {
                region,
                line: self.line,
                text,
            });
        }
        self.line += text.matches('\n').count();
        self.offset += length;
    }

    fn run(mut self) -> Vec<Piece<'a>> {
        while let Some(first) = self.rest().chars().next() {
            let rest = self.rest();
            if rest.starts_with("//") {
                let is_header = self.is_rust && rest.starts_with("//!");
                let region = if is_header {
                    Region::Header
                } else {
                    Region::Comment
                };
                self.take(rest.find('\n').unwrap_or(rest.len()), Some(region));
            } else if rest.starts_with("/*") {
                self.take(comment_length(rest, self.is_rust), Some(Region::Comment));
            } else if let Some((prefix, hashes)) = raw_string(rest).filter(|_| self.is_rust) {
                let end = format!("\"{}", "#".repeat(hashes));
                self.take(prefix, None);
                let length = self.rest().find(&end).unwrap_or(self.rest().len());
                self.take(length, Some(Region::Text));
                self.take(end.len().min(self.rest().len()), None);
            } else if first == '"' {
                self.take(1, None);
                self.take(string_length(self.rest()), Some(Region::Text));
                self.take(self.rest().len().min(1), None);
            } else if first == '\'' {
                self.take(character_length(rest), None);
            } else if first.is_alphabetic() || first == '_' {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                self.take(end.unwrap_or(rest.len()), Some(Region::Name));
            } else {
                self.take(first.len_utf8(), None);
            }
        }
        self.pieces
    }
}

/// Returns the length of the comment that starts here. Rust's block comments can be nested.
fn comment_length(text: &str, is_nestable: bool) -> usize {
    let (mut depth, mut offset) = (0, 0);
    while offset < text.len() {
        let rest = &text.as_bytes()[offset..];
        if rest.starts_with(b"/*") && (is_nestable || depth == 0) {
            depth += 1;
            offset += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            offset += 2;
            if depth == 0 {
                return offset;
            }
        } else {
            offset += 1;
        }
    }
    text.len()
}

/// Returns the length of `r##"`, possibly preceded by `b` or `c`, and the number of hashes.
fn raw_string(text: &str) -> Option<(usize, usize)> {
    let after = text
        .strip_prefix(['b', 'c'])
        .unwrap_or(text)
        .strip_prefix('r')?;
    let open = after.trim_start_matches('#');
    let hashes = after.len() - open.len();
    open.starts_with('"')
        .then_some((text.len() - open.len() + 1, hashes))
}

/// Returns the length up to the closing quotation mark.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (offset, c) in text.char_indices() {
        match c {
            '"' if !escaped => return offset,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Returns the length of a character literal, or of the quotation mark of a lifetime.
fn character_length(text: &str) -> usize {
    let mut characters = text[1..].char_indices();
    let Some((_, first)) = characters.next() else {
        return 1;
    };
    if first == '\\' {
        // Continue after the escaped character.
        characters.next();
        return characters
            .find(|(_, c)| *c == '\'')
            .map_or(1, |(offset, _)| offset + 2);
    }
    match characters.next() {
        Some((offset, '\'')) => offset + 2,
        _ => 1,
    }
}

#[cfg(test)]
fn regions_and_texts(language: Language, text: &str) -> Vec<(Region, &str)> {
    let pieces = pieces(language, text);
    pieces
        .iter()
        .map(|piece| (piece.region, piece.text))
        .collect()
}

#[test]
fn rust_source_is_split_into_pieces() {
    use Region::{Comment, Header, Name, Text};
    let text = "//! head\nlet a = \"b // \\\" c\"; // d 'e\n'\\'' 'f' &'g r#\"h\"i\"# /* j /* k */ l */ br\"m\"";
    let expected = [
        (Header, "//! head"),
        (Name, "let"),
        (Name, "a"),
        (Text, "b // \\\" c"),
        (Comment, "// d 'e"),
        (Name, "g"),
        (Text, "h\"i"),
        (Comment, "/* j /* k */ l */"),
        (Text, "m"),
    ];
    assert_eq!(regions_and_texts(Language::Rust, text), expected);
    let lines: Vec<usize> = pieces(Language::Rust, text)
        .iter()
        .map(|piece| piece.line)
        .collect();
    assert_eq!(lines, [1, 2, 2, 2, 2, 3, 3, 3, 3]);
}

#[test]
fn c_source_is_split_into_pieces() {
    use Region::{Comment, Name, Text};
    let text = "/* a /* b */ c(\"d\\\\\"); // e\nif ('\"' == f) r";
    let expected = [
        (Comment, "/* a /* b */"),
        (Name, "c"),
        (Text, "d\\\\"),
        (Comment, "// e"),
        (Name, "if"),
        (Name, "f"),
        (Name, "r"),
    ];
    assert_eq!(regions_and_texts(Language::C, text), expected);
}

#[test]
fn unclosed_literals_and_comments_do_not_panic() {
    for text in ["\"a", "/* a", "r#\"a", "'", "'\\", "// é"] {
        let _ = pieces(Language::Rust, text);
    }
}
