//! weir.toml under construction: tables and keys, each with the source line it comes from.
//!
//! This module handles only structure and text. `weir-config` defines the keys; [`crate::validate`] removes those that
//! it rejects.

use std::fmt::Write as _;
use std::ops::Range;

use crate::name::numbered;
use crate::note::Position;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Integer(u64),
    /// A number in hundredths.
    Hundredths(u64),
    Flag(bool),
    List(Vec<Item>),
    Table(Vec<Entry>),
}

/// A value and the line it comes from; `None` = the line of the enclosing value or table.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) value: Value,
    pub(crate) from: Option<Position>,
    /// Marked for removal.
    pub(crate) removed: bool,
}

/// Positions are ignored: two checks with the same keys are equal.
impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Item {}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: &'static str,
    pub(crate) item: Item,
    /// The enclosing value or table is removed if this key is removed.
    pub(crate) essential: bool,
    /// The value to use if the first one is rejected.
    pub(crate) fallback: Option<Value>,
}

/// `[a.b]` or `[[a.b]]`.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) path: Vec<String>,
    pub(crate) repeated: bool,
    pub(crate) from: Position,
    pub(crate) entries: Vec<Entry>,
    /// For a route: the status that it responds with if a part that it requires is rejected. Without it, requests
    /// would reach the next route.
    pub(crate) refusal: Option<u64>,
    /// Lines that depend on this table, in addition to those of its entries.
    pub(crate) covers: Vec<Position>,
    pub(crate) removed: bool,
}

/// The whole file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub(crate) tables: Vec<Table>,
}

/// Indices that lead to a value: table, entry, then list items and table entries in turn.
pub(crate) type Path = Vec<usize>;

/// A part of the text, and the value that it shows.
pub(crate) type Span = (Range<usize>, Path);

/// A document as text, with the span of each part.
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) spans: Vec<Span>,
    /// The span of each table, and the range of `spans` that it contains.
    tables: Vec<(Range<usize>, Range<usize>)>,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<Vec<Item>> for Value {
    fn from(items: Vec<Item>) -> Self {
        Self::List(items)
    }
}

impl From<Vec<Entry>> for Value {
    fn from(entries: Vec<Entry>) -> Self {
        Self::Table(entries)
    }
}

impl From<Vec<String>> for Value {
    fn from(words: Vec<String>) -> Self {
        let words = words.into_iter();
        Self::List(words.map(|word| Item::new(word, None)).collect())
    }
}

impl Item {
    pub(crate) fn new(value: impl Into<Value>, from: Option<Position>) -> Self {
        Self {
            value: value.into(),
            from,
            removed: false,
        }
    }
}

impl Entry {
    /// Returns a key that comes from the given line.
    pub(crate) fn new(key: &'static str, value: impl Into<Value>, from: Position) -> Self {
        Self::with_source(key, value, Some(from))
    }

    /// Returns a key that comes from the line of its enclosing value or table.
    pub(crate) fn implied(key: &'static str, value: impl Into<Value>) -> Self {
        Self::with_source(key, value, None)
    }

    fn with_source(key: &'static str, value: impl Into<Value>, from: Option<Position>) -> Self {
        Self {
            key,
            item: Item::new(value, from),
            essential: false,
            fallback: None,
        }
    }

    /// Marks the key as required by its enclosing value or table.
    pub(crate) fn essential(mut self) -> Self {
        self.essential = true;
        self
    }

    /// Sets the value to use if the first one is rejected.
    pub(crate) fn or(mut self, fallback: impl Into<Value>) -> Self {
        self.fallback = Some(fallback.into());
        self
    }
}

impl Table {
    pub(crate) fn new(path: &[&str], from: Position) -> Self {
        Self {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            repeated: false,
            from,
            entries: Vec::new(),
            refusal: None,
            covers: Vec::new(),
            removed: false,
        }
    }

    /// Makes the table an element of an array of tables, `[[…]]`.
    pub(crate) fn repeated(mut self) -> Self {
        self.repeated = true;
        self
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Replaces the key if it exists.
    pub(crate) fn replace(&mut self, entry: Entry) {
        self.entries.retain(|existing| existing.key != entry.key);
        self.push(entry);
    }

    /// Returns the text value of a key.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        match &entry.item.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Document {
    pub(crate) fn push(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Returns a name that no table `[kind.NAME]` has: `wanted`, with a number appended if necessary.
    pub(crate) fn free_name(&self, kind: &str, wanted: &str) -> String {
        numbered(wanted, |name| {
            let mut tables = self.tables.iter();
            tables.any(|table| table.path == [kind, name])
        })
    }

    /// Renders the document as TOML.
    pub(crate) fn render(&self) -> Text {
        let mut writer = Text {
            text: String::new(),
            spans: Vec::new(),
            tables: Vec::new(),
        };
        for (at, table) in self.tables.iter().enumerate() {
            writer.table(at, table);
        }
        writer
    }
}

impl Text {
    /// Records that the text from `start` on shows the value at `path`.
    fn mark(&mut self, start: usize, path: &[usize]) {
        self.spans.push((start..self.text.len(), path.to_vec()));
    }

    fn table(&mut self, at: usize, table: &Table) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let (start, first) = (self.text.len(), self.spans.len());
        let header = weir_config::header(&table.path);
        let _ = match table.repeated {
            true => writeln!(self.text, "[{header}]"),
            false => writeln!(self.text, "{header}"),
        };
        for (index, entry) in table.entries.iter().enumerate() {
            let here = [at, index];
            let start = self.text.len();
            let _ = write!(self.text, "{} = ", entry.key);
            let long = entry.key == "servers";
            self.value(&entry.item.value, &here, long);
            self.mark(start, &here);
            self.text.push('\n');
        }
        self.mark(start, &[at]);
        let spans = first..self.spans.len();
        self.tables.push((start..self.text.len(), spans));
    }

    /// Returns the index of the table at a byte offset of the text, and the spans of the table and its parts.
    pub(crate) fn table_at(&self, at: usize) -> Option<(usize, &[Span])> {
        let table = self.tables.partition_point(|(span, _)| span.end <= at);
        let (span, parts) = self.tables.get(table)?;
        span.contains(&at)
            .then(|| (table, &self.spans[parts.clone()]))
    }

    /// Writes a value; a `long` list has one item per line.
    fn value(&mut self, value: &Value, path: &[usize], long: bool) {
        match value {
            Value::Text(text) => self.text.push_str(&weir_config::string(text)),
            Value::Integer(number) => {
                let _ = write!(self.text, "{number}");
            }
            Value::Hundredths(number) => {
                let _ = write!(self.text, "{}.{:02}", number / 100, number % 100);
            }
            Value::Flag(flag) => {
                let _ = write!(self.text, "{flag}");
            }
            Value::List(items) => {
                self.text.push('[');
                for (at, item) in items.iter().enumerate() {
                    match (long, at) {
                        (true, _) => self.text.push_str("\n  "),
                        (false, 0) => {}
                        (false, _) => self.text.push_str(", "),
                    }
                    let here = [path, &[at]].concat();
                    let start = self.text.len();
                    self.value(&item.value, &here, false);
                    self.mark(start, &here);
                    if long {
                        self.text.push(',');
                    }
                }
                self.text.push_str(if long && !items.is_empty() {
                    "\n]"
                } else {
                    "]"
                });
            }
            Value::Table(entries) => {
                self.text.push_str("{ ");
                for (at, entry) in entries.iter().enumerate() {
                    if at > 0 {
                        self.text.push_str(", ");
                    }
                    let here = [path, &[at]].concat();
                    let start = self.text.len();
                    let _ = write!(self.text, "{} = ", entry.key);
                    self.value(&entry.item.value, &here, false);
                    self.mark(start, &here);
                }
                self.text.push_str(" }");
            }
        }
    }
}

/// Calls `visit` with every source line of keys and values.
pub(crate) fn positions(entries: &[Entry], visit: &mut dyn FnMut(Position)) {
    for entry in entries {
        positions_of(&entry.item, visit);
    }
}

/// Calls `visit` with every source line of a value.
pub(crate) fn positions_of(item: &Item, visit: &mut dyn FnMut(Position)) {
    if let Some(position) = item.from {
        visit(position);
    }
    match &item.value {
        Value::List(items) => items.iter().for_each(|inner| positions_of(inner, visit)),
        Value::Table(entries) => positions(entries, visit),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_its_span() {
        let position = Position::new(0, 3);
        let mut table = Table::new(&["pool", "a.b"], position);
        let server = Value::Table(vec![Entry::implied("address", "10.0.0.5")]);
        table.push(Entry::new(
            "servers",
            vec![Item::new(server, None)],
            position,
        ));
        let mut document = Document::default();
        document.push(table);
        let Text { text, spans, .. } = document.render();
        assert_eq!(
            text,
            "[pool.\"a.b\"]\nservers = [\n  { address = \"10.0.0.5\" },\n]\n"
        );
        let inner = spans.iter().find(|(_, path)| path == &[0, 0, 0, 0]);
        assert_eq!(&text[inner.unwrap().0.clone()], "address = \"10.0.0.5\"");
    }
}
