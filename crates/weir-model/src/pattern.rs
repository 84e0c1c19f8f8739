//! A regular expression over paths.

use std::fmt;
use std::hash::{Hash, Hasher};

use regex::bytes::{Captures, Regex, RegexBuilder};

/// Memory that a compiled expression, and its automaton, may take.
const SIZE_MAX: usize = 1 << 20;

/// An expression of the crate `regex` that finds its match anywhere in a path. It takes time by the path's length alone,
/// whatever is written in it; two are equal that are written alike.
#[derive(Clone)]
pub struct PathRegex(Regex);

/// Why a text is no expression, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError(String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

impl PathRegex {
    /// Places in a text that a group of the expression may stand in for: `{1}` to `{9}`.
    pub const GROUPS: usize = 9;

    /// Reads an expression.
    ///
    /// # Errors
    /// It is none, or would take too much memory.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let mut builder = RegexBuilder::new(text);
        // Paths are octets, of which the target's grammar lets only ASCII through.
        builder.unicode(false).size_limit(SIZE_MAX);
        let compiled = builder.dfa_size_limit(SIZE_MAX).build();
        compiled.map(Self).map_err(|error| {
            let text = error.to_string();
            // The message draws the expression over several lines; its last one says what is wrong.
            let line = text.lines().rfind(|line| !line.trim().is_empty());
            let line = line.unwrap_or_default().trim();
            PatternError(line.strip_prefix("error: ").unwrap_or(line).to_owned())
        })
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it is found in a path.
    pub fn fits(&self, path: &[u8]) -> bool {
        self.0.is_match(path)
    }

    /// What its groups found in a path.
    pub fn groups<'a>(&self, path: &'a [u8]) -> Option<Captures<'a>> {
        self.0.captures(path)
    }

    /// How many groups it has.
    pub fn group_count(&self) -> usize {
        self.0.captures_len() - 1
    }
}

impl fmt::Debug for PathRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for PathRegex {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for PathRegex {}

impl Hash for PathRegex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_expression_says_why() {
        let error = PathRegex::new("/a(").unwrap_err().to_string();
        assert!(error.contains("unclosed group"), "{error}");
        assert!(PathRegex::new("a{1000}{1000}{1000}").is_err());
    }

    #[test]
    fn it_is_found_anywhere_unless_it_says_where() {
        let fits = |text: &str, path: &str| PathRegex::new(text).unwrap().fits(path.as_bytes());
        assert!(fits("[0-9]+", "/a/17/b"));
        assert!(!fits("^[0-9]+", "/a/17/b"));
        assert!(fits("(?i)^/IMG/.*\\.png$", "/img/x.PNG"));
    }
}
