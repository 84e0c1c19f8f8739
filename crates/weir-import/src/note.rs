//! Places in the files that are read, and what is to be said of them.

use std::collections::HashSet;

/// A line of one of the files that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    file: usize,
    /// From 1.
    line: usize,
    /// Tells directives of one line apart.
    part: usize,
}

/// The files with their lines, and the notes about them.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    files: Vec<(String, Vec<String>)>,
    said: Vec<Said>,
    seen: HashSet<(Place, String)>,
    places: HashSet<Place>,
    /// Lines that keep clients out.
    guards: HashSet<Place>,
    /// Lines with something that clients or servers see nothing of.
    inert: HashSet<Place>,
    /// Lines with something that they see; one line may hold both.
    acting: HashSet<Place>,
}

#[derive(Debug)]
struct Said {
    line: Place,
    why: String,
    /// What the line asks for is carried over all the same.
    kept: bool,
}

impl Notes {
    /// Takes a file in; the first is the one that the operator named.
    pub(crate) fn file(&mut self, name: &str, text: &str) -> usize {
        let lines = text.lines().map(|line| line.trim().to_owned()).collect();
        self.files.push((name.to_owned(), lines));
        self.files.len() - 1
    }

    /// How many files were read.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// Says something of a line; the same thing twice counts once.
    pub(crate) fn say(&mut self, place: Place, why: impl Into<String>) {
        self.note(place, why.into(), false);
    }

    /// Says something of a line that loses nothing: what its program fills in, or does not use.
    pub(crate) fn remark(&mut self, place: Place, why: impl Into<String>) {
        self.note(place, why.into(), true);
    }

    fn note(&mut self, place: Place, why: String, kept: bool) {
        self.places.insert(place);
        let line = place.whole_line();
        if self.seen.insert((line, why.clone())) {
            self.said.push(Said { line, why, kept });
        }
    }

    /// Whether clients and servers see nothing of a directive.
    pub(crate) fn weigh(&mut self, place: Place, is_inert: bool) {
        let lines = if is_inert {
            &mut self.inert
        } else {
            &mut self.acting
        };
        lines.insert(place.whole_line());
    }

    /// What was said of its line holds for this place too.
    pub(crate) fn covered(&mut self, place: Place) {
        self.places.insert(place);
    }

    /// Whether anything was said of the line, or of this part of it.
    pub(crate) fn speaks_of(&self, place: Place) -> bool {
        self.places.contains(&place)
    }

    /// The line keeps clients out: what is said of it is a loss of protection.
    pub(crate) fn guard(&mut self, place: Place) {
        self.guards.insert(place.whole_line());
    }

    /// Everything that was said of lines that keep clients out, as [`Self::finish`] has it.
    pub(crate) fn unguarded(&mut self) -> Vec<String> {
        self.shown(|notes, said| !said.kept && notes.guards.contains(&said.line))
    }

    /// Everything that was said of lines that clients or servers see something of.
    pub(crate) fn losses(&mut self) -> Vec<String> {
        self.shown(|notes, said| {
            let line = &said.line;
            let is_inert = notes.inert.contains(line) && !notes.acting.contains(line);
            !said.kept && (notes.guards.contains(line) || !is_inert)
        })
    }

    /// Everything that was said, in the order of the files: `line 3: TEXT: WHY`.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.shown(|_, _| true)
    }

    fn shown(&mut self, of: impl Fn(&Self, &Said) -> bool) -> Vec<String> {
        self.said.sort_by_key(|said| said.line);
        let show = |Said {
                        line: place, why, ..
                    }: &Said| {
            let (name, lines) = &self.files[place.file];
            let text = lines.get(place.line - 1).map_or("", String::as_str);
            let file = match place.file {
                0 => String::new(),
                _ => format!("{name} "),
            };
            let line = place.line;
            match text {
                "" => format!("{file}line {line}: {why}"),
                text => format!("{file}line {line}: {text}: {why}"),
            }
        };
        let wanted = self.said.iter().filter(|said| of(self, said));
        wanted.map(show).collect()
    }
}

impl Place {
    /// A line of a file, counted from 1.
    pub(crate) fn new(file: usize, line: usize) -> Self {
        Self {
            file,
            line: line.max(1),
            part: 0,
        }
    }

    /// The directive of its line that begins there.
    pub(crate) const fn part(self, part: usize) -> Self {
        Self { part, ..self }
    }

    /// Whether both are on one line.
    pub(crate) const fn is_beside(self, other: Self) -> bool {
        self.file == other.file && self.line == other.line
    }

    const fn whole_line(self) -> Self {
        self.part(0)
    }

    /// Number of the line, from 1.
    pub(crate) const fn line(self) -> usize {
        self.line
    }
}
