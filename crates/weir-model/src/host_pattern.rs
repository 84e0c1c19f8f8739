//! Defines the host patterns of route conditions.

use std::fmt;

use crate::TextRegex;

/// Hosts that a route matches. The comparison ignores ASCII case and the port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(String),
    /// Written `*.example`: every host that ends with `.example`. Stored as `.example` in lower case.
    Suffix(String),
    /// A pattern in lower case, where `*` matches any sequence of characters.
    Wildcard(String),
    /// Written `~EXPRESSION`: hosts that match the regular expression, ignoring case.
    Regex(TextRegex),
}

impl HostPattern {
    /// Returns whether this pattern matches every host that `other` matches; false if this cannot be determined from
    /// the patterns.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Suffix(suffix), Self::Exact(host)) => host.ends_with(suffix.as_str()),
            (Self::Suffix(suffix), Self::Suffix(below)) => below.ends_with(suffix.as_str()),
            _ => self == other,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) | Self::Wildcard(host) => f.write_str(host),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
            Self::Regex(regex) => write!(f, "~{}", regex.as_str()),
        }
    }
}
