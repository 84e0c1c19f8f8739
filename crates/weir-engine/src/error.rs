//! Defines the engine's errors.

use std::path::PathBuf;

use crate::listener_conflict::ListenerConflict;

/// Why a change was not applied, or was applied only in part.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A data plane error.
    #[error(transparent)]
    Dataplane(#[from] weir_dataplane::Error),
    /// An error from netlink (addresses, routes, neighbors).
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// An address for proxy services cannot be added or removed.
    #[error(transparent)]
    Vip(#[from] crate::vip::Error),
    /// The configuration cannot be planned.
    #[error(transparent)]
    Plan(#[from] weir_planner::Error),
    /// Another system call failed.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// A file in the runtime directory cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A newer version wrote the state file.
    #[error("{path}: format version {found} is newer than this build supports", path = path.display())]
    StateVersion {
        /// The file.
        path: PathBuf,
        /// The file's version.
        found: u32,
    },
    /// The file uses a listener of an ipvsadm service.
    #[error(transparent)]
    ListenerConflict(ListenerConflict),
    /// The pool or server does not exist.
    #[error("server {server} not found in pool {pool}")]
    NoServer {
        /// The pool.
        pool: String,
        /// The server, as in the request.
        server: String,
    },
    /// The weight is out of range.
    #[error("weight {weight} is above the maximum {limit}")]
    Weight {
        /// The weight.
        weight: u32,
        /// The maximum weight.
        limit: u32,
    },
    /// A configured interface does not exist.
    #[error("interface {name} not found")]
    NoInterface {
        /// Name of the interface.
        name: String,
    },
    /// Another program is attached to the interface's hook.
    #[error("interface {interface} already has another {hook} program: {holder}; {fix}")]
    ForeignProgram {
        /// Name of the interface.
        interface: String,
        /// `XDP` or `tc`.
        hook: &'static str,
        /// The program and its owner, if known.
        holder: String,
        /// How to remove the program.
        fix: String,
    },
    /// The cgroup of a socket service cannot be used.
    #[error("cgroup {path}: {source}")]
    Cgroup {
        /// Path of the cgroup.
        path: String,
        /// The cause.
        source: weir_sys::Error,
    },
    /// Too many cgroups at the same time.
    #[error("more than {limit} cgroups are in use")]
    Cgroups {
        /// The limit.
        limit: u32,
    },
    /// Not enough space for lists and hash tables.
    #[error("not enough space for {elements} table elements: raise max_servers in [node]")]
    NoRoom {
        /// Number of requested elements.
        elements: u32,
    },
    /// A change failed, and the rollback failed too.
    #[error("{cause}; the previous configuration could not be restored completely: {rollback}")]
    RollbackFailed {
        /// Why the change failed.
        cause: Box<Error>,
        /// Why the rollback failed.
        rollback: Box<Error>,
    },
}

/// The result type of the engine's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;
