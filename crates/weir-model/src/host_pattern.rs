//! Patterns for hosts in conditions of routes.

use std::fmt;

use crate::TextRegex;

/// Hosts that a route matches, compared without ASCII case and without the port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(String),
    /// Written `*.example`: every host that ends with `.example`; stored as `.example`, in lower case.
    Suffix(String),
    /// `*` matches any characters; in lower case.
    Wildcard(String),
    /// Written `~EXPRESSION`: hosts in which the expression matches; it ignores case.
    Regex(TextRegex),
}

impl HostPattern {
    /// Returns whether this pattern matches every host that `other` matches; false if the texts do not prove it.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Suffix(suffix), Self::Exact(host)) => host.ends_with(suffix.as_str()),
            (Self::Suffix(suffix), Self::Suffix(below)) => below.ends_with(suffix.as_str()),
            (own, theirs) => own == theirs,
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
