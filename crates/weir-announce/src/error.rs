//! Defines the errors of this crate.

use std::io;
use std::path::PathBuf;

/// An error of the announcer or a speaker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, pipe or socket cannot be used.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Signal handlers cannot be installed.
    #[error("failed to install signal handlers: {0}")]
    Signals(io::Error),
    /// The speaker rejected a command.
    #[error("{speaker}: {reply}")]
    Rejected {
        /// The speaker's name in the configuration.
        speaker: &'static str,
        /// The speaker's reply.
        reply: String,
    },
    /// The speaker did not reply in time.
    #[error("{speaker} did not reply in time")]
    Timeout {
        /// The speaker's name in the configuration.
        speaker: &'static str,
    },
    /// A program cannot be run.
    #[error("{program}: {source}")]
    Program {
        /// The program's name.
        program: String,
        /// The error.
        source: io::Error,
    },
}

/// The result of this crate's fallible functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;
