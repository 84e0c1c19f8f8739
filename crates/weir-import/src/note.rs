//! Positions in the source files, and notes about them.

use std::collections::HashSet;

/// A line of one of the files that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    file: usize,
    /// From 1.
    line: usize,
    /// Distinguishes directives on the same line.
    part: usize,
}

/// The source files with their lines, and the notes about them.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    files: Vec<(String, Vec<String>)>,
    notes: Vec<Note>,
    seen: HashSet<(Position, String)>,
    positions: HashSet<Position>,
    /// Lines that keep clients out.
    guards: HashSet<Position>,
    /// Directives that clients and servers do not notice.
    inert: HashSet<Position>,
    /// Directives that they notice.
    acting: HashSet<Position>,
}

#[derive(Debug)]
struct Note {
    line: Position,
    /// The directive on the line.
    at: Position,
    why: String,
    /// The effect of the line was imported anyway.
    kept: bool,
}

impl Notes {
    /// Adds a file; the first one is the one given by the operator.
    pub(crate) fn file(&mut self, name: &str, text: &str) -> usize {
        let lines = text.lines().map(|line| line.trim().to_owned()).collect();
        self.files.push((name.to_owned(), lines));
        self.files.len() - 1
    }

    /// Returns the number of files.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// Adds a note about a loss; duplicates are ignored.
    pub(crate) fn add(&mut self, position: Position, why: impl Into<String>) {
        self.note(position, why.into(), false);
    }

    /// Adds a note without a loss: about a default of the program, or about something it does not use.
    pub(crate) fn remark(&mut self, position: Position, why: impl Into<String>) {
        self.note(position, why.into(), true);
    }

    fn note(&mut self, position: Position, why: String, kept: bool) {
        self.positions.insert(position);
        let line = position.whole_line();
        if self.seen.insert((line, why.clone())) {
            self.notes.push(Note {
                line,
                at: position,
                why,
                kept,
            });
        }
    }

    /// Records whether clients and servers notice a directive.
    pub(crate) fn record_effect(&mut self, position: Position, is_inert: bool) {
        let lines = if is_inert {
            &mut self.inert
        } else {
            &mut self.acting
        };
        lines.insert(position);
    }

    /// Records that a note about this line covers this position too.
    pub(crate) fn add_covered(&mut self, position: Position) {
        self.positions.insert(position);
    }

    /// Returns whether there is a note about the line, or about this part of it.
    pub(crate) fn has_note(&self, position: Position) -> bool {
        self.positions.contains(&position)
    }

    /// Returns whether there is a note that the line is lost.
    pub(crate) fn is_lost(&self, position: Position) -> bool {
        let mut notes = self.notes.iter();
        notes.any(|note| note.line == position.whole_line() && self.is_loss(note))
    }

    /// Records that the line keeps clients out: a loss there is a loss of protection.
    pub(crate) fn mark_guard(&mut self, position: Position) {
        self.guards.insert(position.whole_line());
    }

    /// Records that the output keeps out the clients that the line does, although it differs otherwise.
    pub(crate) fn unmark_guard(&mut self, position: Position) {
        self.guards.remove(&position.whole_line());
    }

    /// Returns the losses of lines that keep clients out, in the format of [`Self::finish`].
    pub(crate) fn unguarded(&mut self) -> Vec<String> {
        self.render(|notes, note| !note.kept && notes.guards.contains(&note.line))
    }

    /// Returns the losses that clients or servers notice.
    pub(crate) fn losses(&mut self) -> Vec<String> {
        self.render(Self::is_loss)
    }

    /// Returns the notes about lines that change behaviour, in file order, with their text.
    pub(crate) fn lost(&self) -> Vec<(Position, String)> {
        let mut lost: Vec<&Note> = self
            .notes
            .iter()
            .filter(|note| self.is_loss(note))
            .collect();
        lost.sort_by_key(|note| note.line);
        let show = |note: &Note| (note.line, self.show(note));
        lost.into_iter().map(show).collect()
    }

    /// Returns the comment lines directly above a line, without their sign.
    pub(crate) fn comments_before(&self, position: Position) -> Vec<String> {
        let (_, lines) = &self.files[position.file];
        let above = lines.get(..position.line - 1).unwrap_or_default();
        let mut comments: Vec<String> = above
            .iter()
            .rev()
            .take_while(|line| line.starts_with(['#', '!']))
            .map(|line| line.trim_start_matches(['#', '!']).trim().to_owned())
            .collect();
        comments.reverse();
        comments.retain(|line| !line.is_empty());
        comments
    }

    fn is_loss(&self, note: &Note) -> bool {
        let is_inert = self.inert.contains(&note.at) && !self.acting.contains(&note.at);
        !note.kept && !is_inert
    }

    fn show(&self, note: &Note) -> String {
        let position = note.line;
        let (name, lines) = &self.files[position.file];
        let text = lines.get(position.line - 1).map_or("", String::as_str);
        let file = match position.file {
            0 => String::new(),
            _ => format!("{name} "),
        };
        let line = position.line;
        let why = &note.why;
        match text {
            "" => format!("{file}line {line}: {why}"),
            text => format!("{file}line {line}: {text}: {why}"),
        }
    }

    /// Returns all notes in file order: `line 3: TEXT: REASON`.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.render(|_, _| true)
    }

    fn render(&mut self, is_wanted: impl Fn(&Self, &Note) -> bool) -> Vec<String> {
        self.notes.sort_by_key(|note| note.line);
        let wanted = self.notes.iter().filter(|note| is_wanted(self, note));
        wanted.map(|note| self.show(note)).collect()
    }
}

#[cfg(test)]
impl Position {
    /// The first line of the first file.
    pub(crate) const FIRST: Self = Self {
        file: 0,
        line: 1,
        part: 0,
    };
}

impl Position {
    /// A line of a file, counted from 1.
    pub(crate) fn new(file: usize, line: usize) -> Self {
        Self {
            file,
            line: line.max(1),
            part: 0,
        }
    }

    /// The directive that begins at `part` of its line.
    pub(crate) const fn part(self, part: usize) -> Self {
        Self { part, ..self }
    }

    /// Returns whether both are on one line.
    pub(crate) const fn is_on_same_line(self, other: Self) -> bool {
        self.file == other.file && self.line == other.line
    }

    pub(crate) const fn whole_line(self) -> Self {
        self.part(0)
    }

    /// Returns the line number, from 1.
    pub(crate) const fn line(self) -> usize {
        self.line
    }
}
