//! Text to lines of words, as keepalived's own parser cuts them (`lib/parser.c`): comments, conditions, definitions, sequences,
//! included files, and the braces that stand alone.

use super::define::{Definitions, definition};
use super::sequence::sequence;
use crate::World;
use crate::note::{Notes, Place};

/// A line that is left after all that: the words of one directive, or one brace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) place: Place,
    pub(super) text: String,
}

/// Lines over all files and repetitions; a file that includes itself ends here.
const MOST_LINES: usize = 1_000_000;

const DEEPEST: usize = 16;

struct Reader<'w, 'n> {
    world: &'w dyn World,
    notes: &'n mut Notes,
    definitions: Definitions<'w>,
    lines: Vec<Line>,
}

/// All lines of a file and of what it includes.
pub(super) fn lines(world: &dyn World, notes: &mut Notes, name: &str, text: &str) -> Vec<Line> {
    let mut reader = Reader {
        world,
        notes,
        definitions: Definitions::new(world),
        lines: Vec::new(),
    };
    reader.file(name, text, 0);
    for (name, place) in reader.definitions.unused() {
        let why = format!("not carried over: nothing names ${name}");
        reader.notes.say(place, why);
    }
    reader.lines
}

impl Reader<'_, '_> {
    fn file(&mut self, name: &str, text: &str, depth: usize) {
        let index = self.notes.file(name, text);
        let before = std::mem::replace(&mut self.definitions.directory, directory(name));
        // A definition that goes on: its name, what it has so far, and where it began.
        let mut open: Option<(String, String, Place)> = None;
        for (at, raw) in text.lines().enumerate() {
            let place = Place::new(index, at + 1);
            if raw.contains('\0') {
                self.notes.say(place, "not carried over: it holds a NUL");
                continue;
            }
            let line = self.without_comment(raw, place);
            if let Some((name, value, began)) = open.take() {
                open = self.go_on(name, value, began, &line);
                continue;
            }
            if line.is_empty() {
                continue;
            }
            open = self.line(&line, place, depth);
            if self.lines.len() > MOST_LINES {
                self.notes
                    .say(place, "not carried over: there are too many lines");
                break;
            }
        }
        if let Some((name, value, began)) = open {
            self.definitions.define(&name, &value, began);
        }
        self.definitions.directory = before;
    }

    /// Another line of a definition.
    fn go_on(
        &mut self,
        name: String,
        value: String,
        began: Place,
        line: &str,
    ) -> Option<(String, String, Place)> {
        let more = line.strip_suffix('\\');
        let part = more.unwrap_or(line).trim();
        let value = match (value.is_empty(), part.is_empty()) {
            (_, true) => value,
            (true, false) => part.to_owned(),
            (false, false) => format!("{value}\n{part}"),
        };
        if more.is_some() {
            return Some((name, value, began));
        }
        self.definitions.define(&name, &value, began);
        None
    }

    /// A definition that goes on is returned.
    fn line(&mut self, line: &str, place: Place, depth: usize) -> Option<(String, String, Place)> {
        let line = self.condition(line, place)?;
        if let Some((name, value)) = definition(line) {
            if let Some(begun) = value.strip_suffix('\\') {
                return Some((name.to_owned(), begun.trim().to_owned(), place));
            }
            self.definitions.define(name, value, place);
            return None;
        }
        if line.starts_with('~') {
            self.repeat(line, place, depth);
            return None;
        }
        match self.definitions.replace(line) {
            Err(why) => self.notes.say(place, format!("not carried over: {why}")),
            Ok(lines) => {
                for part in lines {
                    // What a definition brought may hold a comment; what stood here was looked at.
                    let part = match part == line {
                        true => part,
                        false => self.without_comment(&part, place),
                    };
                    self.replaced(&part, place, depth);
                }
            }
        }
        None
    }

    /// A line without names in it.
    fn replaced(&mut self, line: &str, place: Place, depth: usize) {
        let Some(line) = self.condition(line, place) else {
            return;
        };
        if line.starts_with('~') && depth < DEEPEST {
            return self.repeat(line, place, depth + 1);
        }
        match include(line) {
            Some((flags, pattern)) => self.include(flags, pattern, place, depth),
            None => self.split(line, place),
        }
    }

    /// The line behind `@ID` if it is for this director; one line may have several.
    fn condition<'l>(&mut self, mut line: &'l str, place: Place) -> Option<&'l str> {
        while let Some(rest) = line.strip_prefix('@') {
            let (not, rest) = match rest.strip_prefix('^') {
                Some(rest) => (true, rest),
                None => (false, rest),
            };
            let Some((id, rest)) = rest.split_once([' ', '\t']) else {
                self.notes
                    .say(place, "not carried over: a condition without a line");
                return None;
            };
            let own = self.world.host_name();
            if (id == own) == not {
                let why = format!(
                    "not carried over: the condition does not hold for this machine, {own}"
                );
                self.notes.say(place, why);
                return None;
            }
            line = rest.trim_start();
        }
        Some(line)
    }

    fn repeat(&mut self, line: &str, place: Place, depth: usize) {
        let numbers = |line: &str| match self.definitions.replace(line) {
            Ok(lines) => lines.into_iter().next().unwrap_or_default(),
            Err(_) => line.to_owned(),
        };
        // The parameters may be definitions; the repeated text is replaced in its turn.
        let line = match line.split_once(')') {
            Some((head, text)) => format!("{}){text}", numbers(head)),
            None => line.to_owned(),
        };
        match sequence(&line) {
            Err(why) => self.notes.say(place, format!("not carried over: {why}")),
            Ok((rounds, text)) => {
                for round in rounds {
                    for (name, value) in &round {
                        self.definitions.set(name, value);
                    }
                    if self.lines.len() > MOST_LINES || depth >= DEEPEST {
                        self.notes
                            .say(place, "not carried over: there are too many lines");
                        return;
                    }
                    let _ = self.line(text, place, depth + 1);
                }
            }
        }
    }

    fn include(&mut self, must: bool, pattern: &str, place: Place, depth: usize) {
        let pattern = pattern.trim_matches('"');
        let path = if pattern.starts_with('/') || self.definitions.directory.is_empty() {
            pattern.to_owned()
        } else {
            format!("{}/{pattern}", self.definitions.directory)
        };
        if depth >= DEEPEST || self.notes.files() > 1000 {
            self.notes.say(
                place,
                "not carried over: files include each other without end",
            );
            return;
        }
        let found = self.world.glob(&path);
        if found.is_empty() {
            let how = if must {
                ", and keepalived would refuse that"
            } else {
                ""
            };
            self.notes.say(
                place,
                format!("not carried over: there is no such file{how}"),
            );
        }
        for name in found {
            match self.world.read(&name) {
                Ok(text) => self.file(&name, &text, depth + 1),
                Err(why) => self
                    .notes
                    .say(place, format!("not carried over: {name}: {why}")),
            }
        }
    }

    /// Braces outside of quotes stand alone.
    fn split(&mut self, line: &str, place: Place) {
        let mut quoted = false;
        let mut part = String::new();
        let mut put = |part: &mut String| {
            let text = std::mem::take(part).trim().to_owned();
            if !text.is_empty() {
                self.lines.push(Line { place, text });
            }
        };
        for c in line.chars() {
            match c {
                '"' => {
                    quoted = !quoted;
                    part.push(c);
                }
                '{' | '}' if !quoted => {
                    put(&mut part);
                    part.push(c);
                    put(&mut part);
                }
                c => part.push(c),
            }
        }
        put(&mut part);
    }

    /// `#` and `!` begin a comment outside of quotes, unless a backslash stands before.
    fn without_comment(&mut self, line: &str, place: Place) -> String {
        let mut text = String::new();
        let mut quoted = false;
        let mut chars = line.trim().chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' => {
                    quoted = !quoted;
                    text.push(c);
                }
                '\\' => match chars.next() {
                    Some(next @ ('#' | '!')) if !quoted => text.push(next),
                    Some(next) => text.extend([c, next]),
                    None => text.push(c),
                },
                '#' | '!' if !quoted => break,
                c => text.push(c),
            }
        }
        if quoted {
            self.notes.say(place, "a quote that does not end");
        }
        text.trim().to_owned()
    }
}

/// The file's directory; empty = the one that all paths are relative to.
fn directory(name: &str) -> String {
    match name.rsplit_once('/') {
        Some(("", _)) => "/".to_owned(),
        Some((directory, _)) => directory.to_owned(),
        None => String::new(),
    }
}

/// `include`, `includer` and the like: whether something must be found, and what.
fn include(line: &str) -> Option<(bool, &str)> {
    let (word, rest) = line.split_once([' ', '\t'])?;
    let must = match word.strip_prefix("include")? {
        "" => false,
        "r" | "a" | "m" | "w" | "b" => true,
        _ => return None,
    };
    Some((must, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alone;

    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let mut notes = Notes::default();
        let lines = lines(&Alone, &mut notes, "f", text);
        (
            lines.into_iter().map(|line| line.text).collect(),
            notes.finish(),
        )
    }

    #[test]
    fn braces_stand_alone_and_comments_go() {
        let (lines, notes) = read("a \"x{#\" { b c } # d\n  e\\#f !g\n");
        assert_eq!(lines, ["a \"x{#\"", "{", "b c", "}", "e#f"]);
        assert!(notes.is_empty());
    }

    #[test]
    fn conditions_definitions_and_sequences_are_resolved() {
        let text = "$A=1\n@other x\n@^other y $A\n~SEQ(n, 2) z $n\n$B=p q \\\n  r\n$B s\n";
        let (lines, notes) = read(text);
        assert_eq!(lines, ["y 1", "z 1", "z 2", "p q", "r s"]);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("line 2: @other x: not carried over"));
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let (_, notes) = read("include /etc/none*\nincluder x\n");
        assert_eq!(notes.len(), 2);
    }
}
