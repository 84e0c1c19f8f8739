//! Collects notes about positions in the source files.

use std::collections::HashSet;

/// A line of a source file, or a directive on that line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    file: usize,
    /// Line number, counted from 1.
    line: usize,
    /// Index of a token in the file, to distinguish directives on the same line; 0 for the whole line.
    token: usize,
}

/// The source files with their lines, and the notes about them.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    files: Vec<(String, Vec<String>)>,
    notes: Vec<Note>,
    seen: HashSet<(Position, String)>,
    /// Positions that have a note or are covered by a note.
    positions: HashSet<Position>,
    /// Lines that restrict access.
    restrictions: HashSet<Position>,
    /// Directives that do not affect clients or servers.
    inert: HashSet<Position>,
    /// Directives that affect clients or servers.
    effective: HashSet<Position>,
}

#[derive(Debug)]
struct Note {
    line: Position,
    /// Position of the directive on the line.
    directive: Position,
    reason: String,
    /// Whether the note reports no loss.
    is_remark: bool,
}

impl Notes {
    /// Adds a file and returns its index. The first file must be the one that the operator named.
    pub(crate) fn add_file(&mut self, name: &str, text: &str) -> usize {
        let lines = text.lines().map(|line| line.trim().to_owned()).collect();
        self.files.push((name.to_owned(), lines));
        self.files.len() - 1
    }

    /// Returns the number of files.
    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Adds a note about a loss; duplicates are ignored.
    pub(crate) fn add(&mut self, position: Position, reason: impl Into<String>) {
        self.push_note(position, reason.into(), false);
    }

    /// Adds a note that reports no loss, for example about a default of the other program, or about a line that has no
    /// effect in that program.
    pub(crate) fn remark(&mut self, position: Position, reason: impl Into<String>) {
        self.push_note(position, reason.into(), true);
    }

    fn push_note(&mut self, position: Position, reason: String, is_remark: bool) {
        self.positions.insert(position);
        let line = position.whole_line();
        if self.seen.insert((line, reason.clone())) {
            self.notes.push(Note {
                line,
                directive: position,
                reason,
                is_remark,
            });
        }
    }

    /// Records whether a directive affects clients or servers.
    pub(crate) fn record_effect(&mut self, position: Position, is_inert: bool) {
        let directives = if is_inert {
            &mut self.inert
        } else {
            &mut self.effective
        };
        directives.insert(position);
    }

    /// Records that an existing note covers this position too.
    pub(crate) fn mark_covered(&mut self, position: Position) {
        self.positions.insert(position);
    }

    /// Returns whether a note is about exactly this position or covers it.
    pub(crate) fn has_note(&self, position: Position) -> bool {
        self.positions.contains(&position)
    }

    /// Returns whether a note reports a loss on this line.
    pub(crate) fn has_loss(&self, position: Position) -> bool {
        let mut notes = self.notes.iter();
        notes.any(|note| note.line == position.whole_line() && self.is_loss(note))
    }

    /// Records that the line restricts access: if the line is lost, weir.toml may admit clients that the file rejects.
    pub(crate) fn mark_restriction(&mut self, position: Position) {
        self.restrictions.insert(position.whole_line());
    }

    /// Records that the output rejects the same clients as the line, although the output differs in other ways.
    pub(crate) fn unmark_restriction(&mut self, position: Position) {
        self.restrictions.remove(&position.whole_line());
    }

    /// Returns the losses of lines that restrict access, in the format of [`Self::finish`].
    pub(crate) fn unguarded(&mut self) -> Vec<String> {
        self.render(|notes, note| !note.is_remark && notes.restrictions.contains(&note.line))
    }

    /// Returns the losses that affect clients or servers.
    pub(crate) fn losses(&mut self) -> Vec<String> {
        self.render(Self::is_loss)
    }

    /// Returns the losses that affect clients or servers in file order, each with its line.
    pub(crate) fn losses_by_line(&self) -> Vec<(Position, String)> {
        let mut lost: Vec<&Note> = self
            .notes
            .iter()
            .filter(|note| self.is_loss(note))
            .collect();
        lost.sort_by_key(|note| note.line);
        let with_line = |note: &Note| (note.line, self.format_note(note));
        lost.into_iter().map(with_line).collect()
    }

    /// Returns the comment lines directly above a line, without their comment character.
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
        let is_inert =
            self.inert.contains(&note.directive) && !self.effective.contains(&note.directive);
        !note.is_remark && !is_inert
    }

    fn format_note(&self, note: &Note) -> String {
        let position = note.line;
        let (name, lines) = &self.files[position.file];
        let text = lines.get(position.line - 1).map_or("", String::as_str);
        let file = match position.file {
            0 => String::new(),
            _ => format!("{name} "),
        };
        let line = position.line;
        let reason = &note.reason;
        match text {
            "" => format!("{file}line {line}: {reason}"),
            text => format!("{file}line {line}: {text}: {reason}"),
        }
    }

    /// Returns all notes in file order: `line 3: TEXT: REASON`.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.render(|_, _| true)
    }

    fn render(&mut self, is_included: impl Fn(&Self, &Note) -> bool) -> Vec<String> {
        self.notes.sort_by_key(|note| note.line);
        let included = self.notes.iter().filter(|note| is_included(self, note));
        included.map(|note| self.format_note(note)).collect()
    }
}

#[cfg(test)]
impl Position {
    /// The first line of the first file.
    pub(crate) const FIRST: Self = Self {
        file: 0,
        line: 1,
        token: 0,
    };
}

impl Position {
    /// Returns the position of a line, counted from 1.
    pub(crate) fn new(file: usize, line: usize) -> Self {
        Self {
            file,
            line: line.max(1),
            token: 0,
        }
    }

    /// Returns the position of the directive on this line that begins with the token at this index of the file.
    pub(crate) const fn token(self, token: usize) -> Self {
        Self { token, ..self }
    }

    /// Returns whether both positions are on the same line.
    pub(crate) const fn is_on_same_line(self, other: Self) -> bool {
        self.file == other.file && self.line == other.line
    }

    /// Returns the position of the whole line.
    pub(crate) const fn whole_line(self) -> Self {
        self.token(0)
    }

    /// Returns the line number, counted from 1.
    pub(crate) const fn line(self) -> usize {
        self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(file: usize, line: usize) -> Position {
        Position::new(file, line)
    }

    /// Three files: `f` with the lines `a` to `d`, `g` with `x` and an empty line, and `h` without lines.
    fn files() -> Notes {
        let mut notes = Notes::default();
        assert_eq!(notes.file_count(), 0);
        assert_eq!(notes.add_file("f", " a\nb\t\nc\nd"), 0);
        assert_eq!(notes.file_count(), 1);
        assert_eq!(notes.add_file("g", "x\n\n"), 1);
        assert_eq!(notes.add_file("h", ""), 2);
        assert_eq!(notes.file_count(), 3);
        notes
    }

    #[test]
    fn notes_are_in_file_order_and_without_duplicates() {
        let mut notes = files();
        for (position, reason) in [
            (at(1, 1), "other file"),
            (at(0, 3), "third"),
            (at(0, 1), "one"),
            (at(0, 1), "two"),
            (at(0, 1).token(4), "one"),
            (at(1, 2), "empty line"),
            (at(0, 9), "after the end"),
        ] {
            notes.add(position, reason);
        }
        let expected = [
            "line 1: a: one",
            "line 1: a: two",
            "line 3: c: third",
            "line 9: after the end",
            "g line 1: x: other file",
            "g line 2: empty line",
        ];
        assert_eq!(notes.losses(), expected);
        let by_line = notes.losses_by_line();
        let lines: Vec<usize> = by_line
            .iter()
            .map(|(position, _)| position.line())
            .collect();
        assert_eq!(lines, [1, 1, 3, 9, 1, 2]);
        let texts: Vec<&str> = by_line.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, expected);
        assert_eq!(notes.finish(), expected);
    }

    #[test]
    fn remarks_and_notes_about_inert_directives_are_not_losses() {
        let mut notes = files();
        notes.add(at(0, 1).token(1), "loss");
        notes.remark(at(0, 2), "remark");
        for (line, effects) in [(3, &[true][..]), (4, &[true, false])] {
            notes.add(at(0, line), "inert or not");
            for is_inert in effects {
                notes.record_effect(at(0, line), *is_inert);
            }
        }
        notes.add(at(1, 1), "effective");
        notes.record_effect(at(1, 1), false);
        let lines = [at(0, 1), at(0, 2), at(0, 3), at(0, 4), at(1, 1), at(1, 2)];
        let has_loss = lines.map(|position| notes.has_loss(position));
        assert_eq!(has_loss, [true, false, false, true, true, false]);
        assert!(notes.has_loss(at(0, 1).token(7)));
        let losses = [
            "line 1: a: loss",
            "line 4: d: inert or not",
            "g line 1: x: effective",
        ];
        assert_eq!(notes.losses(), losses);
        assert_eq!(notes.losses_by_line().len(), 3);
        assert_eq!(notes.finish().len(), 5);
    }

    #[test]
    fn effect_of_one_directive_does_not_affect_another_on_the_same_line() {
        let mut notes = files();
        notes.record_effect(at(0, 1).token(1), true);
        notes.add(at(0, 1).token(1), "inert");
        assert!(!notes.has_loss(at(0, 1)));
        notes.record_effect(at(0, 1).token(2), false);
        notes.add(at(0, 1).token(2), "effective");
        assert!(notes.has_loss(at(0, 1)));
        assert_eq!(notes.losses(), ["line 1: a: effective"]);
    }

    #[test]
    fn lost_restrictions_are_unguarded_unless_unmarked() {
        let mut notes = files();
        for line in 1..=4 {
            notes.mark_restriction(at(0, line).token(line));
        }
        notes.add(at(0, 1), "lost");
        notes.remark(at(0, 2), "remark");
        notes.add(at(0, 3), "rejects the same clients");
        notes.unmark_restriction(at(0, 3).token(9));
        notes.add(at(1, 1), "no restriction");
        assert_eq!(notes.unguarded(), ["line 1: a: lost"]);
        assert_eq!(notes.losses().len(), 3);
    }

    #[test]
    fn position_has_a_note_if_a_note_is_about_it_or_covers_it() {
        let mut notes = files();
        notes.add(at(0, 1).token(2), "loss");
        notes.remark(at(0, 2), "remark");
        notes.mark_covered(at(0, 3));
        for (position, expected) in [
            (at(0, 1).token(2), true),
            (at(0, 1), false),
            (at(0, 2), true),
            (at(0, 3), true),
            (at(0, 4), false),
            (at(1, 2), false),
        ] {
            assert_eq!(notes.has_note(position), expected, "{position:?}");
        }
        assert_eq!(notes.finish().len(), 2);
    }

    #[test]
    fn comment_lines_directly_above_belong_to_a_line() {
        let mut notes = Notes::default();
        notes.add_file("f", "# old\n\n  ## one\n#\n! two\na\nb # x\nc\n#last\n");
        notes.add_file("g", "#other\nd\n");
        for (position, expected) in [
            (at(0, 1), &[][..]),
            (at(0, 2), &["old"]),
            (at(0, 3), &[]),
            (at(0, 5), &["one"]),
            (at(0, 6), &["one", "two"]),
            (at(0, 7), &[]),
            (at(0, 8), &[]),
            (at(0, 10), &["last"]),
            (at(0, 99), &[]),
            (at(1, 2), &["other"]),
        ] {
            assert_eq!(notes.comments_before(position), expected, "{position:?}");
        }
    }

    #[test]
    fn positions_are_compared_by_file_line_and_token() {
        let position = at(1, 5).token(3);
        assert_eq!(position.line(), 5);
        assert_eq!(position.whole_line(), at(1, 5));
        assert_ne!(position, at(1, 5));
        assert_ne!(position, at(1, 5).token(4));
        assert_eq!(at(0, 0), at(0, 1));
        for (other, expected) in [
            (at(1, 5), true),
            (at(1, 5).token(9), true),
            (at(1, 6), false),
            (at(0, 5), false),
            (at(0, 6), false),
        ] {
            assert_eq!(position.is_on_same_line(other), expected, "{other:?}");
        }
    }
}
