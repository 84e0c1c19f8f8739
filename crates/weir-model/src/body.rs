//! What a check may want of a body: a pattern in it, or its digest.

use std::fmt;
use std::hash::{Hash, Hasher};

use regex::bytes::{Regex, RegexBuilder};

/// A regular expression over octets. Two of one spelling are equal.
#[derive(Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Most octets that a compiled pattern may take.
    const MOST_COMPILED: usize = 1 << 20;

    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn new(text: &str) -> Result<Self, String> {
        let compiled = RegexBuilder::new(text)
            .size_limit(Self::MOST_COMPILED)
            .build();
        match compiled {
            Ok(regex) => Ok(Self(regex)),
            Err(regex::Error::CompiledTooBig(_)) => Err("it is too big".to_owned()),
            Err(error) => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default().trim();
                Err(last.strip_prefix("error: ").unwrap_or(last).to_owned())
            }
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it is found anywhere.
    pub fn is_in(&self, octets: &[u8]) -> bool {
        self.0.is_match(octets)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.as_str())
    }
}

/// As it is written, between slashes.
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
    /// RFC 1321: keepalived's.
    Md5([u8; 16]),
    /// FIPS 180-4.
    Sha256([u8; 32]),
}

/// In hexadecimal.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let octets: &[u8] = match self {
            Self::Md5(octets) => octets,
            Self::Sha256(octets) => octets,
        };
        octets.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_known_by_their_spelling() {
        let pattern = Pattern::new("^(Up|OK)\\s").unwrap();
        assert!(pattern.is_in(b"OK now"));
        assert!(!pattern.is_in(b"not OK now"));
        assert!(
            Pattern::new("\\xff")
                .is_ok_and(|it| !it.is_in(b"\xff") && it.is_in("\u{ff}".as_bytes()))
        );
        assert_eq!(pattern, Pattern::new("^(Up|OK)\\s").unwrap());
        assert_ne!(pattern, Pattern::new("Up").unwrap());
        assert_eq!(Pattern::new("(Up").unwrap_err(), "unclosed group");
        assert_eq!(
            Pattern::new("(\\w{500}){500}").unwrap_err(),
            "it is too big"
        );
    }

    #[test]
    fn digests_in_hexadecimal() {
        assert_eq!(Digest::Md5([0x0a; 16]).to_string(), "0a".repeat(16));
        assert_eq!(Digest::Sha256([0xf0; 32]).to_string(), "f0".repeat(32));
    }
}
