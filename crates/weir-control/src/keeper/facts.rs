//! Facts that the helper service determines for an unprivileged daemon.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Facts that only root can determine, for a daemon that a service manager starts unprivileged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Whether a data plane is pinned.
    pub pinned: bool,
    /// Directories from which routes in root's configuration serve files.
    pub readable: Vec<PathBuf>,
}
