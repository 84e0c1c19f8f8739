//! Why the proxy cannot do what a configuration asks for.

use std::net::SocketAddr;

use rustix::io::Errno;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A listener cannot be had.
    #[error("service {service}: cannot listen on {address}: {source}")]
    Listen {
        /// Which service.
        service: String,
        /// Where.
        address: SocketAddr,
        /// The kernel's answer.
        source: Errno,
    },
    /// TLS cannot be had as it is written.
    #[error("{owner}: {source}")]
    Tls {
        /// Which service or pool.
        owner: String,
        /// Which file, and why.
        source: crate::tls::CertificateError,
    },
    /// A page cannot be had.
    #[error("service {service}: {file}: {source}")]
    Page {
        /// Which service.
        service: String,
        /// Which file.
        file: String,
        /// The kernel's answer, or why it is none.
        source: std::io::Error,
    },
    /// A worker cannot be started.
    #[error("a worker thread cannot be started: {source}")]
    Worker {
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// No such server.
    #[error("there is no server {pool}/{server} in a proxy service")]
    NoServer {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
    },
}
