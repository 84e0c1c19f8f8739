//! Defines the errors of the keeper.

use std::io;
use std::path::PathBuf;

/// Why the keeper cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another keeper uses the runtime directory, or the directory cannot be used.
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
    /// The helper service cannot be used, or rejected a request.
    #[error("{reason}")]
    Service {
        /// The error message.
        reason: String,
    },
    /// The descriptor of the runtime directory's lock cannot be duplicated.
    #[error("failed to duplicate the lock's file descriptor: {source}")]
    Lock {
        /// The kernel's error.
        source: io::Error,
    },
    /// Signal handlers cannot be installed.
    #[error("failed to set up signal handling: {source}")]
    Signals {
        /// The kernel's error.
        source: io::Error,
    },
    /// An error related to channels or the service manager.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
}
