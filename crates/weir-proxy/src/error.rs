//! Errors of preparing and starting the proxy.

use std::net::SocketAddr;

use rustix::io::Errno;

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// What to do about an address that cannot be used.
pub(crate) fn listen_advice(address: SocketAddr, error: Errno) -> String {
    if matches!(error, Errno::ACCESS | Errno::PERM) {
        return "run as root, or grant CAP_NET_BIND_SERVICE".to_owned();
    }
    let port = address.port();
    format!("`ss -ltnp 'sport = :{port}'` shows which program listens there")
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
        /// Which service.
        service: String,
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: Errno,
    },
    /// A TLS file cannot be used.
    #[error("{owner}: {source}")]
    Tls {
        /// Which service or pool.
        owner: String,
        /// Which file, and why.
        source: crate::tls::CertificateError,
    },
    /// An error page cannot be read.
    #[error("service {service}: {file}: {source}")]
    Page {
        /// Which service.
        service: String,
        /// Which file.
        file: String,
        /// The kernel's error, or why the content is invalid.
        source: std::io::Error,
    },
    /// The directory of a route's files cannot be opened.
    #[error(
        "service {service}: {directory}: {source}; a daemon without rights opens only directories that were configured \
         when it started"
    )]
    Directory {
        /// Which service.
        service: String,
        /// Which directory.
        directory: String,
        /// The kernel's error.
        source: Errno,
    },
    /// A worker cannot be started.
    #[error("a worker thread cannot be started: {source}")]
    Worker {
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The server does not exist.
    #[error("there is no server {pool}/{server} in a proxy service")]
    NoServer {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
    },
}
