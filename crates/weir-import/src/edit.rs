//! What a route changes of heads on their way, as haproxy and nginx both have it.

use crate::document::{Entry, Item};
use crate::note::Place;

/// Fields of one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields {
    set: Vec<(String, String, Place)>,
    remove: Vec<(String, Place)>,
}

impl Fields {
    /// The field has this value from here on.
    pub(crate) fn set(&mut self, name: &str, value: &str, place: Place) {
        self.forget(name);
        self.set.push((name.to_owned(), value.to_owned(), place));
    }

    /// The field is gone from here on.
    pub(crate) fn remove(&mut self, name: &str, place: Place) {
        self.forget(name);
        self.remove.push((name.to_owned(), place));
    }

    fn forget(&mut self, name: &str) {
        self.set
            .retain(|(known, ..)| !known.eq_ignore_ascii_case(name));
        self.remove
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }

    fn follow(&mut self, later: &Self) {
        for (name, value, place) in &later.set {
            self.set(name, value, *place);
        }
        for (name, place) in &later.remove {
            self.remove(name, *place);
        }
    }

    fn entries(&self, set: &'static str, remove: &'static str) -> Vec<Entry> {
        let lines = self.set.iter();
        let lines: Vec<Item> = lines
            .map(|(name, value, place)| Item::new(format!("{name}: {value}"), Some(*place)))
            .collect();
        let names = self.remove.iter();
        let names: Vec<Item> = names
            .map(|(name, place)| Item::new(name.as_str(), Some(*place)))
            .collect();
        let both = [(set, lines), (remove, names)].into_iter();
        both.filter(|(_, items)| !items.is_empty())
            .map(|(key, items)| Entry::implied(key, items))
            .collect()
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Edits {
    pub(crate) request: Fields,
    pub(crate) response: Fields,
    /// An expression that is found in a path, and the path that the server is asked for then.
    pub(crate) rewrite: Option<(String, String, Place)>,
}

impl Edits {
    /// Whether nothing is changed.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, then those of another place.
    pub(crate) fn then(&self, later: &Self) -> Self {
        let mut both = self.clone();
        both.request.follow(&later.request);
        both.response.follow(&later.response);
        both.rewrite = later.rewrite.clone().or(both.rewrite);
        both
    }

    /// Keys of a route, but for the path.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = self.request.entries("set_header", "remove_header");
        entries.extend(
            self.response
                .entries("set_response_header", "remove_response_header"),
        );
        entries
    }
}
