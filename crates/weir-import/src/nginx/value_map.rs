//! Converts `map` and `geo`, which define variables whose value depends on one part of the request.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::tree::Node;
use super::variable::{MAP_PREFIX, ServerVariables, replace_variables};
use super::when::{listed_condition, negated};
use crate::document::{Document, Entry, Item, Table, Value};
use crate::name::sanitize;
use crate::note::Position;

/// A value, and the conditions under which a variable has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) conditions: Vec<String>,
    pub(super) value: String,
}

/// The `map` and `geo` blocks by the names of their variables.
#[derive(Debug, Default)]
pub(super) struct Maps {
    by_name: HashMap<String, ValueMap>,
    /// Variables that were converted to conditions.
    used_in_conditions: RefCell<BTreeSet<String>>,
}

#[derive(Debug)]
struct ValueMap {
    node: Node,
    is_geo: bool,
    /// Keys and values.
    entries: Vec<(String, String)>,
    default: String,
    /// Whether the block contains only supported lines and values.
    is_supported: bool,
}

impl Maps {
    pub(super) fn read(nodes: &[Node]) -> Self {
        let mut maps = Self::default();
        for node in nodes {
            if let Some((name, map)) = parse_map(node) {
                maps.by_name.entry(name).or_insert(map);
            }
        }
        maps
    }

    /// Returns whether a block defines the variable.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Returns the reference that becomes `{map.NAME}`.
    pub(super) fn reference(name: &str) -> String {
        format!("${{{MAP_PREFIX}{name}}}")
    }

    /// Returns whether the variable can become a `[map.NAME]` table.
    pub(super) fn is_table(&self, name: &str) -> bool {
        self.by_name
            .get(name)
            .is_some_and(|map| map.table(name).is_some())
    }

    /// Returns the values of a variable with their conditions, the default last. Returns `None` if routes cannot
    /// express the conditions.
    pub(super) fn cases(&self, name: &str) -> Option<Vec<Case>> {
        let map = self.by_name.get(name)?;
        let mut cases = Vec::new();
        let mut negations = Vec::new();
        // The networks in a `geo` block may be nested.
        if map.is_geo && map.entries.len() > 1 {
            return None;
        }
        // nginx compares strings before regular expressions. Of several matching regular expressions, it uses the
        // first.
        let (strings, expressions): (Vec<_>, Vec<_>) = map
            .entries
            .iter()
            .partition(|(key, _)| !key.starts_with('~'));
        let string_count = strings.len();
        for (index, (key, value)) in strings.into_iter().chain(expressions).enumerate() {
            let condition = map.condition(std::slice::from_ref(key))?;
            let negation = negated(&condition)?;
            let mut conditions = vec![condition];
            if index >= string_count && !map.is_geo {
                conditions.extend(negations.iter().cloned());
            }
            negations.push(negation);
            cases.push(Case {
                conditions,
                value: value.clone(),
            });
        }
        cases.push(Case {
            conditions: negations,
            value: map.default.clone(),
        });
        self.used_in_conditions.borrow_mut().insert(name.to_owned());
        Some(cases)
    }

    /// Returns the alternatives, each a list of conditions, under which `holds` accepts the variable's value. Returns
    /// `None` if routes cannot express the conditions.
    pub(super) fn alternatives(
        &self,
        name: &str,
        holds: &dyn Fn(&str) -> bool,
    ) -> Option<Vec<Vec<String>>> {
        let map = self.by_name.get(name)?;
        let default_holds = holds(&map.default);
        // Only the entries whose result differs from that of the default matter.
        let differs = |value: &str| holds(value) != default_holds;
        let has_others = map.entries.iter().any(|(_, value)| !differs(value));
        if has_others && !map.has_only_strings() {
            return None;
        }
        let keys = map.entries.iter().filter(|(_, value)| differs(value));
        let keys: Vec<String> = keys.map(|(key, _)| key.clone()).collect();
        let alternatives = match (keys.is_empty(), default_holds) {
            (true, true) => vec![Vec::new()],
            (true, false) => Vec::new(),
            (false, true) => vec![vec![negated(&map.condition(&keys)?)?]],
            (false, false) => match map.condition(&keys) {
                Some(condition) if !map.accepts_one_value() => vec![vec![condition]],
                _ => keys
                    .iter()
                    .map(|key| Some(vec![map.condition(std::slice::from_ref(key))?]))
                    .collect::<Option<_>>()?,
            },
        };
        self.used_in_conditions.borrow_mut().insert(name.to_owned());
        Some(alternatives)
    }

    /// Writes the tables that the document refers to. Returns the lines of all blocks that were used.
    pub(super) fn write(&self, document: &mut Document) -> Vec<Position> {
        let mut used_lines = Vec::new();
        let mut names: Vec<&String> = self.by_name.keys().collect();
        names.sort();
        let mentioned = mentioned_maps(document);
        for name in names {
            let map = &self.by_name[name];
            let is_mentioned = mentioned.contains(&sanitize(name));
            if is_mentioned && let Some(table) = map.table(name) {
                document.push(table);
            }
            if is_mentioned || self.used_in_conditions.borrow().contains(name) {
                used_lines.extend(map.node.block_positions());
                used_lines.push(map.node.position);
            }
        }
        used_lines
    }
}

/// Returns the names of the maps that the document's texts refer to as `{map.NAME}`.
fn mentioned_maps(document: &Document) -> HashSet<String> {
    fn collect(value: &Value, names: &mut HashSet<String>) {
        match value {
            Value::Text(text) => {
                let tails = text.split("{map.").skip(1);
                let references = tails.filter_map(|tail| tail.split_once('}'));
                names.extend(references.map(|(name, _)| name.to_owned()));
            }
            Value::List(items) => items.iter().for_each(|item| collect(&item.value, names)),
            Value::Table(entries) => entries
                .iter()
                .for_each(|entry| collect(&entry.item.value, names)),
            Value::Integer(_) | Value::Hundredths(_) | Value::Flag(_) => {}
        }
    }
    let mut names = HashSet::new();
    for entry in document.tables.iter().flat_map(|table| &table.entries) {
        collect(&entry.item.value, &mut names);
    }
    names
}

/// Parses a block. Returns the name of its variable, and the map.
fn parse_map(node: &Node) -> Option<(String, ValueMap)> {
    let is_geo = match node.keyword() {
        "map" => false,
        "geo" => true,
        _ => return None,
    };
    let name = node.words.last()?.strip_prefix('$')?.to_owned();
    let mut map = ValueMap {
        node: node.clone(),
        is_geo,
        entries: Vec::new(),
        default: String::new(),
        is_supported: node.words.len() == if is_geo { 2 } else { 3 },
    };
    for line in node.inner() {
        match line.words.as_slice() {
            [key, value] if key == "default" => map.default.clone_from(value),
            // In `geo`, the keywords `proxy` and `delete` become keys that are not networks; see `condition`.
            [key, value] => map.entries.push((key.clone(), value.clone())),
            [word] if word == "volatile" => {}
            // An unsupported line, for example `hostnames`, which changes the meaning of keys.
            _ => map.is_supported = false,
        }
    }
    map.is_supported &= map
        .entries
        .iter()
        .map(|(_, value)| value)
        .chain([&map.default])
        .all(|value| !value.contains(['$', '{', '}', '\n']));
    Some((name, map))
}

impl ValueMap {
    fn source(&self) -> &str {
        self.node.word(1).unwrap_or_default()
    }

    /// Returns whether all keys are strings, so at most one of them matches a request.
    fn has_only_strings(&self) -> bool {
        !self.is_geo && self.entries.iter().all(|(key, _)| !key.starts_with('~'))
    }

    /// Returns whether a route's condition on this source takes only one value.
    fn accepts_one_value(&self) -> bool {
        matches!(self.source(), "$host" | "$uri" | "$document_uri") && !self.is_geo
    }

    /// Returns the text of a condition that matches if the part of the request is one of `keys`. Returns `None` if
    /// routes cannot compare this part, or if the map or a key is not supported.
    fn condition(&self, keys: &[String]) -> Option<String> {
        if !self.is_supported || keys.is_empty() {
            return None;
        }
        if self.is_geo {
            let is_network = |key: &String| {
                let address = key.split('/').next().unwrap_or_default();
                address.parse::<std::net::IpAddr>().is_ok()
            };
            return keys
                .iter()
                .all(is_network)
                .then(|| listed_condition("source", keys));
        }
        let source = self.source().strip_prefix('$')?;
        let name_after = |prefix: &str| source.strip_prefix(prefix);
        let (key, prefix) = match source {
            "host" => ("host", String::new()),
            "request_method" => ("method", String::new()),
            _ => {
                if let Some(name) = name_after("http_") {
                    ("header", format!("{}: ", name.replace('_', "-")))
                } else if let Some(name) = name_after("cookie_") {
                    ("cookie", format!("{name}="))
                } else {
                    ("query", format!("{}=", name_after("arg_")?))
                }
            }
        };
        let value = |text: &String| {
            let is_method = text.bytes().all(|byte| byte.is_ascii_uppercase());
            let value = match key {
                "method" if is_method => text.clone(),
                "method" => return None,
                "host" if !text.starts_with('~') && !text.contains('*') && !text.is_empty() => {
                    text.to_ascii_lowercase()
                }
                _ => format!("~{}", key_expression(text)?),
            };
            Some(format!("{prefix}{value}"))
        };
        let values = keys.iter().map(value).collect::<Option<Vec<String>>>()?;
        Some(listed_condition(key, &values))
    }

    /// Returns the `[map.NAME]` table, or `None` if a table cannot express the map.
    fn table(&self, name: &str) -> Option<Table> {
        let source = self.source();
        let variables = ServerVariables::new("{scheme}", "");
        // With an empty query, Weir's value would end with `?`, but nginx's does not.
        if !self.is_supported || self.is_geo || source.contains("$request_uri") {
            return None;
        }
        let key = replace_variables(source, variables)?;
        let has_expressions = !self.has_only_strings()
            || self
                .entries
                .iter()
                .any(|(key, _)| key.is_empty() || key.contains(char::is_whitespace));
        // nginx compares strings before regular expressions.
        let (strings, expressions): (Vec<_>, Vec<_>) = self
            .entries
            .iter()
            .partition(|(key, _)| !key.starts_with('~'));
        let mut entries = Vec::new();
        for (key, value) in strings.into_iter().chain(expressions) {
            let key = match has_expressions {
                true => key_expression(key)?.replace(' ', "\\x20"),
                false => key.clone(),
            };
            let is_valid =
                !key.is_empty() && !key.contains(char::is_whitespace) && !key.starts_with('#');
            if !is_valid || value.is_empty() || value.trim() != value {
                return None;
            }
            entries.push(Item::new(
                format!("{key} {value}"),
                Some(self.node.position),
            ));
        }
        let mut table = Table::new(&["map", &sanitize(name)], self.node.position);
        table.push(Entry::implied("key", key).essential());
        table.push(Entry::implied("entries", entries).essential());
        match has_expressions {
            true => table.push(Entry::implied("kind", "regex").essential()),
            // nginx compares strings case-insensitively.
            false => table.push(Entry::implied("ignore_case", true).essential()),
        }
        if !self.default.is_empty() {
            table.push(Entry::implied("default", self.default.as_str()).essential());
        }
        Some(table)
    }
}

/// Converts a key of `map` to a regular expression; strings are matched case-insensitively. Returns `None` if the key
/// has named groups.
fn key_expression(key: &str) -> Option<String> {
    // Values may refer to named groups.
    if key.contains("(?<") || key.contains("(?P<") {
        return None;
    }
    if let Some(regex) = key.strip_prefix("~*") {
        return Some(format!("(?i){regex}"));
    }
    if let Some(regex) = key.strip_prefix('~') {
        return Some(regex.to_owned());
    }
    let text = key.strip_prefix('\\').unwrap_or(key);
    let mut out = String::from("(?i)^");
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('$');
    Some(out)
}
