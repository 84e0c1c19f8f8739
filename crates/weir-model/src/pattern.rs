//! Wraps regular expressions for request texts: paths, hosts, field values.

use std::fmt;
use std::hash::{Hash, Hasher};

use regex::bytes::{Captures, Regex, RegexBuilder, RegexSetBuilder, SetMatches};

/// Maximum size of a compiled expression and of its lazy DFA, in bytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A regular expression of the `regex` crate, which matches anywhere in a text. The search time is linear in the length
/// of the text. Two expressions are equal if their source texts are equal.
#[derive(Clone)]
pub struct TextRegex(Regex);

/// Why an expression is invalid, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError(String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

impl TextRegex {
    /// Number of groups that a replacement may refer to: `{1}` to `{9}`.
    pub const GROUPS: usize = 9;

    /// Compiles an expression.
    ///
    /// # Errors
    /// Returns an error if the regular expression is invalid or needs too much memory.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        Self::compile(text, false)
    }

    /// Compiles an expression that ignores ASCII case.
    ///
    /// # Errors
    /// Returns the same errors as [`TextRegex::new`].
    pub fn ignoring_case(text: &str) -> Result<Self, PatternError> {
        Self::compile(text, true)
    }

    fn compile(text: &str, ignore_case: bool) -> Result<Self, PatternError> {
        let mut builder = RegexBuilder::new(text);
        builder.case_insensitive(ignore_case);
        // Request texts are bytes and mostly ASCII, so Unicode support is not needed.
        builder.unicode(false).size_limit(MAX_COMPILED_BYTES);
        let compiled = builder.dfa_size_limit(MAX_COMPILED_BYTES).build();
        compiled.map(Self).map_err(|error| {
            let text = error.to_string();
            // The message has several lines; the last one contains the reason.
            let line = text.lines().rfind(|line| !line.trim().is_empty());
            let line = line.unwrap_or_default().trim();
            PatternError(line.strip_prefix("error: ").unwrap_or(line).to_owned())
        })
    }

    /// Returns the source text of the expression.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns whether the expression matches anywhere in a text.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.0.is_match(text)
    }

    /// Returns the capture groups of the first match in a text.
    pub fn groups<'a>(&self, text: &'a [u8]) -> Option<Captures<'a>> {
        self.0.captures(text)
    }

    /// Returns a literal prefix of every text that the expression matches, if the expression is anchored with `^`;
    /// `None` if a match may begin elsewhere. The prefix is not always the longest one.
    pub fn fixed_prefix(&self) -> Option<String> {
        let rest = self.as_str().strip_prefix('^')?;
        if rest.contains('|') {
            return None;
        }
        let is_literal = |c: char| c.is_ascii_alphanumeric() || "/_-%~,;=@!&'".contains(c);
        let mut prefix = String::new();
        let mut rest = rest.chars().peekable();
        while let Some(c) = rest.next() {
            let c = match c {
                '\\' if rest.peek().is_some_and(|c| ".-/".contains(*c)) => rest.next()?,
                c if is_literal(c) => c,
                _ => break,
            };
            if rest.peek().is_some_and(|c| "?*+{".contains(*c)) {
                break;
            }
            prefix.push(c);
        }
        Some(prefix)
    }

    /// Returns the number of capture groups.
    pub fn group_count(&self) -> usize {
        self.0.captures_len() - 1
    }
}

/// Maximum size of a set of expressions and of its lazy DFA, in bytes.
const MAX_SET_BYTES: usize = 64 << 20;

/// A set of expressions that are matched together in one pass over a text.
#[derive(Debug, Clone)]
pub struct RegexSet(regex::bytes::RegexSet);

impl RegexSet {
    /// Compiles a set of case-sensitive expressions; `None` if it needs too much memory.
    pub fn new<'a>(expressions: impl IntoIterator<Item = &'a TextRegex>) -> Option<Self> {
        Self::compile(expressions, false)
    }

    /// Compiles a set of expressions that ignore ASCII case; `None` if it needs too much memory.
    pub fn ignoring_case<'a>(expressions: impl IntoIterator<Item = &'a TextRegex>) -> Option<Self> {
        Self::compile(expressions, true)
    }

    fn compile<'a>(
        expressions: impl IntoIterator<Item = &'a TextRegex>,
        ignore_case: bool,
    ) -> Option<Self> {
        let mut builder = RegexSetBuilder::new(expressions.into_iter().map(TextRegex::as_str));
        builder.case_insensitive(ignore_case);
        builder.unicode(false).size_limit(MAX_SET_BYTES);
        builder.dfa_size_limit(MAX_SET_BYTES).build().ok().map(Self)
    }

    /// Returns the expressions that match anywhere in a text.
    pub fn matches(&self, text: &[u8]) -> SetMatches {
        self.0.matches(text)
    }
}

impl fmt::Debug for TextRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for TextRegex {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for TextRegex {}

impl Hash for TextRegex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_expression_returns_reason() {
        let error = TextRegex::new("/a(").unwrap_err().to_string();
        assert!(error.contains("unclosed group"), "{error}");
        assert!(TextRegex::new("a{1000}{1000}{1000}").is_err());
    }

    #[test]
    fn fixed_prefix_ends_at_the_first_operator() {
        let prefix = |text: &str| TextRegex::new(text).unwrap().fixed_prefix();
        assert_eq!(prefix("^/users/([0-9]+)$").as_deref(), Some("/users/"));
        assert_eq!(prefix(r"^/a\.php$").as_deref(), Some("/a.php"));
        assert_eq!(prefix("^/ab?").as_deref(), Some("/a"));
        assert_eq!(prefix("^/ab{0}c").as_deref(), Some("/a"));
        assert_eq!(prefix(r"^/a\d").as_deref(), Some("/a"));
        assert_eq!(prefix("^/a|b"), None);
        assert_eq!(prefix("/a"), None);
        assert_eq!(prefix("(?i)^/a"), None);
    }

    #[test]
    fn expression_matches_anywhere_unless_anchored() {
        let matches =
            |text: &str, path: &str| TextRegex::new(text).unwrap().matches(path.as_bytes());
        assert!(matches("[0-9]+", "/a/17/b"));
        assert!(!matches("^[0-9]+", "/a/17/b"));
        assert!(matches("(?i)^/IMG/.*\\.png$", "/img/x.PNG"));
    }
}
