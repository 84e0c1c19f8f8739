//! Defines the crate's error type.

use std::io;
use std::path::{Path, PathBuf};

/// An error from a system call or a kernel file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{call} on {subject}: {source}")]
    Call {
        /// Name of the system call, or of the operation of a multiplexed system call.
        call: &'static str,
        /// The object of the call: an interface, a path, a namespace.
        subject: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file cannot be opened, read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A kernel file or reply has an unexpected format.
    #[error("{subject}: expected {expected}, found {found:?}")]
    Format {
        /// The file or interface that was read.
        subject: String,
        /// The expected content.
        expected: &'static str,
        /// The content that was read.
        found: String,
    },
    /// An interface name that is empty, longer than 15 bytes, or contains `/`, white space or NUL.
    #[error("invalid interface name {name:?}")]
    InterfaceName {
        /// The specified name.
        name: String,
    },
    /// The kernel has no device feature with this name.
    #[error("{interface}: this kernel has no feature {feature:?}")]
    UnknownFeature {
        /// The device.
        interface: String,
        /// The requested feature.
        feature: String,
    },
    /// The driver does not allow changing this feature.
    #[error("{interface}: feature {feature:?} cannot be {}", if *on { "enabled" } else { "disabled" })]
    FixedFeature {
        /// The device.
        interface: String,
        /// The feature.
        feature: String,
        /// The requested value.
        on: bool,
    },
    /// A symbolic link, device, pipe or directory instead of a regular file.
    #[error(
        "{path} is not a regular file; remove it",
        path = path.display()
    )]
    NotRegularFile {
        /// The path.
        path: PathBuf,
    },
    /// Another process holds the lock.
    #[error(
        "{path} is locked by {}",
        holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}")),
        path = path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process ID in the lock file, if there is one.
        holder: Option<u32>,
    },
}

impl Error {
    pub(crate) fn call(
        call: &'static str,
        subject: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Call {
            call,
            subject: subject.into(),
            source: source.into(),
        }
    }

    pub(crate) fn file(path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::File {
            path: path.as_ref().to_owned(),
            source: source.into(),
        }
    }

    /// Returns the error number, if the error is from the kernel.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call { source, .. } | Self::File { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
