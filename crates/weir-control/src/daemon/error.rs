//! Errors of the daemon.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::configuration::Rejected;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has an error; contains the rendered findings.
    #[error(transparent)]
    Configuration(#[from] Rejected),
    /// Missing capabilities for layer 4 services.
    #[error(transparent)]
    Rights(#[from] crate::traffic::Error),
    /// Another daemon uses the same runtime directory.
    #[error(
        "a daemon is running already{}; another one needs its own --runtime-dir and --pin-dir",
        .holder.map_or_else(String::new, |pid| format!(" (pid {pid})"))
    )]
    Running {
        /// Its process, where known.
        holder: Option<u32>,
    },
    /// The runtime directory cannot be used.
    #[error(transparent)]
    RuntimeDir(#[from] weir_runtime_dir::Unusable),
    /// A directory or socket cannot be used.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// `[node] admin` cannot be listened on.
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
