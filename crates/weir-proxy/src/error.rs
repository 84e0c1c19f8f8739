//! Defines the errors that can occur while the proxy is prepared or started.

use std::net::SocketAddr;

use rustix::io::Errno;

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// Returns advice for the operator if an address cannot be bound.
pub(crate) fn listen_advice(address: SocketAddr, error: Errno) -> String {
    if matches!(error, Errno::ACCESS | Errno::PERM) {
        return "run as root, or grant CAP_NET_BIND_SERVICE".to_owned();
    }
    let port = address.port();
    format!("`ss -ltnp 'sport = :{port}'` shows which program is listening on this port")
}

/// Why the proxy cannot be prepared or started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A listener cannot be opened.
    #[error(
        "service {service}: cannot listen on {address}: {source}: {advice}",
        advice = listen_advice(*address, *source)
    )]
    Listen {
        /// Service name.
        service: String,
        /// The listen address.
        address: SocketAddr,
        /// The kernel's error.
        source: Errno,
    },
    /// A TLS file cannot be used.
    #[error("{owner}: {source}")]
    Tls {
        /// The service or pool, for example `pool web`.
        owner: String,
        /// The file, and why it cannot be used.
        source: crate::tls::CertificateError,
    },
    /// An error page cannot be used.
    #[error("service {service}: {file}: {source}")]
    Page {
        /// Service name.
        service: String,
        /// File path.
        file: String,
        /// The kernel's error, or why the content is invalid.
        source: std::io::Error,
    },
    /// The directory that contains a route's files cannot be opened.
    #[error(
        "service {service}: cannot open {directory}: {source}; an unprivileged daemon can open only directories that \
         were configured when it started"
    )]
    Directory {
        /// Service name.
        service: String,
        /// Directory path.
        directory: String,
        /// The kernel's error.
        source: Errno,
    },
    /// A thread of the proxy cannot be started.
    #[error("failed to start a worker thread: {source}")]
    Worker {
        /// The kernel's error.
        source: std::io::Error,
    },
    /// No proxy service uses the server.
    #[error("no proxy service uses server {pool}/{server}")]
    NoServer {
        /// Pool name.
        pool: String,
        /// The server's address as in the configuration file.
        server: String,
    },
}
