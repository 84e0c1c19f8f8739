//! Defines the directories that an engine uses.

use std::path::PathBuf;

/// Name of the lock file in the runtime directory. A running daemon holds the lock.
pub const LOCK_FILE: &str = "lock";

/// The directories that an engine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Contains the socket, the lock and the state file.
    pub runtime_dir: PathBuf,
    /// Contains pinned programs, maps and links.
    pub pin_dir: PathBuf,
}

impl Paths {
    /// Returns the lock file path.
    pub(crate) fn lock(&self) -> PathBuf {
        self.runtime_dir.join(LOCK_FILE)
    }
}
