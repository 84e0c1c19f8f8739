//! Names of pools and services.

use std::collections::HashSet;

/// Returns each name only once.
#[derive(Debug, Default)]
pub(crate) struct UniqueNames(HashSet<String>);

impl UniqueNames {
    /// Returns the name in letters, digits, `-`, `_` and `.`, with a number appended if it was used before.
    pub(crate) fn take(&mut self, wanted: &str) -> String {
        let base = plain(wanted);
        let mut name = base.clone();
        let mut count = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{base}-{count}");
            count += 1;
        }
        name
    }
}

/// `tcp/[2001:db8::1]:80` becomes `tcp-2001-db8--1-80`.
pub(crate) fn plain(wanted: &str) -> String {
    let mut plain = String::new();
    for c in wanted.replace('*', "any").chars().take(60) {
        match c {
            c if c.is_ascii_alphanumeric() || c == '.' || c == '_' => plain.push(c),
            '[' | ']' => {}
            _ => plain.push('-'),
        }
    }
    if plain.is_empty() {
        plain.push_str("nameless");
    }
    plain
}
