//! Reports the failures of commands with a message on stderr and an exit code.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use weir_control::api::ApiError;
use weir_control::client;

use crate::terminal;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command failed, or the daemon rejected the request.
    #[error("{message}")]
    Failed {
        /// One line.
        message: String,
    },
    /// A file is invalid. The message consists of the diagnostics.
    #[error("{findings}")]
    Findings {
        /// Rendered diagnostics.
        findings: String,
    },
    /// The command line is invalid.
    #[error("{message}")]
    Usage {
        /// One line.
        message: String,
    },
    /// A command that normally exits with the code of the program that it runs has failed. The codes for its own
    /// failures must be distinct.
    #[error("{message}")]
    Wrapper {
        /// One line.
        message: String,
        /// 125 to 127, as in env(1) and timeout(1), or 128 plus the number of a signal.
        code: u8,
    },
    /// No daemon is running, or the daemon does not reply.
    #[error("{message}")]
    NoDaemon {
        /// One line.
        message: String,
    },
}

impl Failure {
    /// Creates a failure from any error.
    pub(crate) fn failed(error: impl Error + 'static) -> Self {
        Self::Failed {
            message: with_advice(&error),
        }
    }

    const fn code(&self) -> u8 {
        match self {
            Self::Failed { .. } | Self::Findings { .. } => 1,
            Self::Usage { .. } => 2,
            Self::NoDaemon { .. } => 3,
            Self::Wrapper { code, .. } => *code,
        }
    }

    /// Prints the message on stderr and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Findings { findings } => terminal::eprint(findings),
            other => terminal::eprint(&format!("weir: {other}\n")),
        }
        ExitCode::from(self.code())
    }
}

/// Returns whether the process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns an error's message, with advice to run as root if the kernel denied permission to an unprivileged user.
pub(crate) fn with_advice(error: &(dyn Error + 'static)) -> String {
    let message = error.to_string();
    if !is_root() && is_permission_denied(error) {
        message + ": run as root"
    } else {
        message
    }
}

/// Returns whether the error or one of its sources is EACCES or EPERM.
fn is_permission_denied(error: &(dyn Error + 'static)) -> bool {
    let io_error = error.downcast_ref::<io::Error>();
    io_error.is_some_and(|it| it.kind() == io::ErrorKind::PermissionDenied)
        || error.source().is_some_and(is_permission_denied)
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        match error {
            client::Error::NoDaemon { .. } => Self::NoDaemon {
                message: error.to_string(),
            },
            client::Error::Refused(ApiError {
                diagnostics: Some(findings),
                ..
            }) => Self::Findings { findings },
            other => Self::failed(other),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error)
    }
}
