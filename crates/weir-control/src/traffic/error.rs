//! Defines the errors from applying a configuration or an override, and checks capabilities.

use std::path::PathBuf;

use weir_sys::{Capabilities, Capability};

/// The capabilities needed to load and attach programs and to add addresses.
const REQUIRED: [Capability; 2] = [Capability::NetAdmin, Capability::Bpf];

/// Why a configuration or request cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error from the layer 4 engine.
    #[error(transparent)]
    Engine(#[from] weir_engine::Error),
    /// An error from the privileged process that owns the layer 4 engine.
    #[error(transparent)]
    Host(#[from] weir_engine_host::Failure),
    /// An unprivileged daemon cannot perform this operation.
    #[error("{reason}: the daemon must run as root for this; restart Weir with this configuration")]
    NeedsRoot {
        /// Why the daemon must run as root.
        reason: &'static str,
    },
    /// The privileged helper rejected the request.
    #[error("{0}")]
    Refused(std::io::Error),
    /// An error from the proxy.
    #[error(transparent)]
    Proxy(#[from] weir_proxy::Error),
    /// Adding the addresses of proxy services failed.
    #[error(transparent)]
    Vip(#[from] weir_engine::vip::Error),
    /// The process's capabilities cannot be read.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// Capabilities for layer 4 services are missing.
    #[error("missing capabilities {}: run as root, or grant them (systemd: AmbientCapabilities=)", .names.join(", "))]
    Capabilities {
        /// The names of the capabilities, as in capabilities(7).
        names: Vec<&'static str>,
    },
    /// A file in the runtime directory, or the in-memory copy of the configuration, cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// An override was recorded but could not be applied, and the record could not be reverted.
    #[error(
        "{cause}; the change is recorded and could not be undone ({rollback}): the daemon will apply it when \
         it next starts"
    )]
    RollbackFailed {
        /// Why the override was not applied.
        cause: Box<Error>,
        /// Why the previous override could not be recorded again.
        rollback: Box<Error>,
    },
    /// The system's random number generator failed.
    #[error(
        "failed to generate a key for sticky cookies: the system's random number generator failed"
    )]
    Random,
}

/// Checks that this process has the capabilities that layer 4 services need.
///
/// # Errors
/// Fails if capabilities are missing or cannot be read.
pub fn check_capabilities() -> Result<(), Error> {
    let missing = Capabilities::effective()?.missing(&REQUIRED);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.into_iter().map(Capability::name).collect();
    Err(Error::Capabilities { names })
}
