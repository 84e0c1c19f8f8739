//! What a proxy service says of clients to servers, and what it makes of answers: `forwarded`, `error_pages`, `compression`.

/// `forwarded` of a proxy service: by which fields servers are told of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Forwarded {
    /// By none; what clients say of themselves stays.
    Off,
    /// `X-Forwarded-For` and `-Proto`.
    #[default]
    Customary,
    /// `Forwarded` (RFC 7239).
    Standard,
    /// By all of them.
    Both,
}

impl Forwarded {
    /// Those that have a name; the others are `false` and `true`.
    pub const ALL: [Self; 2] = [Self::Standard, Self::Both];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "false",
            Self::Customary => "true",
            Self::Standard => "rfc7239",
            Self::Both => "both",
        }
    }
}

/// `underscores` of a proxy service: what becomes of a request's fields with `_` in their names. Servers that hand fields to
/// programs as variables (CGI, FastCGI, WSGI, PHP) cannot tell `_` from `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Underscores {
    /// Neither routes nor servers see them.
    #[default]
    Drop,
    /// They are passed on.
    Keep,
    /// The request is answered with 400.
    Reject,
}

impl Underscores {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Drop, Self::Keep, Self::Reject];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Keep => "keep",
            Self::Reject => "reject",
        }
    }
}

/// A member of `error_pages`: what clients get in place of an answer in two words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ErrorPage {
    /// Statuses that it is for, ranges with both ends.
    pub status: Vec<(u16, u16)>,
    /// The file, absolute.
    pub file: String,
    /// Where it is written.
    pub source: crate::Source,
}

/// A content coding that Weir makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coding {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Brotli,
    /// GZIP (RFC 1952).
    Gzip,
}

impl Coding {
    /// Every one, the best first.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// The name in `Content-Encoding`, and in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }
}

/// `compression` of a proxy service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Compression {
    /// Codings that are made, in the order in which they are preferred where a client likes several as much.
    pub codings: Vec<Coding>,
    /// Media types in lower case, `*` at the end for any rest.
    pub types: Vec<String>,
    /// Bodies of a known length below that many octets stay as they are.
    pub minimum: u32,
}

impl Default for Compression {
    fn default() -> Self {
        let types = [
            "text/*",
            "application/json",
            "application/javascript",
            "application/xml",
            "application/manifest+json",
            "application/ld+json",
            "application/wasm",
            "image/svg+xml",
        ];
        Self {
            codings: Coding::ALL.to_vec(),
            types: types.map(str::to_owned).to_vec(),
            minimum: 1024,
        }
    }
}
