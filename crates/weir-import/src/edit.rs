//! Collects the header and path changes that a route makes, for the haproxy and nginx importers.

use std::collections::BTreeMap;

use crate::document::{Entry, Item, Value};
use crate::note::Position;

/// Header changes in one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields {
    set: Vec<(String, String, Position)>,
    add: Vec<(String, String, Position)>,
    remove: Vec<(String, Position)>,
    /// The statuses of the responses that get a field, by field name in lower case.
    statuses: BTreeMap<String, &'static str>,
    /// The only file whose response gets a field, by field name in lower case.
    files: BTreeMap<String, String>,
}

impl Fields {
    /// Sets the field to this value.
    pub(crate) fn set(&mut self, name: &str, value: &str, position: Position) {
        self.discard(name);
        self.set.push((name.to_owned(), value.to_owned(), position));
    }

    /// Returns whether the field is set.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        let mut set = self.set.iter();
        set.any(|(existing, ..)| existing.eq_ignore_ascii_case(name))
    }

    /// Removes the field.
    pub(crate) fn remove(&mut self, name: &str, position: Position) {
        self.discard(name);
        self.remove.push((name.to_owned(), position));
    }

    /// Returns whether a field with this name is set or removed.
    pub(crate) fn replaces(&self, name: &str) -> bool {
        let mut removed = self.remove.iter();
        self.is_set(name) || removed.any(|(existing, _)| existing.eq_ignore_ascii_case(name))
    }

    /// Sets the field in responses with these statuses, or in all responses if `None`.
    pub(crate) fn set_for(
        &mut self,
        name: &str,
        value: &str,
        statuses: Option<&'static str>,
        position: Position,
    ) {
        self.set(name, value, position);
        self.limit_to_statuses(name, statuses);
    }

    /// Adds a field to responses with these statuses, or to all responses if `None`.
    pub(crate) fn add_for(
        &mut self,
        name: &str,
        value: &str,
        statuses: Option<&'static str>,
        position: Position,
    ) {
        self.add(name, value, position);
        self.limit_to_statuses(name, statuses);
    }

    /// Adds fields to responses with `statuses`, and limits the existing fields to `other_statuses`. An existing field
    /// with the same value is sent in all responses. Returns the names of the fields that are not added because they
    /// exist with a different value.
    pub(crate) fn replace_for(
        &mut self,
        statuses: &'static str,
        other_statuses: &'static str,
        fields: &[(String, String, Position)],
    ) -> Vec<String> {
        let existing: Vec<(String, String)> = self
            .set
            .iter()
            .chain(&self.add)
            .map(|(name, value, _)| (name.to_ascii_lowercase(), value.clone()))
            .collect();
        let (mut different, mut new) = (Vec::new(), Vec::new());
        for (name, value, position) in fields {
            let lower = name.to_ascii_lowercase();
            match existing
                .iter()
                .find(|(existing_name, _)| *existing_name == lower)
            {
                None => new.push((name, value, *position)),
                Some((_, existing_value)) if existing_value != value => {
                    different.push(name.clone())
                }
                Some(_) => {}
            }
        }
        for (name, value) in existing {
            let is_unchanged = fields
                .iter()
                .any(|(other, text, _)| other.eq_ignore_ascii_case(&name) && *text == value);
            if !is_unchanged {
                self.statuses.entry(name).or_insert(other_statuses);
            }
        }
        for (name, value, position) in new {
            self.add_for(name, value, Some(statuses), position);
        }
        different
    }

    /// Adds the fields of `other` to the response with a file.
    pub(crate) fn add_for_file(&mut self, other: &Self, file: &str) {
        for (name, value, position) in other.set.iter().chain(&other.add) {
            self.add(name, value, *position);
            let lower = name.to_ascii_lowercase();
            self.limit_to_statuses(name, other.statuses.get(&lower).copied());
            self.files.insert(lower, file.to_owned());
        }
    }

    /// Removes the fields of responses with a file.
    fn remove_file_fields(&mut self) {
        let files = std::mem::take(&mut self.files);
        self.add
            .retain(|(name, ..)| !files.contains_key(&name.to_ascii_lowercase()));
    }

    fn limit_to_statuses(&mut self, name: &str, statuses: Option<&'static str>) {
        if let Some(statuses) = statuses {
            self.statuses.insert(name.to_ascii_lowercase(), statuses);
        }
    }

    /// Adds a field without replacing fields of the same name.
    pub(crate) fn add(&mut self, name: &str, value: &str, position: Position) {
        self.add.push((name.to_owned(), value.to_owned(), position));
    }

    /// Discards the earlier changes to a field.
    fn discard(&mut self, name: &str) {
        self.add
            .retain(|(existing, ..)| !existing.eq_ignore_ascii_case(name));
        self.set
            .retain(|(existing, ..)| !existing.eq_ignore_ascii_case(name));
        self.remove
            .retain(|(existing, _)| !existing.eq_ignore_ascii_case(name));
    }

    fn merge(&mut self, edits: &Self) {
        for (name, value, position) in &edits.set {
            self.set(name, value, *position);
        }
        for (name, position) in &edits.remove {
            self.remove(name, *position);
        }
        self.add.extend(edits.add.iter().cloned());
        self.statuses.extend(edits.statuses.clone());
        self.files.extend(edits.files.clone());
    }

    fn entries(&self, set: &'static str, add: &'static str, remove: &'static str) -> Vec<Entry> {
        let items = |lines: &[(String, String, Position)]| -> Vec<Item> {
            let lines = lines.iter();
            lines
                .map(|(name, value, position)| {
                    let field = format!("{name}: {value}");
                    let name = name.to_ascii_lowercase();
                    let statuses = self.statuses.get(&name);
                    let file = self.files.get(&name);
                    if statuses.is_none() && file.is_none() {
                        return Item::new(field, Some(*position));
                    }
                    let mut keys = vec![Entry::implied("header", field).essential()];
                    keys.extend(statuses.map(|it| Entry::implied("status", *it).essential()));
                    keys.extend(file.map(|it| Entry::implied("file", it.as_str()).essential()));
                    Item::new(keys, Some(*position))
                })
                .collect()
        };
        let names = self.remove.iter();
        let names: Vec<Item> = names
            .map(|(name, position)| Item::new(name.as_str(), Some(*position)))
            .collect();
        let all = [
            (set, items(&self.set)),
            (add, items(&self.add)),
            (remove, names),
        ];
        all.into_iter()
            .filter(|(_, items)| !items.is_empty())
            .map(|(key, items)| Entry::implied(key, items))
            .collect()
    }
}

/// Rewrites `^/a(/.*)$` and `{1}` as `^/a/(.*)$` and `/{1}`: a route's rewritten path must begin with a literal
/// slash, not with a group. Returns `None` if the path cannot be written that way.
pub(crate) fn with_leading_slash(regex: &str, path: &str) -> Option<(String, String)> {
    if path.starts_with('/') {
        return Some((regex.to_owned(), path.to_owned()));
    }
    let ends_with_group = regex.ends_with(')') || regex.ends_with(")$");
    let is_plain = regex.matches('(').count() == 1 && !regex.contains(['|', '\\']);
    let is_whole_tail =
        path.starts_with("{1}") && ends_with_group && is_plain && regex.contains("(/");
    is_whole_tail.then(|| (regex.replacen("(/", "/(", 1), format!("/{path}")))
}

/// Header and path changes of a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Edits {
    pub(crate) request: Fields,
    pub(crate) response: Fields,
    /// Regular expressions to search for in the path, each with the new path. Only the first match is applied.
    pub(crate) rewrites: Vec<(String, String, Position)>,
    /// Replacements of the values of response fields, in order.
    pub(crate) replacements: Vec<Replacement>,
    /// Other keys of the route.
    pub(crate) keys: Vec<Entry>,
}

/// A replacement of the value of a response field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Replacement {
    pub(crate) name: String,
    pub(crate) regex: String,
    /// The new value, with groups such as `{1}`.
    pub(crate) to: String,
    pub(crate) position: Position,
}

impl Edits {
    /// Returns whether there are no changes.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds keys, and replaces existing keys with the same names. `timeouts` is merged: only timeouts with the same
    /// names are replaced.
    pub(crate) fn replace_keys(&mut self, keys: &[Entry]) {
        for key in keys {
            let existing = self
                .keys
                .iter()
                .position(|existing| existing.key == key.key);
            let mut key = key.clone();
            if let Some(existing) = existing.map(|index| self.keys.remove(index))
                && key.key == "timeouts"
                && let (Value::Table(old), Value::Table(new)) =
                    (existing.item.value, &mut key.item.value)
            {
                let is_old_only = |entry: &Entry| new.iter().all(|it| it.key != entry.key);
                let old_only: Vec<Entry> = old.into_iter().filter(is_old_only).collect();
                new.splice(0..0, old_only);
            }
            self.keys.push(key);
        }
    }

    /// Combines these changes with the changes of a level closer to the servers: requests pass this level first, and
    /// responses pass it last.
    pub(crate) fn then(&self, inner: &Self) -> Self {
        let mut combined = inner.clone();
        combined.request = self.request.clone();
        combined.request.merge(&inner.request);
        combined.response.merge(&self.response);
        let outer_replacements = self.replacements.iter();
        combined.replacements.extend(outer_replacements.cloned());
        if combined.rewrites.is_empty() {
            combined.rewrites.clone_from(&self.rewrites);
        }
        let outer_keys = self.keys.iter();
        let is_missing = |key: &&Entry| inner.keys.iter().all(|existing| existing.key != key.key);
        combined.keys.extend(outer_keys.filter(is_missing).cloned());
        combined
    }

    /// Returns the changes to a response that Weir generates instead of a server.
    pub(crate) fn for_generated_response(&self) -> Self {
        let mut response = self.response.clone();
        response.remove.clear();
        response.remove_file_fields();
        Self {
            response,
            ..Self::default()
        }
    }

    /// Returns the route's keys for header changes.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = self
            .request
            .entries("set_header", "add_header", "remove_header");
        entries.extend(self.response.entries(
            "set_response_header",
            "add_response_header",
            "remove_response_header",
        ));
        if !self.replacements.is_empty() {
            let replacements = self.replacements.iter().map(Replacement::item);
            let replacements: Vec<Item> = replacements.collect();
            entries.push(Entry::implied("replace_response_header", replacements));
        }
        entries
    }
}

impl Replacement {
    /// Returns the entry of a route's `replace_response_header`.
    fn item(&self) -> Item {
        let keys = vec![
            Entry::implied("name", self.name.as_str()).essential(),
            Entry::implied("regex", self.regex.as_str()).essential(),
            Entry::implied("to", self.to.as_str()).essential(),
        ];
        Item::new(keys, Some(self.position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_gets_literal_leading_slash() {
        let rewritten = |regex, path| with_leading_slash(regex, path);
        let pair = |regex: &str, path: &str| Some((regex.to_owned(), path.to_owned()));
        assert_eq!(rewritten("^/a(/.*)$", "{1}"), pair("^/a/(.*)$", "/{1}"));
        assert_eq!(rewritten("^/a(.*)$", "/b{1}"), pair("^/a(.*)$", "/b{1}"));
        for regex in [
            "^/a(.*)$",
            "^/a(/.*)?$",
            "^/a(/b|c)$",
            "^/a(/b)(c)$",
            "^\\(/a)",
        ] {
            assert_eq!(rewritten(regex, "{1}"), None, "{regex}");
        }
        assert_eq!(rewritten("^/a(/.*)$", "b{1}"), None);
    }

    #[test]
    fn outer_level_overrides_response_fields_and_inner_level_request_fields() {
        let position = Position::new(0, 1);
        let (mut outer, mut inner) = (Edits::default(), Edits::default());
        for (edits, value) in [(&mut outer, "outer"), (&mut inner, "inner")] {
            edits.request.set("A", value, position);
            edits.response.set("B", value, position);
        }
        let combined = outer.then(&inner);
        assert_eq!(combined.request, inner.request);
        assert_eq!(combined.response, outer.response);
    }
}
