//! Why a server could not be prepared, undone or shown.

use std::io;
use std::path::{Path, PathBuf};

use crate::problem::Problem;

/// The result of every fallible function of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Refused before anything was changed; each problem on a line.
    #[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Refused {
        /// All of them.
        problems: Vec<Problem>,
    },
    /// The runtime directory cannot be used.
    #[error(transparent)]
    RuntimeDir(#[from] weir_runtime_dir::Unusable),
    /// A file of the runtime directory cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The state file is invalid.
    #[error("{path}: {source}: remove it, and undo its changes by hand", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// A newer build wrote the state file.
    #[error("{path}: version {version}, this build reads {known}", path = path.display())]
    StateVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The version that this build reads.
        known: u32,
    },
    /// The state file belongs to another network namespace of this machine.
    #[error("{path}: belongs to another network namespace; give this one its own --runtime-dir and \
     --pin-dir", path = path.display())]
    OtherNamespace {
        /// The file.
        path: PathBuf,
    },
    /// Addresses, links or sysctls.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// Locks, namespaces.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The programs.
    #[error(transparent)]
    Programs(#[from] weir_dataplane::real_server::Error),
    /// No loopback interface.
    #[error("this network namespace has no lo")]
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
