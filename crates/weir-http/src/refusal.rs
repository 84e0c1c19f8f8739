//! Why a message is not taken: whose fault, which status, what a log calls it.

/// A message that is refused. What it means for the connection is always the same: it ends, because nobody can say where
/// the next message begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The first line is none of a request.
    #[error("malformed request line")]
    RequestLine,
    /// The first line is none of a response.
    #[error("malformed status line")]
    StatusLine,
    /// HTTP, in a version that is not spoken here.
    #[error("HTTP version not supported")]
    Version,
    /// A line ends with LF alone, or CR stands inside one (RFC 9112 section 2.2).
    #[error("bare CR or LF")]
    LineEnd,
    /// A field line without a colon, with a blank before it, or with octets that no field has.
    #[error("malformed field")]
    Field,
    /// A field that goes on in the next line (RFC 9112 section 5.2).
    #[error("folded field")]
    Folded,
    /// The head is longer than allowed.
    #[error("head too large")]
    HeadTooLarge,
    /// The target alone is longer than allowed.
    #[error("target too long")]
    TargetTooLong,
    /// More fields than allowed.
    #[error("too many fields")]
    TooManyFields,
    /// The target is none of the four forms, or not the method's (RFC 9112 section 3.2).
    #[error("malformed target")]
    Target,
    /// `%` without two hexadecimal digits in a path, or `%00`.
    #[error("malformed escape in the path")]
    Escape,
    /// `%2F`, `%5C` or `\` in a path, where those are rejected.
    #[error("encoded slash in the path")]
    EncodedSlash,
    /// No `Host` in HTTP/1.1, several of them, or one that is no host with an optional port.
    #[error("missing or malformed Host")]
    Host,
    /// `Content-Length` twice, or not a number.
    #[error("ambiguous Content-Length")]
    ContentLength,
    /// `Transfer-Encoding` twice, with `Content-Length`, in HTTP/1.0, or not exactly `chunked`.
    #[error("ambiguous Transfer-Encoding")]
    TransferEncoding,
    /// A chunk's size or end is not what RFC 9112 section 7.1 says.
    #[error("malformed chunk")]
    Chunk,
    /// A trailer section with what does not belong there.
    #[error("malformed trailer")]
    Trailer,
    /// The body is longer than allowed.
    #[error("body too large")]
    BodyTooLarge,
    /// `Upgrade` or `Expect` twice: servers take the first, the last, or both.
    #[error("a field twice that a request may have once")]
    Repeated,
    /// A field name with `_`, where the service rejects those.
    #[error("underscore in a field name")]
    Underscore,
    /// An expectation other than `100-continue`.
    #[error("unknown expectation")]
    Expectation,
    /// No header of the PROXY protocol where there must be one.
    #[error("no PROXY protocol")]
    Preamble,
    /// CONNECT, which is not allowed here.
    #[error("method not allowed")]
    Method,
}

impl Refusal {
    /// The status that a client gets for its own request.
    pub const fn request_status(self) -> u16 {
        match self {
            Self::Version => 505,
            Self::HeadTooLarge | Self::TooManyFields => 431,
            Self::TargetTooLong => 414,
            Self::BodyTooLarge => 413,
            Self::Expectation => 417,
            Self::Method => 405,
            _ => 400,
        }
    }
}
