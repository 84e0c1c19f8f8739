//! Errors of `weir protect`.

use std::io;

use rustix::process::Signal;

/// Why nothing was protected; the command did not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel rejects the programs, mostly for missing rights.
    #[error(transparent)]
    Dataplane(#[from] weir_dataplane::Error),
    /// Devices, addresses or sockets cannot be read.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// The lock cannot be taken.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The runtime directory cannot be used.
    #[error(transparent)]
    RuntimeDir(#[from] weir_runtime_dir::Unusable),
    /// A socket, a signal or a file of the runtime directory.
    #[error("{what}: {source}")]
    Io {
        /// The object.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A signal ended the protection before its command ran.
    #[error("ended by signal {} before the command ran", .signal.as_raw())]
    Interrupted {
        /// The signal.
        signal: Signal,
    },
    /// The command cannot be started.
    #[error("{command}: {source}")]
    Command {
        /// The program.
        command: String,
        /// The kernel's error.
        source: io::Error,
    },
}

pub(crate) fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}
