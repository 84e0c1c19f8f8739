//! Regular expressions for request paths.

use std::fmt;
use std::hash::{Hash, Hasher};

use regex::bytes::{Captures, Regex, RegexBuilder};

/// Maximum size of a compiled expression and of its lazy DFA, in bytes.
const SIZE_MAX: usize = 1 << 20;

/// An expression of the crate `regex`, matched anywhere in a path in time linear in the path's length. Two are equal if
/// their source texts are equal.
#[derive(Clone)]
pub struct PathRegex(Regex);

/// Why an expression is invalid, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError(String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

impl PathRegex {
    /// Number of groups that a replacement may refer to: `{1}` to `{9}`.
    pub const GROUPS: usize = 9;

    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression is invalid or needs too much memory.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let mut builder = RegexBuilder::new(text);
        // Request targets contain only ASCII, so Unicode support is not needed.
        builder.unicode(false).size_limit(SIZE_MAX);
        let compiled = builder.dfa_size_limit(SIZE_MAX).build();
        compiled.map(Self).map_err(|error| {
            let text = error.to_string();
            // The message has several lines; the last one contains the reason.
            let line = text.lines().rfind(|line| !line.trim().is_empty());
            let line = line.unwrap_or_default().trim();
            PatternError(line.strip_prefix("error: ").unwrap_or(line).to_owned())
        })
    }

    /// Source text of the expression.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it matches anywhere in a path.
    pub fn fits(&self, path: &[u8]) -> bool {
        self.0.is_match(path)
    }

    /// The capture groups of its first match in a path.
    pub fn groups<'a>(&self, path: &'a [u8]) -> Option<Captures<'a>> {
        self.0.captures(path)
    }

    /// Number of capture groups.
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
    fn invalid_expression_returns_reason() {
        let error = PathRegex::new("/a(").unwrap_err().to_string();
        assert!(error.contains("unclosed group"), "{error}");
        assert!(PathRegex::new("a{1000}{1000}{1000}").is_err());
    }

    #[test]
    fn expression_matches_anywhere_unless_anchored() {
        let fits = |text: &str, path: &str| PathRegex::new(text).unwrap().fits(path.as_bytes());
        assert!(fits("[0-9]+", "/a/17/b"));
        assert!(!fits("^[0-9]+", "/a/17/b"));
        assert!(fits("(?i)^/IMG/.*\\.png$", "/img/x.PNG"));
    }
}
