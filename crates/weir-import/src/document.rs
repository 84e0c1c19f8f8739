//! Builds weir.toml from tables and keys, and records the source line of each.
//!
//! This module handles only structure and text. `weir-config` defines the keys; [`crate::validate`] removes the keys
//! that `weir-config` rejects.

use std::fmt::Write as _;
use std::ops::Range;

use crate::name::numbered;
use crate::note::Position;

/// A TOML value.
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

/// A value and its source line.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) value: Value,
    /// Source line, or `None` if it is the line of the enclosing value or table.
    pub(crate) position: Option<Position>,
    /// Whether the item is marked for removal.
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
    /// Whether the enclosing value or table is removed if this key is removed.
    pub(crate) essential: bool,
    /// The value to use if the original value is rejected.
    pub(crate) fallback: Option<Value>,
}

/// A table `[a.b]`, or an element `[[a.b]]` of an array of tables.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) path: Vec<String>,
    pub(crate) repeated: bool,
    pub(crate) position: Position,
    pub(crate) entries: Vec<Entry>,
    /// For a route: the status of a response that replaces its action if a required part of the route is rejected.
    /// Without this response, requests for the removed route would match a later route.
    pub(crate) rejection_status: Option<u64>,
    /// Source lines that depend on this table, in addition to the lines of its entries.
    pub(crate) dependent_lines: Vec<Position>,
    pub(crate) removed: bool,
}

/// The whole file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub(crate) tables: Vec<Table>,
}

/// Indices that lead to a value: the table, the entry, and then any nested list items and table entries.
pub(crate) type Path = Vec<usize>;

/// A byte range of the text, and the path of the value that it contains.
pub(crate) type Span = (Range<usize>, Path);

/// A document as text, with the span of each part.
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) spans: Vec<Span>,
    /// The byte range of each table in the text, and the range of its parts in `spans`.
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
    pub(crate) fn new(value: impl Into<Value>, position: Option<Position>) -> Self {
        Self {
            value: value.into(),
            position,
            removed: false,
        }
    }
}

impl Entry {
    /// Returns a key that comes from the given line.
    pub(crate) fn new(key: &'static str, value: impl Into<Value>, position: Position) -> Self {
        Self::with_source(key, value, Some(position))
    }

    /// Returns a key that comes from the line of its enclosing value or table.
    pub(crate) fn implied(key: &'static str, value: impl Into<Value>) -> Self {
        Self::with_source(key, value, None)
    }

    fn with_source(key: &'static str, value: impl Into<Value>, position: Option<Position>) -> Self {
        Self {
            key,
            item: Item::new(value, position),
            essential: false,
            fallback: None,
        }
    }

    /// Marks the key as required by its enclosing value or table.
    pub(crate) fn essential(mut self) -> Self {
        self.essential = true;
        self
    }

    /// Sets the value to use if the original value is rejected.
    pub(crate) fn or(mut self, fallback: impl Into<Value>) -> Self {
        self.fallback = Some(fallback.into());
        self
    }
}

impl Table {
    pub(crate) fn new(path: &[&str], position: Position) -> Self {
        Self {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            repeated: false,
            position,
            entries: Vec::new(),
            rejection_status: None,
            dependent_lines: Vec::new(),
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

    /// Adds a key, or replaces it if it exists.
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

    /// Returns a name for a new table `[kind.NAME]`: `preferred`, with a number appended if it is taken.
    pub(crate) fn free_name(&self, kind: &str, preferred: &str) -> String {
        numbered(preferred, |name| {
            let mut tables = self.tables.iter();
            tables.any(|table| table.path == [kind, name])
        })
    }

    /// Renders the document as TOML.
    pub(crate) fn render(&self) -> Text {
        let mut text = Text {
            text: String::new(),
            spans: Vec::new(),
            tables: Vec::new(),
        };
        for (index, table) in self.tables.iter().enumerate() {
            text.write_table(index, table);
        }
        text
    }
}

impl Text {
    /// Records that the text from `start` to its end contains the value at `path`.
    fn record_span(&mut self, start: usize, path: &[usize]) {
        self.spans.push((start..self.text.len(), path.to_vec()));
    }

    fn write_table(&mut self, table_index: usize, table: &Table) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let (start, first_span) = (self.text.len(), self.spans.len());
        let header = weir_config::header(&table.path);
        let _ = match table.repeated {
            true => writeln!(self.text, "[{header}]"),
            false => writeln!(self.text, "{header}"),
        };
        for (index, entry) in table.entries.iter().enumerate() {
            let path = [table_index, index];
            let start = self.text.len();
            let _ = write!(self.text, "{} = ", entry.key);
            let multiline = entry.key == "servers";
            self.write_value(&entry.item.value, &path, multiline);
            self.record_span(start, &path);
            self.text.push('\n');
        }
        self.record_span(start, &[table_index]);
        let spans = first_span..self.spans.len();
        self.tables.push((start..self.text.len(), spans));
    }

    /// Returns the index of the table at a byte offset of the text, and the spans of the table and its parts.
    pub(crate) fn table_at(&self, offset: usize) -> Option<(usize, &[Span])> {
        let index = self.tables.partition_point(|(span, _)| span.end <= offset);
        let (span, parts) = self.tables.get(index)?;
        span.contains(&offset)
            .then(|| (index, &self.spans[parts.clone()]))
    }

    /// Writes a value; a `multiline` list has one item per line.
    fn write_value(&mut self, value: &Value, path: &[usize], multiline: bool) {
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
                for (index, item) in items.iter().enumerate() {
                    match (multiline, index) {
                        (true, _) => self.text.push_str("\n  "),
                        (false, 0) => {}
                        (false, _) => self.text.push_str(", "),
                    }
                    let item_path = [path, &[index]].concat();
                    let start = self.text.len();
                    self.write_value(&item.value, &item_path, false);
                    self.record_span(start, &item_path);
                    if multiline {
                        self.text.push(',');
                    }
                }
                self.text.push_str(if multiline && !items.is_empty() {
                    "\n]"
                } else {
                    "]"
                });
            }
            Value::Table(entries) => {
                self.text.push_str("{ ");
                for (index, entry) in entries.iter().enumerate() {
                    if index > 0 {
                        self.text.push_str(", ");
                    }
                    let item_path = [path, &[index]].concat();
                    let start = self.text.len();
                    let _ = write!(self.text, "{} = ", entry.key);
                    self.write_value(&entry.item.value, &item_path, false);
                    self.record_span(start, &item_path);
                }
                self.text.push_str(" }");
            }
        }
    }
}

/// Calls `visit` with the source line of each key and value that has one.
pub(crate) fn visit_positions(entries: &[Entry], visit: &mut dyn FnMut(Position)) {
    for entry in entries {
        visit_item_positions(&entry.item, visit);
    }
}

/// Calls `visit` with the source lines of a value and its parts.
pub(crate) fn visit_item_positions(item: &Item, visit: &mut dyn FnMut(Position)) {
    if let Some(position) = item.position {
        visit(position);
    }
    match &item.value {
        Value::List(items) => items
            .iter()
            .for_each(|inner| visit_item_positions(inner, visit)),
        Value::Table(entries) => visit_positions(entries, visit),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_key_has_its_span() {
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

    #[test]
    fn values_are_written_as_toml() {
        let item = |value: Value| Item::new(value, None);
        for (key, value, expected) in [
            ("key", Value::from("a\"b"), "key = \"a\\\"b\""),
            ("key", "a".to_owned().into(), "key = \"a\""),
            ("key", Value::from(7_u64), "key = 7"),
            ("key", Value::from(7_u32), "key = 7"),
            ("key", Value::Hundredths(1205), "key = 12.05"),
            ("key", Value::Hundredths(50), "key = 0.50"),
            ("key", Value::from(true), "key = true"),
            ("key", Value::List(Vec::new()), "key = []"),
            (
                "key",
                vec!["a".to_owned(), "b".to_owned()].into(),
                "key = [\"a\", \"b\"]",
            ),
            ("servers", Value::List(Vec::new()), "servers = []"),
            (
                "servers",
                vec![item(1_u64.into()), item(vec![item(2_u64.into())].into())].into(),
                "servers = [\n  1,\n  [2],\n]",
            ),
            (
                "key",
                vec![Entry::implied("a", 1_u64), Entry::implied("b", "x")].into(),
                "key = { a = 1, b = \"x\" }",
            ),
        ] {
            let mut table = Table::new(&["t"], Position::FIRST);
            table.push(Entry::implied(key, value));
            let mut document = Document::default();
            document.push(table);
            assert_eq!(document.render().text, format!("[t]\n{expected}\n"));
        }
    }

    /// Returns a document with an empty `[a]`, `[[b]]` with one key, and `[a.c]`.
    fn three_tables() -> Document {
        let mut document = Document::default();
        document.push(Table::new(&["a"], Position::FIRST));
        let mut repeated = Table::new(&["b"], Position::FIRST).repeated();
        repeated.push(Entry::implied("k", 1_u64));
        document.push(repeated);
        document.push(Table::new(&["a", "c"], Position::FIRST));
        document
    }

    #[test]
    fn table_is_found_at_each_of_its_offsets() {
        let text = three_tables().render();
        assert_eq!(text.text, "[a]\n\n[[b]]\nk = 1\n\n[a.c]\n");
        let table_at = |offset| {
            let (index, spans) = text.table_at(offset)?;
            Some((
                index,
                spans
                    .iter()
                    .map(|(_, path)| path.clone())
                    .collect::<Vec<Path>>(),
            ))
        };
        for (offset, expected) in [
            (0, Some((0, vec![vec![0]]))),
            (3, Some((0, vec![vec![0]]))),
            (4, None),
            (5, Some((1, vec![vec![1, 0], vec![1]]))),
            (16, Some((1, vec![vec![1, 0], vec![1]]))),
            (17, None),
            (18, Some((2, vec![vec![2]]))),
            (23, Some((2, vec![vec![2]]))),
            (24, None),
        ] {
            assert_eq!(table_at(offset), expected, "{offset}");
        }
    }

    #[test]
    fn free_name_is_not_the_name_of_a_table_of_this_kind() {
        let document = three_tables();
        for (kind, preferred, expected) in [
            ("a", "c", "c-2"),
            ("a", "d", "d"),
            ("b", "c", "c"),
            ("check", "tcp", "tcp"),
        ] {
            assert_eq!(
                document.free_name(kind, preferred),
                expected,
                "{kind}.{preferred}"
            );
        }
        assert_eq!(Document::default().free_name("a", "c"), "c");
    }

    #[test]
    fn keys_of_a_table_are_read_and_replaced() {
        let mut table = Table::new(&["t"], Position::FIRST);
        table.push(Entry::implied("a", "x"));
        table.push(Entry::implied("b", 1_u64));
        let texts = |table: &Table| ["a", "b", "c"].map(|key| table.text(key).map(str::to_owned));
        assert_eq!(texts(&table), [Some("x".to_owned()), None, None]);
        table.replace(Entry::implied("a", "y"));
        table.replace(Entry::implied("c", "z"));
        let keys: Vec<&str> = table.entries.iter().map(|entry| entry.key).collect();
        assert_eq!(keys, ["b", "a", "c"]);
        let expected = [Some("y".to_owned()), None, Some("z".to_owned())];
        assert_eq!(texts(&table), expected);
    }

    #[test]
    fn values_are_compared_without_their_positions() {
        let item = |number: u64, line| Item::new(number, Some(Position::new(0, line)));
        assert_eq!(item(1, 1), item(1, 2));
        assert_ne!(item(1, 1), item(2, 1));
        let entry = Entry::new("a", 1_u64, Position::FIRST).essential().or("b");
        assert!(entry.essential);
        assert_eq!(entry.fallback, Some("b".into()));
        assert_eq!(entry.item.position, Some(Position::FIRST));
        assert_eq!(Entry::implied("a", 1_u64).item.position, None);
    }

    #[test]
    fn positions_of_all_parts_are_visited() {
        let at = |line| Position::new(0, line);
        let table = vec![Entry::new("a", 1_u64, at(3)), Entry::implied("b", 2_u64)];
        let list = vec![Item::new(1_u64, Some(at(2))), Item::new(table, None)];
        let mut lines = Vec::new();
        visit_positions(&[Entry::new("list", list, at(1))], &mut |position| {
            lines.push(position.line());
        });
        assert_eq!(lines, [1, 2, 3]);
    }
}
