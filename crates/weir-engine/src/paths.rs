//! Defines the directories that an engine uses.

use std::path::PathBuf;

/// The directories that an engine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Contains the socket, the lock and the state file.
    pub runtime_dir: PathBuf,
    /// Contains pinned programs, maps and links.
    pub pin_dir: PathBuf,
}
