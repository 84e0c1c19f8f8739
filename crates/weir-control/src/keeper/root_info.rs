//! Information that the helper service determines for an unprivileged daemon.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Information that only root can determine, for a daemon that a service manager starts unprivileged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootInfo {
    /// Whether a data plane is pinned.
    pub pinned: bool,
    /// Directories that the confined daemon may read: those of `files` in the routes of root's configuration.
    pub readable: Vec<PathBuf>,
}
