//! Defines the data plane's errors.

use std::io;
use std::path::PathBuf;

/// A data plane error. Unless the function's documentation says otherwise, a call that fails does not change the
/// objects that were already pinned and attached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A bpf(2) command or a related system call failed.
    #[error("failed to {operation} {subject}: {source}")]
    Kernel {
        /// The operation, as a verb, such as "attach".
        operation: &'static str,
        /// The object of the operation: a map, a program, a path, a device.
        subject: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A directory or pin could not be created, read or removed.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Path of the directory or pin.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The pin directory is not on a bpffs, and a bpffs cannot be mounted there.
    #[error("{path} is not on a bpffs, and none can be mounted at its parent: {reason}", path = path.display())]
    NoBpffs {
        /// The pin directory.
        path: PathBuf,
        /// Why no bpffs can be mounted.
        reason: String,
    },
    /// Another daemon uses the pin directory.
    #[error(
        "{path} is used by the daemon with the runtime directory {runtime_dir} (pid {holder}); a second daemon needs \
         a separate --runtime-dir and --pin-dir",
        path = path.display(), runtime_dir = runtime_dir.display()
    )]
    InUse {
        /// The pin directory.
        path: PathBuf,
        /// The other daemon's runtime directory.
        runtime_dir: PathBuf,
        /// ID of the process that holds the other daemon's lock.
        holder: u32,
    },
    /// The verifier or the loader rejected an object.
    #[error("failed to load {object}: {message}")]
    Load {
        /// The object's name, or a description of several objects.
        object: &'static str,
        /// aya's message, with the verifier's log if there is one.
        message: String,
    },
    /// This build has no embedded object with this name.
    #[error("this build has no BPF object {name:?}")]
    NoObject {
        /// The name.
        name: &'static str,
    },
    /// A loaded object has no program with this name.
    #[error("program {name:?} not found in the data plane")]
    NoProgram {
        /// The name.
        name: String,
    },
    /// A program that user space runs did not accept its input.
    #[error(
        "program {program:?} in the data plane rejected a request; it does not match this version of Weir: restart \
         Weir, which loads its own programs"
    )]
    Rejected {
        /// The program.
        program: &'static str,
    },
    /// The properties of a map differ from those that this build expects.
    #[error("map {name} has {attribute} {found}, not {expected}")]
    MapMismatch {
        /// The map.
        name: String,
        /// The property: type, key size, value size, max_entries, flags or CPU count.
        attribute: &'static str,
        /// The value that this build expects.
        expected: u32,
        /// The value that the kernel reports.
        found: u32,
    },
    /// Another program or an incompatible version of Weir wrote the layout record.
    #[error(
        "{path} was not written by this version of Weir ({found}); `weir clean` removes the pinned objects",
        path = path.display()
    )]
    ForeignLayout {
        /// The record.
        path: PathBuf,
        /// Its contents.
        found: String,
    },
    /// The flow table has a layout that this release does not support.
    #[error(
        "{path} has flow layout {found}, but this version of Weir supports {oldest} to {newest}: use the version that \
         created it, or one in between; traffic is not affected",
        path = path.display()
    )]
    FlowLayout {
        /// The flow table's directory.
        path: PathBuf,
        /// Its layout.
        found: u32,
        /// The oldest supported layout.
        oldest: u32,
        /// The current layout.
        newest: u32,
    },
    /// Nothing is pinned in the directory.
    #[error("no data plane is pinned in {path}", path = path.display())]
    Absent {
        /// The pin directory.
        path: PathBuf,
    },
    /// A size is out of range, for example because a flow entry cannot refer to so many servers.
    #[error("{name} is {value}, but must be between {min} and {max}")]
    Size {
        /// Name of the size.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The minimum.
        min: u32,
        /// The maximum.
        max: u32,
    },
    /// The index is outside the map.
    #[error("index {index} is outside map {map}, which has {entries} entries")]
    Index {
        /// The map.
        map: &'static str,
        /// The index.
        index: u32,
        /// The number of entries.
        entries: u32,
    },
    /// Another program is attached to the device's XDP hook.
    #[error(
        "another XDP program is attached to device {ifindex}; detach it first (ip link set dev … xdp off)"
    )]
    Busy {
        /// The device.
        ifindex: u32,
    },
    /// The device supports neither native nor generic XDP.
    #[error(
        "device {ifindex} does not accept XDP programs: {native} (native), {generic} (generic)"
    )]
    NoXdp {
        /// The device.
        ifindex: u32,
        /// The error in native mode.
        native: io::Error,
        /// The error in generic mode.
        generic: io::Error,
    },
    /// The data plane was opened read-only.
    #[error("the data plane was opened read-only")]
    ReadOnly,
    /// Programs can be attached only after [`crate::Dataplane::activate`].
    #[error("the data plane is not active yet")]
    NotActive,
    /// An error from weir-sys.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
}

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the operation and its object to an `io::Error`.
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
