//! Defines the errors of this crate.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Parts of the replies from `gobgp` and `vtysh` if the speaker is not running. `gobgp` 2 and 3 try to connect for one
/// second, and then report only the deadline. `vtysh` names bgpd if another FRR daemon is running.
const NOT_RUNNING_REPLIES: [&str; 4] = [
    "connection refused",
    "context deadline exceeded",
    "failed to connect to any daemons",
    "bgpd is not running",
];

/// Maximum length of the part of a reply that an error quotes.
const MAX_REPLY_CHARS: usize = 200;

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

impl Error {
    /// Returns the error of a command that failed with this output, and with this status if there is no output.
    pub(crate) fn rejected(speaker: &'static str, output: &str, status: &str) -> Self {
        // FRR marks errors with a percent sign.
        let error_line = output.lines().find(|line| line.starts_with('%'));
        Self::Rejected {
            speaker,
            reply: match error_line.unwrap_or(output).trim() {
                "" => status.to_owned(),
                reply => reply.chars().take(MAX_REPLY_CHARS).collect(),
            },
        }
    }

    /// Returns whether the speaker is not running, and therefore announces nothing.
    pub(crate) fn is_not_running(&self) -> bool {
        match self {
            // NXIO: no process reads the pipe.
            Self::File { source, .. } | Self::Program { source, .. } => matches!(
                Errno::from_io_error(source),
                Some(Errno::NOENT | Errno::CONNREFUSED | Errno::NXIO)
            ),
            Self::Rejected { reply, .. } => {
                NOT_RUNNING_REPLIES.iter().any(|text| reply.contains(text))
            }
            Self::Signals(_) | Self::Timeout { .. } => false,
        }
    }
}

/// The result of this crate's fallible functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;
