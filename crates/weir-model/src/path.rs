//! `normalize_path` of a proxy service: in which form requests' paths are compared and passed on.

/// An encoded slash or backslash in a path (`%2F`, `%5C`, and `\`, which a URI may not contain).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EncodedSlash {
    /// It is a character of its segment: `/a%2Fb` is not `/a/b`.
    #[default]
    Keep,
    /// It is a slash.
    Decode,
    /// The request is rejected.
    Reject,
}

impl EncodedSlash {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Keep, Self::Decode, Self::Reject];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Decode => "decode",
            Self::Reject => "reject",
        }
    }
}

/// The path that a server is asked for where no route rewrites it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ForwardedPath {
    /// The client's, byte for byte.
    #[default]
    Received,
    /// The normalized one, which routes compare.
    Normalized,
}

impl ForwardedPath {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Received, Self::Normalized];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Normalized => "normalized",
        }
    }
}

/// `normalize_path` of a proxy service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NormalizePath {
    /// Whether `//` is `/`.
    pub merge_slashes: bool,
    /// What `%2F` and `%5C` are.
    pub encoded_slash: EncodedSlash,
    /// What servers are asked for.
    pub forward: ForwardedPath,
}

impl Default for NormalizePath {
    fn default() -> Self {
        Self {
            merge_slashes: true,
            encoded_slash: EncodedSlash::Keep,
            forward: ForwardedPath::Received,
        }
    }
}

impl std::fmt::Display for NormalizePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "merge_slashes {}, encoded_slash {}, forward {}",
            self.merge_slashes,
            self.encoded_slash.as_str(),
            self.forward.as_str()
        )
    }
}
