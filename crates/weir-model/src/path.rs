//! The `normalize_path` setting of a proxy service: how request paths are compared and forwarded.

named_enum! {
    /// An encoded slash or backslash in a path (`%2F`, `%5C`, and `\`, which a URI may not contain).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum EncodedSlash {
        /// An ordinary character of its segment: `/a%2Fb` differs from `/a/b`.
        #[default]
        Keep = "keep",
        /// A slash.
        Decode = "decode",
        /// The request is rejected.
        Reject = "reject",
    }
}

named_enum! {
    /// Path sent to the server if no route rewrites it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum ForwardedPath {
        /// The client's path, byte for byte.
        #[default]
        Received = "received",
        /// The normalized path.
        Normalized = "normalized",
    }
}

/// The `normalize_path` setting of a proxy service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NormalizePath {
    /// Whether `//` is merged into `/`.
    pub merge_slashes: bool,
    /// Treatment of `%2F` and `%5C`.
    pub encoded_slash: EncodedSlash,
    /// Path sent to servers.
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
