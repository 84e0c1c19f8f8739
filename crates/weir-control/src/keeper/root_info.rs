//! Defines the information that the helper service determines for an unprivileged daemon.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Information that only root can determine. A daemon that a service manager starts unprivileged needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootInfo {
    /// Whether a data plane is pinned.
    pub pinned: bool,
    /// The directories that the confined daemon may read: those in `files` routes of root's configuration.
    pub readable: Vec<PathBuf>,
}
