//! Defines `key`: the part of a request that the `hash` scheduler hashes, and by which `limits` identify clients.

use std::fmt;

/// Part of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum HashKey {
    /// The client's address.
    #[default]
    Source,
    /// The normalized path, as routes compare it, and the query.
    Uri,
    /// The path without the query.
    Path,
    /// The value of the header field with this name. The name is in lower case.
    Header(String),
    /// The value of the cookie with this name.
    Cookie(String),
    /// The value of the query parameter with this name.
    Query(String),
}

impl HashKey {
    /// Parses `source`, `uri`, `path`, `header:NAME`, `cookie:NAME` or `query:NAME`. Returns `None` for other texts.
    pub fn from_text(text: &str) -> Option<Self> {
        let non_empty = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        match text.split_once(':') {
            None => match text {
                "source" => Some(Self::Source),
                "uri" => Some(Self::Uri),
                "path" => Some(Self::Path),
                _ => None,
            },
            Some(("header", name)) => non_empty(&name.to_ascii_lowercase()).map(Self::Header),
            Some(("cookie", name)) => non_empty(name).map(Self::Cookie),
            Some(("query", name)) => non_empty(name).map(Self::Query),
            Some(_) => None,
        }
    }
}

impl fmt::Display for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source => f.write_str("source"),
            Self::Uri => f.write_str("uri"),
            Self::Path => f.write_str("path"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_key_display_round_trips() {
        for text in [
            "source",
            "uri",
            "path",
            "header:x-user",
            "cookie:Id",
            "query:q",
        ] {
            assert_eq!(
                HashKey::from_text(text)
                    .map(|key| key.to_string())
                    .as_deref(),
                Some(text)
            );
        }
        for wrong in ["", "header", "header:", "url", "cookie:", "x:y"] {
            assert_eq!(HashKey::from_text(wrong), None, "{wrong}");
        }
    }
}
