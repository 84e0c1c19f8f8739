//! Facts that the helper service determines for a daemon without rights.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What only root can find out, for a daemon that a service manager starts without rights.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// A data plane is pinned.
    pub pinned: bool,
    /// Directories whose files routes of root's configuration send.
    pub readable: Vec<PathBuf>,
}
