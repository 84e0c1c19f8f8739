//! Requests and responses of the API, except documents that have modules of their own.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::group_configuration::GroupConfiguration;

/// `POST /v1/reload` and `POST /v1/plan`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileRequest {
    /// Absolute path of the file, which only the owner may set; absent = the active file.
    pub path: Option<PathBuf>,
    /// The configuration itself instead of a file; JSON if it begins with `{`, otherwise TOML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whether findings are rendered in colour.
    pub color: bool,
    /// Milliseconds for which a reload is on probation: the response comes after them, and the reload is rolled back if
    /// it made things worse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard_ms: Option<u64>,
    /// A configuration of the group in place of the active one; only the daemon itself sets it.
    #[serde(skip)]
    pub group: Option<Arc<GroupConfiguration>>,
}

/// `POST /v1/cluster/publish`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PublishRequest {
    /// The configuration: JSON if it begins with `{`, otherwise TOML.
    pub text: String,
    /// Milliseconds for which each director watches it before the next one applies it; 0 = not at all.
    pub guard_ms: u64,
    /// Whether findings are rendered in colour.
    pub color: bool,
}

/// A configuration that is being rolled out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Its version.
    pub version: u64,
}

/// `POST /v1/upgrade`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// Absolute path of the new program.
    pub program: PathBuf,
}

/// A completed upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgraded {
    /// The process that is active now.
    pub pid: u32,
}

/// A completed reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// The active revision.
    pub revision: u64,
    /// The changes, one per line.
    pub changes: Vec<String>,
    /// Warnings and notes about the file, rendered; empty for none.
    pub findings: String,
}

/// The current state of a server: the response of `GET` and `POST /v1/servers/POOL/ADDRESS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerNow {
    /// Its pool.
    pub pool: String,
    /// Its address as in the file.
    pub address: String,
    /// As in the status document.
    pub state: String,
    /// Why it is in that state.
    pub reason: String,
    /// Configured.
    pub weight: u32,
    /// What the scheduler uses.
    pub effective_weight: u32,
    /// The active override as given to `weir server`.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
    /// Connections that can still carry data, and requests under way.
    pub open_connections: u64,
    /// Connections that both sides have closed, whose entries in the flow table have not expired.
    pub closed_connections: u64,
}

/// `POST /v1/explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// `tcp SRC:PORT VIP:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<String>,
    /// `GET http://host/path`; this or a packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Header lines of the request, `Name: value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
}

/// The body of every response that is not 200.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// One line.
    pub error: String,
    /// Findings about a file, rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<String>,
    /// This daemon executes no more requests; its successor may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

impl Refusal {
    /// Without findings.
    pub fn new(error: impl ToString) -> Self {
        Self {
            error: error.to_string(),
            ..Self::default()
        }
    }

    /// The daemon is stopping or has a successor.
    pub fn leaving() -> Self {
        Self {
            leaving: true,
            ..Self::new("the daemon is stopping")
        }
    }
}

/// The body of `POST /v1/node`, and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeOrder {
    /// The new state.
    pub state: NodeState,
}

/// Whether a director takes part in a group of directors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It does.
    Ready,
    /// It moves its work to the others: routes are withdrawn, and virtual routers are released.
    Drain,
}
