//! One key that changed, and how the keys that changed are collected.

use std::fmt;
use std::time::Duration;

use super::duration;
use crate::Secret;

/// One key that changed, with both values as the operator would write them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The key of the configuration file, below its table: `check.port`.
    pub key: String,
    /// Value before; empty = neither value is shown.
    pub old: String,
    /// Value after; never the same text as `old`.
    pub new: String,
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.old.is_empty() {
            return write!(f, "{} {}", self.key, self.new);
        }
        write!(f, "{} {} -> {}", self.key, self.old, self.new)
    }
}

/// Collects the keys whose values differ; values are formatted only then.
#[derive(Debug, Default)]
pub(super) struct Edits {
    /// In front of each key: `check.`; empty at the top.
    prefix: String,
    found: Vec<Edit>,
}

impl Edits {
    /// The keys that differ.
    pub(super) fn done(self) -> Vec<Edit> {
        self.found
    }

    /// A key with one value.
    pub(super) fn compare<T: PartialEq>(
        mut self,
        key: &str,
        old: T,
        new: T,
        show: impl Fn(&T) -> String,
    ) -> Self {
        if old != new {
            self.push(key, show(&old), show(&new));
        }
        self
    }

    /// A value that may be a credential or many lines long: reported, never shown.
    pub(super) fn compare_hidden<T: PartialEq>(mut self, key: &str, old: T, new: T) -> Self {
        if old != new {
            self.push(key, String::new(), String::new());
        }
        self
    }

    /// Secrets: their sources are shown, never their values.
    pub(super) fn compare_secrets(mut self, key: &str, old: &[&Secret], new: &[&Secret]) -> Self {
        if old != new {
            let sources = |secrets: &[&Secret]| {
                let sources = secrets.iter().map(|it| it.source().to_string());
                listed(sources.collect())
            };
            self.push(key, sources(old), sources(new));
        }
        self
    }

    /// The keys of a table that both sides have.
    pub(super) fn within(mut self, table: &str, keys: impl FnOnce(Self) -> Self) -> Self {
        let inner = format!("{}{table}.", self.prefix);
        let outer = std::mem::replace(&mut self.prefix, inner);
        let mut compared = keys(self);
        compared.prefix = outer;
        compared
    }

    /// Keys that count only where both sides have their table.
    pub(super) fn both<T>(
        self,
        old: Option<&T>,
        new: Option<&T>,
        keys: impl FnOnce(Self, &T, &T) -> Self,
    ) -> Self {
        match (old, new) {
            (Some(old), Some(new)) => keys(self, old, new),
            _ => self,
        }
    }

    /// A table that a side may lack; `show` is for one that is added or removed.
    pub(super) fn table<T>(
        mut self,
        key: &str,
        old: Option<&T>,
        new: Option<&T>,
        show: impl Fn(&T) -> String,
        keys: impl FnOnce(Self, &T, &T) -> Self,
    ) -> Self {
        if old.is_some() != new.is_some() {
            let shown = |side: Option<&T>| side.map_or_else(|| "none".to_owned(), &show);
            self.push(key, shown(old), shown(new));
        }
        self.within(key, |edits| edits.both(old, new, keys))
    }

    /// Two equal texts say nothing: the key alone is named.
    fn push(&mut self, key: &str, old: String, new: String) {
        let key = format!("{}{key}", self.prefix);
        self.found.push(if old == new {
            Edit {
                key,
                old: String::new(),
                new: "changed".to_owned(),
            }
        } else {
            Edit { key, old, new }
        });
    }
}

pub(super) fn or_none<T: fmt::Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "none".to_owned(), ToString::to_string)
}

pub(super) fn duration_or_none(value: &Option<Duration>) -> String {
    or_none(value.as_ref().map(duration).as_ref())
}

/// Several values; an empty list is a word as well.
pub(super) fn listed(values: Vec<String>) -> String {
    match values.is_empty() {
        true => "none".to_owned(),
        false => values.join(", "),
    }
}

/// Status codes as in the file: `200-299,304`.
pub(super) fn statuses(ranges: &[(u16, u16)]) -> String {
    let range = |(from, to): &(u16, u16)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}
