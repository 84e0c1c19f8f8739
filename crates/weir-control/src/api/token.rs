//! Tokens of the API over TCP: who shows one in `Authorization: Bearer` (RFC 6750, section 2.1) has its role.
//!
//! Only hashes are kept. A token is random and has at least 128 bits, so a plain SHA-256 of it cannot be searched for.

mod file;

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use super::Role;

pub use file::{TokenFileError, add_token, named_tokens};

/// SHA-256.
type Hash = [u8; 32];

fn hash(text: &[u8]) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, text).as_ref());
    hash
}

/// The secret of `token` in the runtime directory, for clients on loopback.
#[derive(Clone)]
pub struct Token(Hash);

impl Token {
    /// Fewest characters.
    pub const SHORTEST: usize = 16;

    /// None for one that could be guessed, or that no header could carry.
    pub fn new(text: &str) -> Option<Self> {
        let fit = text.len() >= Self::SHORTEST && text.bytes().all(|byte| byte.is_ascii_graphic());
        fit.then(|| Self(hash(text.as_bytes())))
    }
}

/// A secret must not appear in logs, and neither must its hash.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A line of a file of tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedToken {
    /// For logs, and to find the line again.
    pub name: String,
    /// What it permits.
    pub role: Role,
    hash: Hash,
}

impl fmt::Debug for NamedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedToken({} {})", self.name, self.role)
    }
}

/// Every token of a listener.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    /// Of the runtime directory.
    pub own: Option<Token>,
    /// Of the file.
    pub named: Vec<NamedToken>,
}

impl Tokens {
    /// Fewest characters of a token of a file: 128 bits in base64.
    pub const SHORTEST: usize = 22;

    /// Name and role of a token that a client on loopback, or on another machine, has shown. The time that this takes
    /// depends on the number of tokens and on the length of this one, not on its characters.
    pub fn find(&self, shown: &[u8], loopback: bool) -> Option<(&str, Role)> {
        let shown_hash = hash(shown);
        let same = |known: &Hash| verify_slices_are_equal(known, &shown_hash).is_ok();
        let mut found = None;
        if let Some(Token(own)) = &self.own
            && same(own)
            && loopback
        {
            found = Some(("the runtime directory's", Role::Write));
        }
        for token in &self.named {
            if same(&token.hash) && shown.len() >= Self::SHORTEST {
                found = Some((&token.name, token.role));
            }
        }
        found
    }
}

/// The token in an `Authorization` field.
pub(super) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_token_is_limited_to_loopback_and_short_tokens_are_rejected() {
        let named = |name: &str, role, text: &str| NamedToken {
            name: name.to_owned(),
            role,
            hash: hash(text.as_bytes()),
        };
        let tokens = Tokens {
            own: Token::new("0123456789abcdef"),
            named: vec![
                named("short", Role::Write, "hunter2"),
                named("prometheus", Role::Read, "abcdefghijklmnopqrstuv"),
            ],
        };
        let own = tokens.find(b"0123456789abcdef", true);
        assert_eq!(own.map(|(_, role)| role), Some(Role::Write));
        assert_eq!(tokens.find(b"0123456789abcdef", false), None);
        assert_eq!(tokens.find(b"hunter2", true), None);
        let found = tokens.find(b"abcdefghijklmnopqrstuv", false);
        assert_eq!(found, Some(("prometheus", Role::Read)));
        assert_eq!(tokens.find(b"abcdefghijklmnopqrstuw", false), None);
        assert_eq!(tokens.find(b"", true), None);
    }

    #[test]
    fn bearer_scheme_is_case_insensitive() {
        assert_eq!(bearer(b"bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"BEARER  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b""), None);
    }
}
