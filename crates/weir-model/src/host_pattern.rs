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
    /// Whether this pattern matches every host that `other` matches; false if the texts do not prove it.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Suffix(rest), Self::Exact(host)) => host.ends_with(rest.as_str()),
            (Self::Suffix(rest), Self::Suffix(below)) => below.ends_with(rest.as_str()),
            (own, theirs) => own == theirs,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) | Self::Wildcard(host) => f.write_str(host),
            Self::Suffix(rest) => write!(f, "*{rest}"),
            Self::Regex(regex) => write!(f, "~{}", regex.as_str()),
        }
    }
}
