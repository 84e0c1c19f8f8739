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

/// `^/a(/.*)$` and `{1}` as `^/a/(.*)$` and `/{1}`: what a route asks for begins with its slash, not with a group that does.
/// `None` = it begins with neither.
pub(crate) fn beginning_with_slash(regex: &str, path: &str) -> Option<(String, String)> {
    if path.starts_with('/') {
        return Some((regex.to_owned(), path.to_owned()));
    }
    let ends = regex.ends_with(')') || regex.ends_with(")$");
    let plain = regex.matches('(').count() == 1 && !regex.contains(['|', '\\']);
    let whole = path.starts_with("{1}") && ends && plain && regex.contains("(/");
    whole.then(|| (regex.replacen("(/", "/(", 1), format!("/{path}")))
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

    /// These, and those of a place nearer to the servers: a request comes to it behind these, a response before them.
    pub(crate) fn then(&self, nearer: &Self) -> Self {
        let mut both = nearer.clone();
        both.request = self.request.clone();
        both.request.follow(&nearer.request);
        both.response.follow(&self.response);
        both.rewrite = nearer.rewrite.clone().or_else(|| self.rewrite.clone());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_with_its_slash() {
        let said = |regex, path| beginning_with_slash(regex, path);
        let both = |regex: &str, path: &str| Some((regex.to_owned(), path.to_owned()));
        assert_eq!(said("^/a(/.*)$", "{1}"), both("^/a/(.*)$", "/{1}"));
        assert_eq!(said("^/a(.*)$", "/b{1}"), both("^/a(.*)$", "/b{1}"));
        for regex in [
            "^/a(.*)$",
            "^/a(/.*)?$",
            "^/a(/b|c)$",
            "^/a(/b)(c)$",
            "^\\(/a)",
        ] {
            assert_eq!(said(regex, "{1}"), None, "{regex}");
        }
        assert_eq!(said("^/a(/.*)$", "b{1}"), None);
    }

    #[test]
    fn responses_meet_the_nearer_place_first() {
        let place = Place::new(0, 1);
        let (mut far, mut near) = (Edits::default(), Edits::default());
        for (edits, value) in [(&mut far, "far"), (&mut near, "near")] {
            edits.request.set("A", value, place);
            edits.response.set("B", value, place);
        }
        let both = far.then(&near);
        assert_eq!(both.request, near.request);
        assert_eq!(both.response, far.response);
    }
}
