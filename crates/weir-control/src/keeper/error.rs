//! Errors of the keeper.

use std::io;
use std::path::PathBuf;

/// Why the keeper cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another keeper holds the runtime directory, or it cannot be used.
    #[error(transparent)]
    RuntimeDir(#[from] crate::runtime_dir::Error),
    /// The program cannot be started.
    #[error("{path}: {source}", path = path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The helper service cannot be used, or refuses a request.
    #[error("{reason}")]
    Service {
        /// In words.
        reason: String,
    },
    /// Signals cannot be received.
    #[error("signals: {source}")]
    Signals {
        /// The kernel's error.
        source: io::Error,
    },
    /// An error of channels or the service manager.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
}
