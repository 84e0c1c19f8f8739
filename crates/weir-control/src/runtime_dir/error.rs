//! Defines the errors of the runtime directory.

use std::io;
use std::path::PathBuf;

/// Why a runtime directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another daemon uses the same runtime directory.
    #[error(
        "a daemon is already running{}; a second daemon needs a separate --runtime-dir and --pin-dir",
        .holder.map_or_else(String::new, |pid| format!(" (pid {pid})"))
    )]
    Running {
        /// The daemon's process ID, if known.
        holder: Option<u32>,
    },
    /// The directory or a file in it has the wrong owner, mode or kind, or cannot be created.
    #[error(transparent)]
    Unusable(#[from] weir_runtime_dir::RuntimeDirError),
    /// A file, directory or socket cannot be created, written or removed.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file, directory or socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The directory cannot be locked.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
}
