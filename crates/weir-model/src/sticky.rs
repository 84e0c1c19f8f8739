//! Defines a pool's `sticky` setting: session affinity for `http` services by cookie.

use crate::Secret;

named_enum! {
    /// How the cookie is set.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum StickyMode {
        /// Weir sets its own cookie and removes it from requests to servers.
        #[default]
        Insert = "insert",
        /// The server sets the cookie, and Weir replaces its value with the server's identifier.
        Rewrite = "rewrite",
        /// The server sets the cookie. Weir prepends the server's identifier to the value, and removes the identifier
        /// from requests.
        Prefix = "prefix",
    }
}

/// A pool's session affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sticky {
    /// Cookie name.
    pub cookie: String,
    /// How the cookie is set.
    pub mode: StickyMode,
    /// Key for computing server identifiers; `None` = a key that the director generates and stores.
    pub secret: Option<Secret>,
    /// Attributes of cookies that Weir sets, sent verbatim; `None` = the defaults of [`Sticky::attributes`].
    pub attributes: Option<String>,
    /// Whether Weir adds `Cache-Control: private` to responses in which it inserts a cookie.
    pub private: bool,
}

impl Sticky {
    /// Returns the cookie attributes for clients with or without TLS. Configured attributes apply to both.
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
    fn configured_attributes_replace_defaults() {
        let sticky = |attributes: Option<&str>| Sticky {
            cookie: "SRV".to_owned(),
            mode: StickyMode::Insert,
            secret: None,
            attributes: attributes.map(str::to_owned),
            private: false,
        };
        assert_eq!(
            sticky(None).attributes(false),
            "Path=/; HttpOnly; SameSite=Lax"
        );
        assert_eq!(
            sticky(None).attributes(true),
            "Path=/; HttpOnly; SameSite=Lax; Secure"
        );
        for text in ["", "Path=/x"] {
            assert_eq!(sticky(Some(text)).attributes(true), text);
        }
    }
}
