//! `sticky` of a pool: a client of `http` services stays with a server by a cookie.

use crate::Secret;

/// How the cookie comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StickyMode {
    /// Weir sets a cookie of its own, which servers never see.
    #[default]
    Insert,
    /// The server sets the cookie, and Weir puts the server's sign in place of its value.
    Rewrite,
    /// The server sets the cookie, and Weir puts the server's sign in front of its value, and takes it off again.
    Prefix,
}

impl StickyMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Insert, Self::Rewrite, Self::Prefix];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Rewrite => "rewrite",
            Self::Prefix => "prefix",
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sticky {
    /// The cookie's name.
    pub cookie: String,
    /// How it comes about.
    pub mode: StickyMode,
    /// What the sign is computed with; `None` = a key that the director generates and keeps.
    pub secret: Option<Secret>,
    /// Attributes of a cookie that Weir sets, as they are sent; `None` = [`Sticky::attributes`] decides.
    pub attributes: Option<String>,
}

impl Sticky {
    /// Attributes of a cookie that Weir sets for clients that come with TLS, or without it. Text in the configuration holds
    /// for both.
    pub fn attributes(&self, tls: bool) -> &str {
        match &self.attributes {
            Some(text) => text,
            None if tls => "Path=/; HttpOnly; SameSite=Lax; Secure",
            None => "Path=/; HttpOnly; SameSite=Lax",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_attributes_replace_the_default_ones() {
        let of = |attributes: Option<&str>| Sticky {
            cookie: "SRV".to_owned(),
            mode: StickyMode::Insert,
            secret: None,
            attributes: attributes.map(str::to_owned),
        };
        assert_eq!(of(None).attributes(false), "Path=/; HttpOnly; SameSite=Lax");
        assert_eq!(
            of(None).attributes(true),
            "Path=/; HttpOnly; SameSite=Lax; Secure"
        );
        for text in ["", "Path=/x"] {
            assert_eq!(of(Some(text)).attributes(true), text);
        }
    }
}
