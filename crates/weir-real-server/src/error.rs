//! Defines the errors of `weir real-server`.

use std::io;
use std::path::{Path, PathBuf};

use crate::problem::Problem;

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error from `weir real-server`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request was rejected before anything was changed. The message has one line for each problem.
    #[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Rejected {
        /// All problems.
        problems: Vec<Problem>,
    },
    /// The runtime directory cannot be used.
    #[error(transparent)]
    RuntimeDir(#[from] weir_runtime_dir::RuntimeDirError),
    /// A file in the runtime directory cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The state file is invalid.
    #[error("{path}: {source}: remove the file, and revert the changes manually", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// The state file has an unsupported version.
    #[error("{path}: version {version} is not supported; this build supports {supported}", path = path.display())]
    StateVersion {
        /// The file.
        path: PathBuf,
        /// The file's version.
        version: u32,
        /// The version that this build supports.
        supported: u32,
    },
    /// The state file is for another network namespace on this machine.
    #[error("{path}: the VIPs were prepared in another network namespace: run the command there, or use a different \
    --runtime-dir and --pin-dir for this namespace", path = path.display())]
    OtherNamespace {
        /// The file.
        path: PathBuf,
    },
    /// Addresses, links or sysctls cannot be read or changed.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// An error from a lock or a namespace.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// An error from the BPF programs.
    #[error(transparent)]
    Programs(#[from] weir_dataplane::real_server::Error),
    /// There is no loopback interface.
    #[error("this network namespace has no loopback interface")]
    NoLoopback,
}

impl Error {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }
}
