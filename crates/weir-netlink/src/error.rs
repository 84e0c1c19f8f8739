//! The crate's single error type.

use std::io;
use std::path::PathBuf;

/// Why the network could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A netlink socket could not be made or used.
    #[error("netlink socket: {source}")]
    Socket {
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("{request}: {source}{}", reason.as_ref().map(|r| format!(" ({r})")).unwrap_or_default())]
    Refused {
        /// What was asked for.
        request: String,
        /// The kernel's error number.
        source: io::Error,
        /// The kernel's own words, when it sent some (extended acknowledgement).
        reason: Option<String>,
    },
    /// A table changed under every attempt to read it whole.
    #[error("{request}: the table kept changing while it was read")]
    Unstable {
        /// What was asked for.
        request: String,
    },
    /// A sysctl could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Sysctl {
        /// The file below `/proc/sys`.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A name that is no sysctl of the network.
    #[error("{name:?} is not the name of a network sysctl")]
    SysctlName {
        /// The name as given.
        name: String,
    },
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] weir_sys::Error),
}

impl Error {
    pub(crate) fn refused(request: impl Into<String>, source: io::Error) -> Self {
        Self::Refused {
            request: request.into(),
            source,
            reason: None,
        }
    }

    /// The kernel's error number, when the kernel was what refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket { source }
            | Self::Refused { source, .. }
            | Self::Sysctl { source, .. } => source.raw_os_error(),
            Self::Namespace(error) => error.errno(),
            Self::Unstable { .. } | Self::SysctlName { .. } => None,
        }
    }

    pub(crate) fn is(&self, errno: rustix::io::Errno) -> bool {
        self.errno() == Some(errno.raw_os_error())
    }
}
