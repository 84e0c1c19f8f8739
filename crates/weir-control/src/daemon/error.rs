//! Errors of the daemon.

use std::io;
use std::net::SocketAddr;

use crate::configuration::Rejected;

/// Why the daemon cannot start or has to end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has an error; contains the rendered findings.
    #[error(transparent)]
    Configuration(#[from] Rejected),
    /// Missing capabilities for layer 4 services.
    #[error(transparent)]
    Rights(#[from] crate::traffic::Error),
    /// The runtime directory cannot be used.
    #[error(transparent)]
    RuntimeDir(#[from] crate::runtime_dir::Error),
    /// Owner, group or mode of the socket cannot be set.
    #[error(transparent)]
    Access(#[from] weir_runtime_dir::Unusable),
    /// Listening on `[node] admin` failed.
    #[error("[node] admin {address}: {source}")]
    Admin {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// `tls` of `[node] admin` cannot be used.
    #[error("[node] admin: {source}")]
    AdminTls {
        /// The error in the certificate.
        source: weir_proxy::CertificateError,
    },
    /// `tokens` of `[node] admin` cannot be used.
    #[error("[node] admin: {source}")]
    AdminTokens {
        /// The error in the file.
        source: crate::api::TokenFileError,
    },
    /// Signals cannot be received.
    #[error("signals: {source}")]
    Signals {
        /// The kernel's error.
        source: io::Error,
    },
    /// An error of capabilities, locks or the service manager.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The watch of links, addresses and routes failed.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// An error of the engine.
    #[error("{source}")]
    Engine {
        /// The engine's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
