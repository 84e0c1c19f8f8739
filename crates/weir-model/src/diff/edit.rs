//! Collects changed keys with their old and new values.

use std::fmt;
use std::time::Duration;

use super::duration;
use crate::Secret;

/// A changed key with both values, as written in the configuration, or with a description of the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Key relative to its table, such as `check.port`.
    pub key: String,
    /// Old value; empty = the values are not shown.
    pub old: String,
    /// New value, which differs from `old`; if `old` is empty, a description of the change, such as `changed`.
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

/// Collects the keys whose values differ. Formats only these values.
#[derive(Debug, Default)]
pub(super) struct Edits {
    /// Prefix of each key, such as `check.`; empty at the top level.
    prefix: String,
    edits: Vec<Edit>,
}

impl Edits {
    /// Returns the collected edits.
    pub(super) fn finish(self) -> Vec<Edit> {
        self.edits
    }

    /// Compares the old and the new value of a key. `show` formats them if they differ.
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

    /// Compares a value that may be a credential or very long. A change is reported without the values.
    pub(super) fn compare_hidden<T: PartialEq>(mut self, key: &str, old: T, new: T) -> Self {
        if old != new {
            self.push(key, String::new(), String::new());
        }
        self
    }

    /// Compares secrets; an edit shows only their sources.
    pub(super) fn compare_secrets(mut self, key: &str, old: &[&Secret], new: &[&Secret]) -> Self {
        if old != new {
            let sources = |secrets: &[&Secret]| {
                let sources = secrets.iter().map(|it| it.source().to_string());
                comma_list(sources.collect())
            };
            self.push(key, sources(old), sources(new));
        }
        self
    }

    /// Adds an edit that consists of a description instead of two values.
    pub(super) fn describe(mut self, key: &str, description: String) -> Self {
        self.push(key, String::new(), description);
        self
    }

    /// Compares the keys of a table, whose name becomes part of their prefix.
    pub(super) fn within(mut self, table: &str, keys: impl FnOnce(Self) -> Self) -> Self {
        let inner = format!("{}{table}.", self.prefix);
        let outer = std::mem::replace(&mut self.prefix, inner);
        let mut compared = keys(self);
        compared.prefix = outer;
        compared
    }

    /// Compares keys if both sides have the table.
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

    /// Compares an optional table; `show` formats an added or removed table.
    pub(super) fn table<T>(
        mut self,
        key: &str,
        old: Option<&T>,
        new: Option<&T>,
        show: impl Fn(&T) -> String,
        keys: impl FnOnce(Self, &T, &T) -> Self,
    ) -> Self {
        if old.is_some() != new.is_some() {
            let format_side = |side: Option<&T>| side.map_or_else(|| "none".to_owned(), &show);
            self.push(key, format_side(old), format_side(new));
        }
        self.within(key, |edits| edits.both(old, new, keys))
    }

    /// Adds an edit. If both texts are equal, the edit reports the key without values.
    fn push(&mut self, key: &str, old: String, new: String) {
        let key = format!("{}{key}", self.prefix);
        self.edits.push(if old == new {
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

/// Joins values with commas; `none` if there are no values.
pub(super) fn comma_list(values: Vec<String>) -> String {
    match values.is_empty() {
        true => "none".to_owned(),
        false => values.join(", "),
    }
}

/// Formats status codes as in the configuration: `200-299,304`.
pub(super) fn statuses(ranges: &[(u16, u16)]) -> String {
    let range = |(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}
