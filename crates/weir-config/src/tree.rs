//! Defines the common tree of TOML and JSON: values with their spans, and table entries in text order.
//!
//! The tree is independent of the schema.

use std::borrow::Cow;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// A value and its span.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item<'t> {
    pub(crate) span: Range<usize>,
    pub(crate) value: Value<'t>,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'t> {
    Text(Cow<'t, str>),
    /// `None` = the integer does not fit in 64 bits.
    Integer(Option<i64>),
    Float(f64),
    Bool(bool),
    Datetime,
    Null,
    List(Vec<Item<'t>>),
    Table(Table<'t>),
}

impl Value<'_> {
    /// Returns the description for "expected X, found Y".
    pub(crate) const fn describe(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number with a fraction",
            Self::Bool(_) => "true or false",
            Self::Datetime => "a date or time",
            Self::Null => "null",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// Entries of a table, in text order.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Table<'t> {
    pub(crate) entries: Vec<Entry<'t>>,
}

/// One entry of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry<'t> {
    pub(crate) key: Cow<'t, str>,
    pub(crate) key_span: Range<usize>,
    pub(crate) item: Item<'t>,
}

impl<'t> Table<'t> {
    pub(crate) fn from_toml(table: DeTable<'t>) -> Self {
        let mut entries: Vec<Entry<'t>> = table
            .into_iter()
            .map(|(key, value)| Entry {
                key_span: key.span(),
                key: key.into_inner(),
                item: Item::from_toml(value.span(), value.into_inner()),
            })
            .collect();
        // The parser's map is sorted by key, not by position.
        entries.sort_by_key(|entry| entry.key_span.start);
        Self { entries }
    }

    /// Moves all spans by a number of bytes, for a text that is part of a longer text.
    pub(crate) fn shift(&mut self, offset: usize) {
        for entry in &mut self.entries {
            shift(&mut entry.key_span, offset);
            entry.item.shift(offset);
        }
    }

    /// Returns a copy without references to the text.
    pub(crate) fn into_owned(self) -> Table<'static> {
        let entries = self.entries.into_iter().map(|entry| Entry {
            key: Cow::Owned(entry.key.into_owned()),
            key_span: entry.key_span,
            item: entry.item.into_owned(),
        });
        Table {
            entries: entries.collect(),
        }
    }
}

/// Moves a span by a number of bytes.
pub(crate) fn shift(span: &mut Range<usize>, offset: usize) {
    *span = span.start + offset..span.end + offset;
}

impl<'t> Item<'t> {
    fn shift(&mut self, offset: usize) {
        shift(&mut self.span, offset);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.shift(offset)),
            Value::Table(table) => table.shift(offset),
            _ => {}
        }
    }

    fn into_owned(self) -> Item<'static> {
        let value = match self.value {
            Value::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Value::Integer(value) => Value::Integer(value),
            Value::Float(value) => Value::Float(value),
            Value::Bool(value) => Value::Bool(value),
            Value::Datetime => Value::Datetime,
            Value::Null => Value::Null,
            Value::List(items) => Value::List(items.into_iter().map(Self::into_owned).collect()),
            Value::Table(table) => Value::Table(table.into_owned()),
        };
        Item {
            span: self.span,
            value,
        }
    }

    fn from_toml(span: Range<usize>, value: DeValue<'t>) -> Self {
        let value = match value {
            DeValue::String(text) => Value::Text(text),
            DeValue::Integer(integer) => {
                Value::Integer(i64::from_str_radix(integer.as_str(), integer.radix()).ok())
            }
            DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(value) => Value::Bool(value),
            DeValue::Datetime(_) => Value::Datetime,
            DeValue::Array(items) => Value::List(
                items
                    .into_iter()
                    .map(|item| Self::from_toml(item.span(), item.into_inner()))
                    .collect(),
            ),
            DeValue::Table(table) => Value::Table(Table::from_toml(table)),
        };
        Self { span, value }
    }
}
