//! Why the daemon could not start or go on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::configuration::Rejected;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration holds an error; the rendered findings are inside.
    #[error(transparent)]
    Configuration(#[from] Rejected),
    /// Rights that layer 4 services could not do without.
    #[error(transparent)]
    Rights(#[from] crate::traffic::Error),
    /// Another daemon uses the same runtime directory.
    #[error("a daemon is running already{}; another one needs its own --runtime-dir and --pin-dir", .holder.map_or_else(String::new, |pid| format!(" (pid {pid})")))]
    Running {
        /// Its process, where known.
        holder: Option<u32>,
    },
    /// The runtime directory cannot be used.
    #[error(transparent)]
    RuntimeDir(#[from] weir_runtime_dir::Unusable),
    /// A directory or socket.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// `[node] admin` cannot be listened on.
    #[error("[node] admin {address}: {source}")]
    Admin {
        /// The address.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// `tls` of `[node] admin` cannot be had.
    #[error("[node] admin: {source}")]
    AdminTls {
        /// The certificate's fault.
        source: weir_proxy::CertificateError,
    },
    /// `tokens` of `[node] admin` cannot be used.
    #[error("[node] admin: {source}")]
    AdminTokens {
        /// The file's fault.
        source: crate::api::TokenFileError,
    },
    /// Signals cannot be received.
    #[error("signals: {source}")]
    Signals {
        /// The kernel's answer.
        source: io::Error,
    },
    /// Capabilities, locks, the service manager.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The watch over links, addresses and routes.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// The engine, whichever it is.
    #[error("{source}")]
    Engine {
        /// Its own words.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
