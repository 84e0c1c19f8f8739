//! Defines the reasons for rejecting a message, with the status code for the client and the text for logs.

/// Why a message was rejected. The connection is always closed, because the start of the next message is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ParseError {
    /// The first line is not a request line.
    #[error("malformed request line")]
    RequestLine,
    /// The first line is not a status line.
    #[error("malformed status line")]
    StatusLine,
    /// The HTTP version is not supported.
    #[error("HTTP version not supported")]
    Version,
    /// A line ends with a bare LF or contains a CR (RFC 9112 section 2.2).
    #[error("bare CR or LF")]
    LineEnd,
    /// A field line contains invalid bytes, has whitespace before the colon, or has no colon.
    #[error("malformed field")]
    Field,
    /// A field continues on the next line (RFC 9112 section 5.2).
    #[error("folded field")]
    Folded,
    /// The head is longer than allowed.
    #[error("head too large")]
    HeadTooLarge,
    /// The target is longer than allowed.
    #[error("target too long")]
    TargetTooLong,
    /// The message has more fields than allowed.
    #[error("too many fields")]
    TooManyFields,
    /// The target has none of the four forms, or a form that the method does not allow (RFC 9112 section 3.2).
    #[error("malformed target")]
    Target,
    /// A path contains `%00`, or `%` without two hexadecimal digits.
    #[error("malformed escape in the path")]
    Escape,
    /// A path contains `%2F`, `%5C` or `\`, and the service rejects these.
    #[error("encoded slash in the path")]
    EncodedSlash,
    /// `Host` is missing in HTTP/1.1, occurs several times, or is not a host with an optional port.
    #[error("missing or malformed Host")]
    Host,
    /// `Content-Length` occurs twice, or is not a number of at most 18 digits.
    #[error("invalid or repeated Content-Length")]
    ContentLength,
    /// `Transfer-Encoding` occurs twice, with `Content-Length` or in HTTP/1.0, or is not exactly `chunked`.
    #[error("unsupported or ambiguous Transfer-Encoding")]
    TransferEncoding,
    /// A chunk's size or end violates RFC 9112 section 7.1.
    #[error("malformed chunk")]
    Chunk,
    /// The trailer section is malformed or contains a forbidden field.
    #[error("malformed trailer")]
    Trailer,
    /// The body is longer than allowed.
    #[error("body too large")]
    BodyTooLarge,
    /// `Upgrade` or `Expect` occurs twice: some servers use the first value, some the last, and some both.
    #[error("duplicate Upgrade or Expect field")]
    Repeated,
    /// A field name contains `_`, and the service rejects such names.
    #[error("underscore in a field name")]
    Underscore,
    /// The request has an expectation other than `100-continue`.
    #[error("unknown expectation")]
    Expectation,
    /// A required PROXY protocol header is missing or malformed.
    #[error("missing or malformed PROXY protocol header")]
    Preamble,
    /// The method is CONNECT, which the service does not allow.
    #[error("method not allowed")]
    Method,
}

impl ParseError {
    /// Returns the status code with which a request is rejected.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_requests_have_their_status() {
        for (error, status) in [
            (ParseError::RequestLine, 400),
            (ParseError::Version, 505),
            (ParseError::LineEnd, 400),
            (ParseError::HeadTooLarge, 431),
            (ParseError::TargetTooLong, 414),
            (ParseError::TooManyFields, 431),
            (ParseError::Host, 400),
            (ParseError::ContentLength, 400),
            (ParseError::BodyTooLarge, 413),
            (ParseError::Expectation, 417),
            (ParseError::Method, 405),
        ] {
            assert_eq!(error.request_status(), status, "{error}");
        }
    }
}
