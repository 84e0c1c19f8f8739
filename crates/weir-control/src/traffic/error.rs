//! Why a configuration cannot be had, and the rights that it takes.

use std::path::PathBuf;

use weir_sys::{Capabilities, Capability};

use crate::engine;

/// What loading, attaching and addressing cannot do without.
const NEEDED: [Capability; 2] = [Capability::NetAdmin, Capability::Bpf];

/// Why a configuration cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The layer 4 part.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The proxy part.
    #[error(transparent)]
    Proxy(#[from] weir_proxy::Error),
    /// Addresses of proxy services.
    #[error(transparent)]
    Vip(#[from] crate::vip::Error),
    /// Rights.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// Rights that layer 4 services could not do without.
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
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// An order failed halfway.
    #[error(
        "{cause}; the order is recorded all the same, and the next start of the daemon applies it: {back}"
    )]
    Halfway {
        /// The plane's failure.
        cause: Box<Error>,
        /// Why the former override could not be recorded.
        back: Box<Error>,
    },
    /// The system has no random numbers.
    #[error("no key for sticky cookies can be generated: the system has no random numbers")]
    Random,
}

/// Whether the process may do what layer 4 services need.
///
/// # Errors
/// It may not.
pub fn check_rights() -> Result<(), Error> {
    let missing = Capabilities::effective()?.missing(&NEEDED);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.into_iter().map(Capability::name).collect();
    Err(Error::Capabilities { names })
}
