//! Defines the conditions of a check on a response body: a pattern or a digest.

use std::fmt;
use std::hash::{Hash, Hasher};

use regex::bytes::{Regex, RegexBuilder};

/// A regular expression over bytes. Two patterns are equal if their source texts are equal.
#[derive(Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Maximum size of a compiled pattern, in bytes.
    const MAX_COMPILED_BYTES: usize = 1 << 20;

    /// Compiles a pattern.
    ///
    /// # Errors
    /// Returns why the pattern is invalid, in one line.
    pub fn new(text: &str) -> Result<Self, String> {
        let compiled = RegexBuilder::new(text)
            .size_limit(Self::MAX_COMPILED_BYTES)
            .build();
        match compiled {
            Ok(regex) => Ok(Self(regex)),
            Err(regex::Error::CompiledTooBig(_)) => {
                Err("the compiled pattern is too large".to_owned())
            }
            Err(error) => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default().trim();
                Err(last.strip_prefix("error: ").unwrap_or(last).to_owned())
            }
        }
    }

    /// Returns the source text of the pattern.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns whether the pattern matches anywhere in `bytes`.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        self.0.is_match(bytes)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.as_str())
    }
}

/// Formats the source text between slashes.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.as_str())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

/// The digest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Digest {
    /// MD5 (RFC 1321), which keepalived uses.
    Md5([u8; 16]),
    /// SHA-256 (FIPS 180-4).
    Sha256([u8; 32]),
}

/// Formats the digest in hexadecimal.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: &[u8] = match self {
            Self::Md5(bytes) => bytes,
            Self::Sha256(bytes) => bytes,
        };
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_matched_and_compared() {
        let pattern = Pattern::new("^(Up|OK)\\s").unwrap();
        assert!(pattern.matches(b"OK now"));
        assert!(!pattern.matches(b"not OK now"));
        assert!(
            Pattern::new("\\xff")
                .is_ok_and(|it| !it.matches(b"\xff") && it.matches("\u{ff}".as_bytes()))
        );
        assert_eq!(pattern, Pattern::new("^(Up|OK)\\s").unwrap());
        assert_ne!(pattern, Pattern::new("Up").unwrap());
        assert_eq!(Pattern::new("(Up").unwrap_err(), "unclosed group");
        assert_eq!(
            Pattern::new("(\\w{500}){500}").unwrap_err(),
            "the compiled pattern is too large"
        );
    }

    #[test]
    fn digests_display_as_hexadecimal() {
        assert_eq!(Digest::Md5([0x0a; 16]).to_string(), "0a".repeat(16));
        assert_eq!(Digest::Sha256([0xf0; 32]).to_string(), "f0".repeat(32));
    }
}
