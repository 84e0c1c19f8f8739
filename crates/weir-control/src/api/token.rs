//! Checks the tokens of API clients over TCP.
//!
//! The token in `Authorization: Bearer` (RFC 6750 section 2.1) determines the role.
//!
//! The memory of the daemon and the token file contain only hashes. A token is random and has at least 128 bits, so its
//! plain SHA-256 hash cannot be inverted by brute force.

mod file;

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use super::Role;

pub use file::{TokenFileError, add_token, named_tokens};

/// A SHA-256 hash.
type Hash = [u8; 32];

fn hash(text: &[u8]) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, text).as_ref());
    hash
}

/// The hash of the token in the runtime directory, which is valid for clients on loopback.
#[derive(Clone)]
pub struct Token(Hash);

impl Token {
    /// Minimum length of the token, in characters.
    pub const MIN_LENGTH: usize = 16;

    /// Creates a token; `None` = the text is too short or is not valid in a header.
    pub fn new(text: &str) -> Option<Self> {
        let is_valid =
            text.len() >= Self::MIN_LENGTH && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_valid.then(|| Self(hash(text.as_bytes())))
    }
}

/// Omits the hash, which must not appear in logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A line in a token file.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedToken {
    /// Token name, for logs.
    pub name: String,
    /// Token role.
    pub role: Role,
    hash: Hash,
}

impl fmt::Debug for NamedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedToken({} {})", self.name, self.role)
    }
}

/// The tokens that a listener accepts.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    /// The token in the runtime directory.
    pub runtime_dir_token: Option<Token>,
    /// The tokens from the token file.
    pub named: Vec<NamedToken>,
}

impl Tokens {
    /// Minimum length of a token from the file, in characters: 128 bits in base64.
    pub const MIN_LENGTH: usize = 22;

    /// Returns the name and the role of a client's token; `None` = the token is unknown. The token in the runtime
    /// directory is valid only on loopback. The time that this takes depends on the number of tokens and on the length
    /// of the client's token, but not on the token's characters.
    pub fn find(&self, presented: &[u8], loopback: bool) -> Option<(&str, Role)> {
        let presented_hash = hash(presented);
        let is_presented = |known: &Hash| verify_slices_are_equal(known, &presented_hash).is_ok();
        let mut found = None;
        if let Some(Token(expected)) = &self.runtime_dir_token
            && is_presented(expected)
            && loopback
        {
            found = Some(("runtime directory", Role::Write));
        }
        for token in &self.named {
            if is_presented(&token.hash) && presented.len() >= Self::MIN_LENGTH {
                found = Some((&token.name, token.role));
            }
        }
        found
    }
}

/// Returns the token in the value of an `Authorization` field; `None` if the scheme is not `Bearer`.
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
    fn runtime_dir_token_is_limited_to_loopback_and_short_tokens_are_rejected() {
        let named = |name: &str, role, text: &str| NamedToken {
            name: name.to_owned(),
            role,
            hash: hash(text.as_bytes()),
        };
        let tokens = Tokens {
            runtime_dir_token: Token::new("0123456789abcdef"),
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
