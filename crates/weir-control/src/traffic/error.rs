//! Errors of applying a configuration, and the check of capabilities.

use std::path::PathBuf;

use weir_sys::{Capabilities, Capability};

/// Capabilities for loading and attaching programs and for adding addresses.
const NEEDED: [Capability; 2] = [Capability::NetAdmin, Capability::Bpf];

/// Why a configuration or request cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the layer 4 engine.
    #[error(transparent)]
    Engine(#[from] weir_engine::Error),
    /// The privileged process of layer 4 failed.
    #[error(transparent)]
    Host(#[from] weir_engine_host::Failure),
    /// A daemon without rights cannot do this.
    #[error(
        "{reason}, which needs the rights of root in the daemon: restart Weir with this configuration"
    )]
    Separated {
        /// What the configuration has.
        reason: &'static str,
    },
    /// The privileged helper refuses.
    #[error("{0}")]
    Refused(std::io::Error),
    /// An error of the proxy.
    #[error(transparent)]
    Proxy(#[from] weir_proxy::Error),
    /// An error of the addresses of proxy services.
    #[error(transparent)]
    Vip(#[from] weir_engine::vip::Error),
    /// Capabilities cannot be read.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// Missing capabilities for layer 4 services.
    #[error("missing {}: run as root, or grant them (systemd: AmbientCapabilities=)", .names.join(", "))]
    Capabilities {
        /// The kernel's names.
        names: Vec<&'static str>,
    },
    /// A file of the runtime directory cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A server request was recorded, but not applied.
    #[error(
        "{cause}; the order is recorded anyway, and the next start of the daemon applies it: {back}"
    )]
    Halfway {
        /// Why it was not applied.
        cause: Box<Error>,
        /// Why the former override could not be recorded.
        back: Box<Error>,
    },
    /// The system has no random numbers.
    #[error("no key for sticky cookies can be generated: the system has no random numbers")]
    Random,
}

/// Checks the capabilities that layer 4 services need.
///
/// # Errors
/// Capabilities are missing.
pub fn check_rights() -> Result<(), Error> {
    let missing = Capabilities::effective()?.missing(&NEEDED);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.into_iter().map(Capability::name).collect();
    Err(Error::Capabilities { names })
}
