//! Tokens of the API over TCP: the token in `Authorization: Bearer` (RFC 6750, section 2.1) determines the role.
//!
//! Only hashes are stored. A token is random and has at least 128 bits, so its plain SHA-256 cannot be inverted by
//! search.

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
    /// Minimum length in characters.
    pub const SHORTEST: usize = 16;

    /// Returns `None` for a token that is too short, or invalid in a header.
    pub fn new(text: &str) -> Option<Self> {
        let fit = text.len() >= Self::SHORTEST && text.bytes().all(|byte| byte.is_ascii_graphic());
        fit.then(|| Self(hash(text.as_bytes())))
    }
}

/// Neither the secret nor its hash may appear in logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A line of a token file.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedToken {
    /// The name of the token, for logs.
    pub name: String,
    /// Its role.
    pub role: Role,
    hash: Hash,
}

impl fmt::Debug for NamedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedToken({} {})", self.name, self.role)
    }
}

/// The tokens of a listener.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    /// The token of the runtime directory.
    pub own: Option<Token>,
    /// The tokens of the file.
    pub named: Vec<NamedToken>,
}

impl Tokens {
    /// Minimum length of a token of a file: 128 bits in base64.
    pub const SHORTEST: usize = 22;

    /// Returns name and role of a client's token; `own` is valid on loopback only. The time depends on the number of
    /// tokens and on the length of this one, but not on its characters.
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

/// Parses the token in an `Authorization` field.
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
