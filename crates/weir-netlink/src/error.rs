//! Defines the crate's error type.

use std::io;
use std::path::PathBuf;

/// An error while reading or changing the network configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A netlink socket cannot be opened or used.
    #[error("netlink socket: {source}")]
    Socket {
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel rejected a request.
    #[error("failed to {request}: {source}{}", reason.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Rejected {
        /// Description of the request, as a verb phrase, such as "list links".
        request: String,
        /// The kernel's error.
        source: io::Error,
        /// The kernel's message (extended acknowledgement), if there is one, or the kernel option that is missing.
        reason: Option<String>,
    },
    /// A table changed during each attempt to read it.
    #[error("failed to {request}: the table changed during each attempt to read it")]
    Unstable {
        /// Description of the request.
        request: String,
    },
    /// A sysctl cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Sysctl {
        /// The file in `/proc/sys`.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The name of a sysctl outside `net/`, or an invalid name.
    #[error("{name:?} is not a valid name of a network sysctl")]
    SysctlName {
        /// The name as given.
        name: String,
    },
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] weir_sys::Error),
}

impl Error {
    pub(crate) fn request_failed(request: impl Into<String>, source: io::Error) -> Self {
        Self::Rejected {
            request: request.into(),
            source,
            reason: None,
        }
    }

    /// Returns the error number, if the error is from the kernel.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket { source }
            | Self::Rejected { source, .. }
            | Self::Sysctl { source, .. } => source.raw_os_error(),
            Self::Namespace(error) => error.errno(),
            Self::Unstable { .. } | Self::SysctlName { .. } => None,
        }
    }

    pub(crate) fn has_errno(&self, errno: rustix::io::Errno) -> bool {
        self.errno() == Some(errno.raw_os_error())
    }
}
