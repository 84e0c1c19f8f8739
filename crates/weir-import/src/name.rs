//! Derives valid, unique names for pools and services.

use std::collections::HashSet;

/// Makes names unique: no name is returned twice.
#[derive(Debug, Default)]
pub(crate) struct UniqueNames(HashSet<String>);

impl UniqueNames {
    /// Returns the name reduced by [`sanitize`], with a number appended if the name was returned before.
    pub(crate) fn claim(&mut self, wanted: &str) -> String {
        numbered(&sanitize(wanted), |name| !self.0.insert(name.to_owned()))
    }
}

/// Returns `base` if it is not taken, otherwise the first of `base-2`, `base-3`, … that is not taken.
pub(crate) fn numbered(base: &str, mut is_taken: impl FnMut(&str) -> bool) -> String {
    let mut name = base.to_owned();
    let mut number = 2;
    while is_taken(&name) {
        name = format!("{base}-{number}");
        number += 1;
    }
    name
}

/// Returns at most 60 characters of a name, with only letters, digits, `-`, `_` and `.`: `tcp/[2001:db8::1]:80` becomes
/// `tcp-2001-db8--1-80`.
pub(crate) fn sanitize(wanted: &str) -> String {
    let mut sanitized = String::new();
    for c in wanted.replace('*', "any").chars().take(60) {
        match c {
            c if c.is_ascii_alphanumeric() || c == '.' || c == '_' => sanitized.push(c),
            '[' | ']' => {}
            _ => sanitized.push('-'),
        }
    }
    if sanitized.is_empty() {
        sanitized.push_str("nameless");
    }
    sanitized
}
