//! What can go wrong between Weir and the kernel's BPF objects.

use std::io;
use std::path::PathBuf;

/// A failure of the data plane. Nothing that was pinned and running before is changed by the failing call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A bpf(2) command, or a call around it, failed.
    #[error("{operation} {subject}: {source}")]
    Kernel {
        /// What was tried.
        operation: &'static str,
        /// On what: a map, a program, a path, a device.
        subject: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A directory or pin could not be made, read or removed.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The pin directory is not on a bpffs and none can be mounted there.
    #[error("{path} is not on a bpffs, and none can be mounted at its parent: {reason}", path = path.display())]
    NoBpffs {
        /// The pin directory.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The verifier or the loader refused an object.
    #[error("loading {object}: {message}")]
    Load {
        /// The object's name.
        object: &'static str,
        /// aya's message, with the verifier's log where there is one.
        message: String,
    },
    /// This build embeds no object of the name.
    #[error("this build has no BPF object {name:?}")]
    NoObject {
        /// The name.
        name: &'static str,
    },
    /// A loaded object has no program of the name.
    #[error("no program {name:?} in the data plane")]
    NoProgram {
        /// The name.
        name: String,
    },
    /// A map is not what this build works with.
    #[error("map {name}: {attribute} is {found}, not {expected}")]
    MapMismatch {
        /// The map.
        name: String,
        /// Type, key size, value size, entries or flags.
        attribute: &'static str,
        /// What this build works with.
        expected: u32,
        /// What the kernel says.
        found: u32,
    },
    /// The layout record was written by another program, or by a Weir that this one cannot follow.
    #[error("{path} was not written by this version of Weir ({found}); `weir clean` removes what is pinned", path = path.display())]
    ForeignLayout {
        /// The record.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// The flow table was made by a release whose layout this one does not read.
    #[error("{path} has flow layout {found}, and this version of Weir reads {oldest} to {newest}: use the version that made it, or one between; packets go on as before", path = path.display())]
    FlowLayout {
        /// The flow table's directory.
        path: PathBuf,
        /// Its layout.
        found: u32,
        /// The oldest layout that is read.
        oldest: u32,
        /// The present one.
        newest: u32,
    },
    /// Nothing is pinned in the directory.
    #[error("{path}: no data plane is pinned here", path = path.display())]
    Absent {
        /// The pin directory.
        path: PathBuf,
    },
    /// A size that cannot be, such as more servers than a flow entry can name.
    #[error("{what}: {value} is outside {lowest}…{highest}")]
    Size {
        /// The size's name.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The least that is possible.
        lowest: u32,
        /// The most that is possible.
        highest: u32,
    },
    /// An index outside its map.
    #[error("map {map} has {entries} entries, none at {index}")]
    Index {
        /// The map.
        map: &'static str,
        /// The index.
        index: u32,
        /// The number of entries.
        entries: u32,
    },
    /// Another program holds the device's XDP hook.
    #[error(
        "another XDP program is attached to device {ifindex}; detach it first (ip link set dev … xdp off)"
    )]
    Busy {
        /// The device.
        ifindex: u32,
    },
    /// The device accepts XDP neither natively nor in generic mode.
    #[error("device {ifindex} accepts no XDP program: {native} (native), {generic} (generic)")]
    NoXdp {
        /// The device.
        ifindex: u32,
        /// The answer to native mode.
        native: io::Error,
        /// The answer to generic mode.
        generic: io::Error,
    },
    /// Opened for reading only.
    #[error("the data plane was opened for reading only")]
    ReadOnly,
    /// Programs are attached only after [`crate::Dataplane::activate`].
    #[error("the data plane is not active yet")]
    NotActive,
    /// Something weir-sys does for this crate failed.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
}

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Names the operation and its subject in an `io::Error`.
pub(crate) trait Context<T> {
    fn during(self, operation: &'static str, subject: impl FnOnce() -> String) -> Result<T>;
    fn at(self, path: &std::path::Path) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn during(self, operation: &'static str, subject: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Kernel {
            operation,
            subject: subject(),
            source,
        })
    }

    fn at(self, path: &std::path::Path) -> Result<T> {
        self.map_err(|source| Error::File {
            path: path.to_owned(),
            source,
        })
    }
}
