//! Defines a proxy service's `normalize_path` setting: how request paths are compared and forwarded.

named_enum! {
    /// How an encoded slash or backslash in a path is treated (`%2F`, `%5C`, and `\`, which a URI must not contain).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum EncodedSlash {
        /// As an ordinary character of the segment: `/a%2Fb` differs from `/a/b`.
        #[default]
        Keep = "keep",
        /// As a slash.
        Decode = "decode",
        /// The request is rejected.
        Reject = "reject",
    }
}

named_enum! {
    /// The path that the server receives if no route rewrites it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum ForwardedPath {
        /// The path as the client sent it, byte for byte.
        #[default]
        Received = "received",
        /// The normalized path.
        Normalized = "normalized",
    }
}

/// A proxy service's `normalize_path` setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NormalizePath {
    /// Whether `//` is merged into `/`.
    pub merge_slashes: bool,
    /// Treatment of `%2F` and `%5C`.
    pub encoded_slash: EncodedSlash,
    /// The path that servers receive.
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
