//! Places in the files that are read, and what is to be said of them.

use std::collections::HashSet;

/// A line of one of the files that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    file: usize,
    /// From 1.
    line: usize,
}

/// The files with their lines, and the notes about them.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    files: Vec<(String, Vec<String>)>,
    said: Vec<(Place, String)>,
    seen: HashSet<(Place, String)>,
    places: HashSet<Place>,
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
        let why = why.into();
        if self.seen.insert((place, why.clone())) {
            self.places.insert(place);
            self.said.push((place, why));
        }
    }

    /// Whether anything was said of the line.
    pub(crate) fn speaks_of(&self, place: Place) -> bool {
        self.places.contains(&place)
    }

    /// Everything that was said, in the order of the files: `line 3: TEXT: WHY`.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.said.sort_by_key(|(place, _)| *place);
        let show = |(place, why): &(Place, String)| {
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
        self.said.iter().map(show).collect()
    }
}

impl Place {
    /// A line of a file, counted from 1.
    pub(crate) fn new(file: usize, line: usize) -> Self {
        Self {
            file,
            line: line.max(1),
        }
    }

    /// Number of the line, from 1.
    pub(crate) const fn line(self) -> usize {
        self.line
    }
}
