//! Defines the list of servers that a pool gets from one source.

use serde::{Deserialize, Serialize};
use weir_config::Member;

/// The kind of source that a list comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListSource {
    /// A file that another program writes (`servers_file`).
    File,
    /// DNS records.
    Dns,
    /// API requests.
    Api,
}

impl ListSource {
    /// Returns the source's name for logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::File => "servers_file",
            Self::Dns => "servers_dns",
            Self::Api => "API",
        }
    }
}

/// The last good content of a source, and why the current content was rejected.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    pub(crate) text: String,
    pub(crate) members: Vec<Member>,
    /// The file, or the DNS names and record types, that the servers are from; empty = unknown.
    pub(crate) origin: String,
    pub(crate) problem: Option<String>,
}

impl List {
    /// Returns whether the list has servers from another origin, because the configuration has changed and `origin` has
    /// not provided servers yet.
    pub(crate) fn is_superseded_by(&self, origin: &str) -> bool {
        !self.members.is_empty() && !self.origin.is_empty() && self.origin != origin
    }
}

/// Name of a pool, and the source of its list.
pub(crate) type Key = (String, ListSource);
