//! The server list of a pool from one source.

use serde::{Deserialize, Serialize};
use weir_config::Member;

/// The source of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListSource {
    /// A file that another program writes.
    File,
    /// DNS records.
    Dns,
    /// API requests.
    Api,
}

impl ListSource {
    /// Returns the name in logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::File => "servers_file",
            Self::Dns => "servers_dns",
            Self::Api => "API",
        }
    }
}

/// The last good content of a source, and why the current content is rejected.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    pub(crate) text: String,
    pub(crate) members: Vec<Member>,
    pub(crate) problem: Option<String>,
}

/// Name of a pool, and the source of its list.
pub(crate) type Key = (String, ListSource);
