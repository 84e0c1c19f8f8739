//! Defines the errors of the daemon.

use std::io;
use std::net::SocketAddr;

use crate::configuration::Rejected;

/// Why the daemon cannot start or must stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has an error. Contains the rendered diagnostics.
    #[error(transparent)]
    Configuration(#[from] Rejected),
    /// Capabilities for layer 4 services are missing.
    #[error(transparent)]
    Capabilities(#[from] crate::traffic::Error),
    /// The runtime directory cannot be used.
    #[error(transparent)]
    RuntimeDir(#[from] crate::runtime_dir::Error),
    /// The socket's owner, group or mode cannot be set.
    #[error(transparent)]
    Access(#[from] weir_runtime_dir::RuntimeDirError),
    /// Listening on `[node] admin` failed.
    #[error("[node] admin {address}: failed to listen: {source}")]
    Admin {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// `tls` in `[node] admin` cannot be used.
    #[error("[node] admin: {source}")]
    AdminTls {
        /// The error in the certificate.
        source: weir_proxy::CertificateError,
    },
    /// `tokens` in `[node] admin` cannot be used.
    #[error("[node] admin: {source}")]
    AdminTokens {
        /// The error in the file.
        source: crate::api::TokenFileError,
    },
    /// Signal handlers cannot be installed.
    #[error("failed to set up signal handling: {source}")]
    Signals {
        /// The kernel's error.
        source: io::Error,
    },
    /// A system call failed, or a message to the service manager could not be sent.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The watch for links, addresses and routes cannot be opened.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// The layer 4 engine cannot be opened.
    #[error("{source}")]
    Engine {
        /// The engine's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
