//! Collects the header and path changes that a route makes, for the haproxy and nginx importers.

use crate::document::{Entry, Item, Value};
use crate::note::Position;

/// Header changes in one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields {
    set: Vec<Field>,
    add: Vec<Field>,
    remove: Vec<(String, Position)>,
}

/// A field that is set or added.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    value: String,
    position: Position,
    /// The statuses of the responses that get the field; `None` for all responses.
    statuses: Option<&'static str>,
    /// The only file whose response gets the field.
    file: Option<String>,
}

impl Field {
    fn new(name: &str, value: &str, statuses: Option<&'static str>, position: Position) -> Self {
        Self {
            name: name.to_owned(),
            value: value.to_owned(),
            position,
            statuses,
            file: None,
        }
    }

    /// Returns the field as an item of a route's list.
    fn item(&self) -> Item {
        let field = format!("{}: {}", self.name, self.value);
        if self.statuses.is_none() && self.file.is_none() {
            return Item::new(field, Some(self.position));
        }
        let mut keys = vec![Entry::implied("header", field).essential()];
        keys.extend(
            self.statuses
                .map(|it| Entry::implied("status", it).essential()),
        );
        let file = self.file.as_deref();
        keys.extend(file.map(|it| Entry::implied("file", it).essential()));
        Item::new(keys, Some(self.position))
    }
}

impl Fields {
    /// Sets the field to this value.
    pub(crate) fn set(&mut self, name: &str, value: &str, position: Position) {
        self.set_for(name, value, None, position);
    }

    /// Returns whether the field is set.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        let mut set = self.set.iter();
        set.any(|field| field.name.eq_ignore_ascii_case(name))
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
        self.discard(name);
        self.set.push(Field::new(name, value, statuses, position));
    }

    /// Adds a field to responses with these statuses, or to all responses if `None`.
    pub(crate) fn add_for(
        &mut self,
        name: &str,
        value: &str,
        statuses: Option<&'static str>,
        position: Position,
    ) {
        self.add.push(Field::new(name, value, statuses, position));
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
        let (mut different, mut new) = (Vec::new(), Vec::new());
        for (name, value, position) in fields {
            let mut existing = self.set.iter().chain(&self.add);
            match existing.find(|it| it.name.eq_ignore_ascii_case(name)) {
                None => new.push(Field::new(name, value, Some(statuses), *position)),
                Some(existing) if existing.value != *value => different.push(name.clone()),
                Some(_) => {}
            }
        }
        for existing in self.set.iter_mut().chain(&mut self.add) {
            let is_unchanged = fields.iter().any(|(name, value, _)| {
                existing.name.eq_ignore_ascii_case(name) && existing.value == *value
            });
            if !is_unchanged {
                existing.statuses.get_or_insert(other_statuses);
            }
        }
        self.add.extend(new);
        different
    }

    /// Adds the fields that `other` sets or adds, only for the response with this file.
    pub(crate) fn add_for_file(&mut self, other: &Self, file: &str) {
        let fields = other.set.iter().chain(&other.add);
        self.add.extend(fields.map(|field| Field {
            file: Some(file.to_owned()),
            ..field.clone()
        }));
    }

    /// Removes the fields that are limited to a file's response.
    fn remove_file_fields(&mut self) {
        self.add.retain(|field| field.file.is_none());
    }

    /// Adds a field without replacing fields of the same name.
    pub(crate) fn add(&mut self, name: &str, value: &str, position: Position) {
        self.add_for(name, value, None, position);
    }

    /// Discards the earlier changes to a field.
    fn discard(&mut self, name: &str) {
        let is_other = |field: &Field| !field.name.eq_ignore_ascii_case(name);
        self.add.retain(is_other);
        self.set.retain(is_other);
        self.remove
            .retain(|(existing, _)| !existing.eq_ignore_ascii_case(name));
    }

    fn merge(&mut self, edits: &Self) {
        for field in &edits.set {
            self.discard(&field.name);
            self.set.push(field.clone());
        }
        for (name, position) in &edits.remove {
            self.remove(name, *position);
        }
        self.add.extend(edits.add.iter().cloned());
    }

    fn entries(&self, set: &'static str, add: &'static str, remove: &'static str) -> Vec<Entry> {
        let items = |fields: &[Field]| -> Vec<Item> { fields.iter().map(Field::item).collect() };
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

    /// Returns the changes to a response that Weir itself generates: the response fields that are set or added, except
    /// those for files.
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
    use crate::document::{Document, Table};

    #[test]
    fn path_gets_literal_leading_slash() {
        let rewritten = |regex, path| with_leading_slash(regex, path);
        let pair = |regex: &str, path: &str| Some((regex.to_owned(), path.to_owned()));
        assert_eq!(rewritten("^/a(/.*)$", "{1}"), pair("^/a/(.*)$", "/{1}"));
        assert_eq!(rewritten("^/a(/.*)", "{1}"), pair("^/a/(.*)", "/{1}"));
        assert_eq!(rewritten("^/a(/.*)$", "{1}?b"), pair("^/a/(.*)$", "/{1}?b"));
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

    const HERE: Position = Position::FIRST;

    /// Returns the entries as lines of TOML.
    fn lines(entries: Vec<Entry>) -> Vec<String> {
        let mut document = Document::default();
        let mut table = Table::new(&["t"], HERE);
        table.entries = entries;
        document.push(table);
        let text = document.render().text;
        text.lines().skip(1).map(str::to_owned).collect()
    }

    fn response_lines(fields: &Fields) -> Vec<String> {
        let edits = Edits {
            response: fields.clone(),
            ..Edits::default()
        };
        lines(edits.entries())
    }

    #[test]
    fn later_change_of_a_field_discards_earlier_ones() {
        let mut fields = Fields::default();
        assert!(response_lines(&fields).is_empty());
        fields.set("A", "1", HERE);
        fields.add("B", "1", HERE);
        fields.remove("C", HERE);
        fields.add("b", "2", HERE);
        let all = |values: [&str; 3]| {
            let [set, add, remove] = values;
            [
                format!("set_response_header = [{set}]"),
                format!("add_response_header = [{add}]"),
                format!("remove_response_header = [{remove}]"),
            ]
        };
        let first = [r#""A: 1""#, r#""B: 1", "b: 2""#, r#""C""#];
        assert_eq!(response_lines(&fields), all(first));
        for (name, replaces, is_set) in [
            ("a", true, true),
            ("A", true, true),
            ("b", false, false),
            ("c", true, false),
            ("d", false, false),
        ] {
            assert_eq!(fields.replaces(name), replaces, "{name}");
            assert_eq!(fields.is_set(name), is_set, "{name}");
        }
        fields.set("D", "1", HERE);
        fields.set("a", "2", HERE);
        let second = [r#""D: 1", "a: 2""#, r#""B: 1", "b: 2""#, r#""C""#];
        assert_eq!(response_lines(&fields), all(second));
        fields.set("b", "3", HERE);
        fields.set("c", "3", HERE);
        fields.remove("A", HERE);
        fields.remove("E", HERE);
        fields.remove("e", HERE);
        assert_eq!(
            response_lines(&fields),
            [
                r#"set_response_header = ["D: 1", "b: 3", "c: 3"]"#,
                r#"remove_response_header = ["A", "e"]"#,
            ]
        );
    }

    #[test]
    fn fields_can_be_limited_to_statuses_and_files() {
        let mut fields = Fields::default();
        fields.set_for("A", "1", Some("200-299"), HERE);
        fields.set_for("B", "1", None, HERE);
        fields.add_for("C", "1", Some("404"), HERE);
        fields.add_for("D", "1", None, HERE);
        assert_eq!(
            response_lines(&fields),
            [
                r#"set_response_header = [{ header = "A: 1", status = "200-299" }, "B: 1"]"#,
                r#"add_response_header = [{ header = "C: 1", status = "404" }, "D: 1"]"#,
            ]
        );
        fields.set_for("A", "2", None, HERE);
        fields.add_for("C", "2", None, HERE);
        assert_eq!(
            response_lines(&fields),
            [
                r#"set_response_header = ["B: 1", "A: 2"]"#,
                r#"add_response_header = [{ header = "C: 1", status = "404" }, "D: 1", "C: 2"]"#,
            ]
        );
        let mut file_fields = Fields::default();
        file_fields.set("E", "1", HERE);
        file_fields.add_for("F", "1", Some("200"), HERE);
        let mut all = Fields::default();
        all.add("E", "1", HERE);
        all.add_for_file(&file_fields, "/f");
        assert_eq!(
            response_lines(&all),
            [concat!(
                r#"add_response_header = ["E: 1", { header = "E: 1", file = "/f" }, "#,
                r#"{ header = "F: 1", status = "200", file = "/f" }]"#
            )]
        );
        all.remove_file_fields();
        assert_eq!(response_lines(&all), [r#"add_response_header = ["E: 1"]"#]);
    }

    #[test]
    fn existing_fields_are_limited_to_other_statuses() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned(), HERE);
        for (new, expected, different) in [
            (
                &[][..],
                r#"[{ header = "A: 1", status = "200-299" }, { header = "B: 1", status = "300" }]"#,
                &[][..],
            ),
            (
                &[field("a", "1")],
                r#"["A: 1", { header = "B: 1", status = "300" }]"#,
                &[],
            ),
            (
                &[field("a", "2")],
                r#"[{ header = "A: 1", status = "200-299" }, { header = "B: 1", status = "300" }]"#,
                &["a"],
            ),
            (
                &[field("c", "1")],
                concat!(
                    r#"[{ header = "A: 1", status = "200-299" }, { header = "B: 1", status = "300" }, "#,
                    r#"{ header = "c: 1", status = "500" }]"#
                ),
                &[],
            ),
        ] {
            let mut fields = Fields::default();
            fields.add("A", "1", HERE);
            fields.add_for("B", "1", Some("300"), HERE);
            let not_added = fields.replace_for("500", "200-299", new);
            assert_eq!(not_added, different, "{new:?}");
            assert_eq!(
                response_lines(&fields),
                [format!("add_response_header = {expected}")],
                "{new:?}"
            );
        }
        // Each field with the same name has its own statuses.
        let mut fields = Fields::default();
        fields.add("A", "1", HERE);
        fields.add("A", "2", HERE);
        let not_added = fields.replace_for("500", "200-299", &[field("a", "1")]);
        assert!(not_added.is_empty());
        let added = r#"add_response_header = ["A: 1", { header = "A: 2", status = "200-299" }]"#;
        assert_eq!(response_lines(&fields), [added]);
        let mut set = Fields::default();
        set.set("A", "1", HERE);
        assert!(set.replace_for("500", "200-299", &[]).is_empty());
        let limited = r#"set_response_header = [{ header = "A: 1", status = "200-299" }]"#;
        assert_eq!(response_lines(&set), [limited]);
    }

    fn replacement(name: &str) -> Replacement {
        Replacement {
            name: name.to_owned(),
            regex: "^a".to_owned(),
            to: "b{1}".to_owned(),
            position: HERE,
        }
    }

    /// Returns changes of every kind, each with this text.
    fn changes(text: &str) -> Edits {
        let mut edits = Edits::default();
        edits.request.set("Both", text, HERE);
        edits.request.add(&format!("Q-{text}"), "1", HERE);
        edits.request.remove(&format!("R-{text}"), HERE);
        edits.response.set_for("Both", text, Some("200"), HERE);
        edits.response.remove(&format!("S-{text}"), HERE);
        edits.rewrites = vec![(format!("^/{text}"), "/".to_owned(), HERE)];
        edits.replacements = vec![replacement(text)];
        edits.keys = vec![
            Entry::implied("both", text),
            Entry::implied(if text == "in" { "in" } else { "out" }, text),
        ];
        edits
    }

    #[test]
    fn changes_of_two_levels_are_combined() {
        let (outer, inner) = (changes("out"), changes("in"));
        assert!(Edits::default().is_empty());
        assert!(!inner.is_empty());
        let combined = outer.then(&inner);
        let replaced =
            |name: &str| format!(r#"{{ name = "{name}", regex = "^a", to = "b{{1}}" }}"#);
        let (first, second) = (replaced("in"), replaced("out"));
        assert_eq!(
            lines(combined.entries()),
            [
                r#"set_header = ["Both: in"]"#,
                r#"add_header = ["Q-out: 1", "Q-in: 1"]"#,
                r#"remove_header = ["R-out", "R-in"]"#,
                r#"set_response_header = [{ header = "Both: out", status = "200" }]"#,
                r#"remove_response_header = ["S-in", "S-out"]"#,
                &format!("replace_response_header = [{first}, {second}]"),
            ]
        );
        assert_eq!(
            lines(combined.keys.clone()),
            [r#"both = "in""#, r#"in = "in""#, r#"out = "out""#]
        );
        assert_eq!(combined.rewrites, inner.rewrites);
        let without_rewrites = Edits {
            rewrites: Vec::new(),
            ..inner
        };
        assert_eq!(outer.then(&without_rewrites).rewrites, outer.rewrites);
    }

    #[test]
    fn generated_response_has_only_the_response_fields() {
        let mut edits = changes("x");
        edits.response.add("T", "1", HERE);
        let mut file_fields = Fields::default();
        file_fields.add("U", "1", HERE);
        edits.response.add_for_file(&file_fields, "/f");
        let response = edits.for_generated_response();
        assert_eq!(
            lines(response.entries()),
            [
                r#"set_response_header = [{ header = "Both: x", status = "200" }]"#,
                r#"add_response_header = ["T: 1"]"#,
            ]
        );
        assert!(response.keys.is_empty() && response.rewrites.is_empty());
    }

    #[test]
    fn keys_with_the_same_names_are_replaced_and_timeouts_are_merged() {
        let table = |keys: &[(&'static str, &str)]| -> Vec<Entry> {
            let keys = keys.iter();
            keys.map(|(key, value)| Entry::implied(key, *value))
                .collect()
        };
        let mut edits = Edits::default();
        edits.replace_keys(&[
            Entry::implied("timeouts", table(&[("a", "1s"), ("b", "1s")])),
            Entry::implied("other", table(&[("a", "1s")])),
            Entry::implied("kept", 1_u64),
        ]);
        edits.replace_keys(&[
            Entry::implied("timeouts", table(&[("b", "2s"), ("c", "2s")])),
            Entry::implied("other", table(&[("b", "2s")])),
            Entry::implied("new", 2_u64),
        ]);
        assert_eq!(
            lines(edits.keys),
            [
                "kept = 1",
                r#"timeouts = { a = "1s", b = "2s", c = "2s" }"#,
                r#"other = { b = "2s" }"#,
                "new = 2",
            ]
        );
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
