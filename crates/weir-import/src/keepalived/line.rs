//! Splits text into lines of words, as keepalived's parser does (`lib/parser.c`).
//!
//! Comments, conditions, definitions, sequences and included files are handled; braces become separate lines.

use super::define::{Definitions, split_definition};
use super::sequence::parse_sequence;
use crate::Environment;
use crate::note::{Notes, Position};

/// A line after preprocessing: the words of one directive, or one brace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) position: Position,
    pub(super) text: String,
}

/// Maximum number of lines across all files and repetitions; stops recursive includes.
const MAX_LINES: usize = 1_000_000;

/// Maximum depth of included files and repeated lines.
const MAX_DEPTH: usize = 16;

struct Reader<'w, 'n> {
    environment: &'w dyn Environment,
    notes: &'n mut Notes,
    definitions: Definitions<'w>,
    lines: Vec<Line>,
    /// Reading stops when there are more lines than this.
    max_lines: usize,
    /// The number of lines of multi-line definitions that were read.
    part_count: usize,
    /// Lines whose condition does not match, and the reason.
    unmatched: Vec<(Position, String)>,
    /// Whether a condition matched: the file contains lines for this director.
    has_match: bool,
}

/// Returns all lines of a file and its includes.
pub(super) fn read_lines(
    environment: &dyn Environment,
    notes: &mut Notes,
    name: &str,
    text: &str,
) -> Vec<Line> {
    read_limited_lines(environment, notes, (name, text), MAX_LINES)
}

fn read_limited_lines(
    environment: &dyn Environment,
    notes: &mut Notes,
    (name, text): (&str, &str),
    max_lines: usize,
) -> Vec<Line> {
    let mut reader = Reader {
        environment,
        notes,
        definitions: Definitions::new(environment),
        lines: Vec::new(),
        max_lines,
        part_count: 0,
        unmatched: Vec::new(),
        has_match: false,
    };
    reader.read_file(name, text, 0);
    for (position, reason) in std::mem::take(&mut reader.unmatched) {
        // If no condition matches, the file may be for directors other than this host.
        if reader.has_match {
            reader.notes.remark(position, reason);
        } else {
            reader.notes.add(position, reason);
        }
    }
    for (name, position) in reader.definitions.unused() {
        let reason = format!("not imported: ${name} is never used");
        reader.notes.remark(position, reason);
    }
    reader.lines
}

/// Returns the length of a template's placeholder at the start of a text: `${NAME}` or `{{ NAME }}`; `None` = there is
/// none. keepalived would parse its braces as a block.
fn placeholder_length(text: &str) -> Option<usize> {
    let (open, close) = [("${", "}"), ("{{", "}}")]
        .into_iter()
        .find(|(open, _)| text.starts_with(open))?;
    let inner = &text[open.len()..];
    let end = inner.find(close)?;
    let is_name = !inner[..end].trim().is_empty() && !inner[..end].contains(['{', '\n']);
    is_name.then_some(open.len() + end + close.len())
}

/// Returns whether a line is a statement of a template engine, such as `{% if primary %}`.
fn is_statement(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("{%") && line.ends_with("%}")
}

impl Reader<'_, '_> {
    fn read_file(&mut self, name: &str, text: &str, depth: usize) {
        let index = self.notes.add_file(name, text);
        let outer_directory = std::mem::replace(&mut self.definitions.directory, directory(name));
        // An unfinished definition: its name, its text so far, and its first line.
        let mut open: Option<(String, String, Position)> = None;
        for (line_index, source) in text.lines().enumerate() {
            let position = Position::new(index, line_index + 1);
            if source.contains('\0') {
                self.notes
                    .add(position, "not imported: the line contains a NUL byte");
                continue;
            }
            let line = self.without_comment(source, position);
            if let Some((name, value, start)) = open.take() {
                open = self.continue_definition(name, value, start, &line);
                continue;
            }
            if line.is_empty() {
                continue;
            }
            open = self.read_line(&line, position, depth);
            if self.lines.len() > self.max_lines {
                self.notes
                    .add(position, "not imported: there are too many lines");
                break;
            }
        }
        if let Some((name, value, start)) = open {
            self.definitions.define(&name, &value, start);
        }
        self.definitions.directory = outer_directory;
    }

    /// Adds a line to a definition. Returns the definition if it continues on the next line.
    fn continue_definition(
        &mut self,
        name: String,
        value: String,
        start: Position,
        line: &str,
    ) -> Option<(String, String, Position)> {
        let continued = line.strip_suffix('\\');
        let part = continued.unwrap_or(line).trim();
        let value = match (value.is_empty(), part.is_empty()) {
            (_, true) => value,
            (true, false) => part.to_owned(),
            (false, false) => format!("{value}\n{part}"),
        };
        if continued.is_some() {
            return Some((name, value, start));
        }
        self.definitions.define(&name, &value, start);
        None
    }

    /// Reads a line. Returns a definition that continues on the next line.
    fn read_line(
        &mut self,
        line: &str,
        position: Position,
        depth: usize,
    ) -> Option<(String, String, Position)> {
        let line = self.apply_conditions(line, position)?;
        if let Some((name, value)) = split_definition(line) {
            if let Some(first_part) = value.strip_suffix('\\') {
                return Some((name.to_owned(), first_part.trim().to_owned(), position));
            }
            self.definitions.define(name, value, position);
            return None;
        }
        if line.starts_with('~') {
            self.repeat(line, position, depth);
            return None;
        }
        match self.definitions.expand(line) {
            Err(reason) => self.notes.add(position, format!("not imported: {reason}")),
            Ok(lines) => {
                let is_multiline = lines.len() > 1;
                for part in lines {
                    // An expanded definition may contain a comment; the original line was already checked.
                    let part = match part == line {
                        true => part,
                        false => self.without_comment(&part, position),
                    };
                    match is_multiline {
                        true => self.read_part(&part, position, depth + 1),
                        false => self.read_expanded_line(&part, position, depth),
                    }
                }
            }
        }
        None
    }

    /// Reads a line of a multi-line definition, which can itself define and expand names.
    fn read_part(&mut self, line: &str, position: Position, depth: usize) {
        self.part_count += 1;
        if self.part_count > self.max_lines || depth >= MAX_DEPTH {
            let reason = "not imported: too many lines, or definitions are nested too deeply";
            self.notes.add(position, reason);
        } else {
            let _ = self.read_line(line, position, depth);
        }
    }

    /// Reads a line after its definitions were expanded.
    fn read_expanded_line(&mut self, line: &str, position: Position, depth: usize) {
        let Some(line) = self.apply_conditions(line, position) else {
            return;
        };
        if line.starts_with('~') {
            return self.repeat(line, position, depth);
        }
        match parse_include(line) {
            Some((required, pattern)) => self.include(required, pattern, position, depth),
            None => self.split_braces(line, position),
        }
    }

    /// Returns the line after `@ID` if it applies to this director; one line can have several conditions.
    fn apply_conditions<'l>(&mut self, mut line: &'l str, position: Position) -> Option<&'l str> {
        while let Some(rest) = line.strip_prefix('@') {
            let (is_negated, rest) = match rest.strip_prefix('^') {
                Some(rest) => (true, rest),
                None => (false, rest),
            };
            let Some((id, rest)) = rest.split_once([' ', '\t']) else {
                self.notes
                    .add(position, "not imported: nothing follows the condition");
                return None;
            };
            let host = self.environment.host_name();
            if (id == host) == is_negated {
                let reason =
                    format!("not imported: the condition does not match this host, {host}");
                self.unmatched.push((position, reason));
                return None;
            }
            self.has_match = true;
            line = rest.trim_start();
        }
        Some(line)
    }

    /// Reads a line for each repetition of its sequence.
    fn repeat(&mut self, line: &str, position: Position, depth: usize) {
        let expand = |line: &str| match self.definitions.expand(line) {
            Ok(lines) => lines.into_iter().next().unwrap_or_default(),
            Err(_) => line.to_owned(),
        };
        // Definitions in the parameters are expanded first; the repeated text is expanded for each repetition.
        let line = match line.split_once(')') {
            Some((head, text)) => format!("{}){text}", expand(head)),
            None => line.to_owned(),
        };
        match parse_sequence(&line) {
            Err(reason) => self.notes.add(position, format!("not imported: {reason}")),
            Ok((repetitions, text)) => {
                for repetition in repetitions {
                    for (name, value) in &repetition {
                        self.definitions.set(name, value);
                    }
                    if self.lines.len() > self.max_lines || depth >= MAX_DEPTH {
                        self.notes.add(
                            position,
                            "not imported: too many lines, or sequences are nested too deeply",
                        );
                        return;
                    }
                    let _ = self.read_line(text, position, depth + 1);
                }
            }
        }
    }

    fn include(&mut self, is_required: bool, pattern: &str, position: Position, depth: usize) {
        let pattern = pattern.trim_matches('"');
        let path = if pattern.starts_with('/') || self.definitions.directory.is_empty() {
            pattern.to_owned()
        } else {
            format!("{}/{pattern}", self.definitions.directory)
        };
        if depth >= MAX_DEPTH || self.notes.file_count() > 1000 {
            self.notes.add(
                position,
                "not imported: includes are nested too deeply, or too many files are included",
            );
            return;
        }
        let paths = self.environment.glob(&path);
        if paths.is_empty() {
            let consequence = if is_required {
                ", and keepalived rejects the file"
            } else {
                ""
            };
            self.notes
                .add(position, format!("not imported: no such file{consequence}"));
        }
        for name in paths {
            match self.environment.read(&name) {
                Ok(text) => self.read_file(&name, &text, depth + 1),
                Err(reason) => self
                    .notes
                    .add(position, format!("not imported: {name}: {reason}")),
            }
        }
    }

    /// Adds a line, split at braces outside of quotes.
    fn split_braces(&mut self, line: &str, position: Position) {
        if is_statement(line) {
            let reason =
                "not imported: it is a template statement; the lines of all branches are imported";
            return self.notes.add(position, reason);
        }
        let mut in_quotes = false;
        let mut part = String::new();
        let mut push_part = |part: &mut String| {
            let text = std::mem::take(part).trim().to_owned();
            if !text.is_empty() {
                self.lines.push(Line { position, text });
            }
        };
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            if let Some(length) = placeholder_length(rest).filter(|_| !in_quotes) {
                // A placeholder is one word, without its blanks.
                part.extend(rest[..length].chars().filter(|c| !c.is_whitespace()));
                rest = &rest[length..];
                continue;
            }
            rest = &rest[c.len_utf8()..];
            match c {
                '"' => {
                    in_quotes = !in_quotes;
                    part.push(c);
                }
                '{' | '}' if !in_quotes => {
                    push_part(&mut part);
                    part.push(c);
                    push_part(&mut part);
                }
                c => part.push(c),
            }
        }
        push_part(&mut part);
    }

    /// Returns a line without its comment, which begins with `#` or `!` outside of quotes. A backslash before the
    /// character makes it literal.
    fn without_comment(&mut self, line: &str, position: Position) -> String {
        let mut text = String::new();
        let mut in_quotes = false;
        let mut chars = line.trim().chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' => {
                    in_quotes = !in_quotes;
                    text.push(c);
                }
                '\\' => match chars.next() {
                    Some(next @ ('#' | '!')) if !in_quotes => text.push(next),
                    Some(next) => text.extend([c, next]),
                    None => text.push(c),
                },
                '#' | '!' if !in_quotes => break,
                c => text.push(c),
            }
        }
        if in_quotes {
            self.notes.add(position, "unterminated quote");
        }
        text.trim().to_owned()
    }
}

/// Returns the directory of a file; empty for the current directory.
fn directory(name: &str) -> String {
    match name.rsplit_once('/') {
        Some(("", _)) => "/".to_owned(),
        Some((directory, _)) => directory.to_owned(),
        None => String::new(),
    }
}

/// Parses `include`, `includer` and similar lines. Returns whether a match is required, and the pattern.
fn parse_include(line: &str) -> Option<(bool, &str)> {
    let (word, rest) = line.split_once([' ', '\t'])?;
    let is_required = match word.strip_prefix("include")? {
        "" => false,
        "r" | "a" | "m" | "w" | "b" => true,
        _ => return None,
    };
    Some((is_required, rest.trim()))
}

#[cfg(test)]
mod tests;
