//! Defines the requests and responses of the API, except documents that have their own modules.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::group_configuration::GroupConfiguration;

/// The body of `POST /v1/reload` and `POST /v1/plan`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileRequest {
    /// Absolute path to the file, which only the owner may specify; absent = the active file.
    pub path: Option<PathBuf>,
    /// The configuration itself, instead of a file: JSON if it begins with `{`, otherwise TOML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whether diagnostics are rendered in color.
    pub color: bool,
    /// Duration of the reload's guard, in milliseconds. The response is sent when the guard ends. A reload that caused
    /// a regression is rolled back. Absent = no guard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard_ms: Option<u64>,
    /// The group configuration to use instead of the active one. Only the daemon itself sets this field.
    #[serde(skip)]
    pub group: Option<Arc<GroupConfiguration>>,
}

/// The body of `POST /v1/cluster/publish`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PublishRequest {
    /// The configuration: JSON if it begins with `{`, otherwise TOML.
    pub text: String,
    /// Duration of the guard on each director before the next director applies the configuration, in milliseconds;
    /// 0 = no guard.
    pub guard_ms: u64,
    /// Whether each director uses its own certificate files. Otherwise, if `group_key` is configured, the certificate
    /// files that the configuration names are published with it.
    pub local_files: bool,
    /// Whether diagnostics are rendered in color.
    pub color: bool,
}

/// A configuration that is being rolled out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishResponse {
    /// The configuration version.
    pub version: u64,
    /// Warnings about certificates and other files, rendered; absent if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub findings: String,
}

/// The body of `POST /v1/upgrade`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// Absolute path to the new program.
    pub program: PathBuf,
}

/// A completed upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeResponse {
    /// The process ID of the new active daemon.
    pub pid: u32,
}

/// A completed reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadResponse {
    /// The active revision.
    pub revision: u64,
    /// The changes, one per line.
    pub changes: Vec<String>,
    /// Warnings and notes about the file, rendered; empty if there are none.
    pub findings: String,
}

/// A server's current state: the response to `GET` and `POST /v1/servers/POOL/ADDRESS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// The server's pool.
    pub pool: String,
    /// The server's address as in the file.
    pub address: String,
    /// The server's state, as in the status document.
    pub state: String,
    /// The reason for the state.
    pub reason: String,
    /// The configured weight.
    pub weight: u32,
    /// The weight that the scheduler uses.
    pub effective_weight: u32,
    /// The active override, in the form that `weir server` accepts; absent = none.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
    /// Number of connections that can still carry data, plus requests in progress.
    pub open_connections: u64,
    /// Number of connections that both sides have closed, and of abandoned handshakes, whose flow table entries have
    /// not expired.
    pub closed_connections: u64,
}

/// The body of `POST /v1/explain`: either a packet or a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// A packet: `tcp SRC:PORT VIP:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<String>,
    /// A request: `GET http://host/path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Request header lines, `Name: value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Client address; absent = unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
}

/// The body of every response whose status is not 200.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{error}")]
pub struct ApiError {
    /// The error, in one line.
    pub error: String,
    /// Findings about a configuration, rendered as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<String>,
    /// Whether the daemon no longer executes requests. A successor may execute them.
    #[serde(
        rename = "leaving",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_stopping: bool,
}

impl ApiError {
    /// Creates an error without findings.
    pub fn new(error: impl ToString) -> Self {
        Self {
            error: error.to_string(),
            ..Self::default()
        }
    }

    /// Creates the error that a daemon returns while it is stopping or has a successor.
    pub fn stopping() -> Self {
        Self {
            is_stopping: true,
            ..Self::new("the daemon is stopping")
        }
    }
}

/// The body of `POST /v1/node`, and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeUpdate {
    /// The new state.
    pub state: NodeState,
}

/// Whether a director does the work that other directors could take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The director announces VIPs and runs virtual routers.
    Ready,
    /// The director leaves the work to other directors: it withdraws its routes and releases its virtual routers.
    Drain,
}
