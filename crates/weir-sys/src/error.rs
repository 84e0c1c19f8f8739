//! The crate's single error type.

use std::io;
use std::path::{Path, PathBuf};

/// Why a request to the kernel did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{call} on {subject}: {source}")]
    Call {
        /// The call, or the operation of a multiplexed call.
        call: &'static str,
        /// What it was applied to: an interface, a path, a namespace.
        subject: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file could not be opened, read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A kernel file or reply does not have the documented form.
    #[error("{subject}: expected {expected}, found {found:?}")]
    Format {
        /// Where it was read.
        subject: String,
        /// What was expected there.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// A name that cannot be an interface's: empty, over 15 bytes, or with `/`, white space or NUL.
    #[error("{name:?} is not an interface name")]
    InterfaceName {
        /// The name as given.
        name: String,
    },
    /// The kernel knows no device feature of this name.
    #[error("{interface}: this kernel knows no feature {feature:?}")]
    UnknownFeature {
        /// The device.
        interface: String,
        /// The feature as asked for.
        feature: String,
    },
    /// The driver does not let this feature be changed.
    #[error("{interface}: feature {feature:?} cannot be turned {}", if *on { "on" } else { "off" })]
    FixedFeature {
        /// The device.
        interface: String,
        /// The feature.
        feature: String,
        /// The value that was wanted.
        on: bool,
    },
    /// A symbolic link, device, pipe or directory where a plain file belongs.
    #[error(
        "{path} is no regular file: a symbolic link or device is not followed here; remove it",
        path = path.display()
    )]
    NotPlain {
        /// What was found.
        path: PathBuf,
    },
    /// Another process holds the lock.
    #[error(
        "{path} is held by {}",
        holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}")),
        path = path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that wrote itself into it, when the file says so.
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

    /// The kernel's error number, when the kernel was what refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call { source, .. } | Self::File { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
