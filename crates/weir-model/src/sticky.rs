//! `sticky` of a pool: a client of `http` services stays with a server by a cookie.

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
    /// What the sign is computed with; empty = from the server's name alone, which clients can compute too.
    pub secret: String,
    /// Attributes of a cookie that Weir sets, as they are sent.
    pub attributes: String,
}

impl Sticky {
    /// Attributes where nothing else is said.
    pub const ATTRIBUTES: &str = "Path=/; HttpOnly";
}
