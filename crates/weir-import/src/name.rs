//! Derives valid, unique names for pools and services.

use std::collections::HashSet;

/// Makes names unique: no name is returned twice.
#[derive(Debug, Default)]
pub(crate) struct UniqueNames(HashSet<String>);

impl UniqueNames {
    /// Returns the name reduced by [`sanitize`], with a number appended if the name was returned before.
    pub(crate) fn claim(&mut self, original: &str) -> String {
        numbered(&sanitize(original), |name| !self.0.insert(name.to_owned()))
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
pub(crate) fn sanitize(original: &str) -> String {
    let mut sanitized = String::new();
    for c in original.replace('*', "any").chars().take(60) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_reduced_to_permitted_characters() {
        for (original, expected) in [
            ("a", "a"),
            ("Web_1.example-x", "Web_1.example-x"),
            ("tcp/[2001:db8::1]:80", "tcp-2001-db8--1-80"),
            ("*:80", "any-80"),
            ("a b/c\u{e4}", "a-b-c-"),
            ("", "nameless"),
            ("[]", "nameless"),
        ] {
            assert_eq!(sanitize(original), expected, "{original:?}");
        }
        assert_eq!(sanitize(&"x".repeat(61)), "x".repeat(60));
    }

    #[test]
    fn no_name_is_returned_twice() {
        let mut names = UniqueNames::default();
        let claimed =
            ["a", "a", "a", "b", "a-2", "a/2", "a.2"].map(|original| names.claim(original));
        assert_eq!(claimed, ["a", "a-2", "a-3", "b", "a-2-2", "a-2-3", "a.2"]);
        assert_eq!(numbered("x", |_| false), "x");
    }
}
