//! Defines the errors of `weir protect`.

use std::io;

use rustix::process::Signal;

/// An error of `weir protect`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A BPF operation failed, usually because a capability is missing.
    #[error(transparent)]
    Dataplane(#[from] weir_dataplane::Error),
    /// Devices, addresses or sockets cannot be read.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// The lock cannot be taken, or the sysctl cannot be read.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The runtime directory cannot be used.
    #[error(transparent)]
    RuntimeDir(#[from] weir_runtime_dir::RuntimeDirError),
    /// An error from a socket, a signal handler, a child process or a file.
    #[error("{context}: {source}")]
    Io {
        /// The failed operation, or the file.
        context: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A signal terminated the process before the command was started.
    #[error("terminated by signal {} before the command was started", .signal.as_raw())]
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

pub(crate) fn io_error(context: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let context = context.into();
    move |source| Error::Io { context, source }
}
