//! Failures of commands: words for stderr and the exit code, product.md section 6.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use weir_control::api::Refusal;
use weir_control::client;

use crate::terminal;

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Refused or failed.
    #[error("{message}")]
    Failed {
        /// One line.
        message: String,
    },
    /// Refused for what a file says; the findings speak for themselves.
    #[error("{findings}")]
    Findings {
        /// As rendered.
        findings: String,
    },
    /// Asked for in a way that cannot be.
    #[error("{message}")]
    Usage {
        /// One line.
        message: String,
    },
    /// Of a command that passes on another's exit code, which its own must not be taken for.
    #[error("{message}")]
    Wrapper {
        /// One line.
        message: String,
        /// As env(1) and timeout(1) use them: 125 to 127.
        code: u8,
    },
    /// Nobody to ask.
    #[error("{message}")]
    NoDaemon {
        /// One line.
        message: String,
    },
}

impl Failure {
    /// For what this build lacks.
    pub(crate) fn not_built(what: &str) -> Self {
        Self::Usage {
            message: format!("{what}: not built yet"),
        }
    }

    /// For any error.
    pub(crate) fn failed(error: impl Error + 'static) -> Self {
        Self::Failed {
            message: advised(&error),
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

    /// Says it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Findings { findings } => terminal::complain(findings),
            other => terminal::complain(&format!("weir: {other}\n")),
        }
        ExitCode::from(self.code())
    }
}

/// Whether this process has root's rights over files and the kernel.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An error's message. Where the kernel refused it to a user without root's rights it says that root is needed.
pub(crate) fn advised(error: &(dyn Error + 'static)) -> String {
    let message = error.to_string();
    if !is_root() && is_denied(error) {
        message + ": run as root"
    } else {
        message
    }
}

/// Whether the kernel's answer, which may be several causes down, is EACCES or EPERM.
fn is_denied(error: &(dyn Error + 'static)) -> bool {
    let refused = error.downcast_ref::<io::Error>();
    refused.is_some_and(|it| it.kind() == io::ErrorKind::PermissionDenied)
        || error.source().is_some_and(is_denied)
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        match error {
            client::Error::NoDaemon { .. } => Self::NoDaemon {
                message: error.to_string(),
            },
            client::Error::Refused(Refusal {
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
