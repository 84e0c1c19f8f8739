//! `[node] admin`: the HTTP API over TCP.

use std::fmt;
use std::net::SocketAddr;

use crate::{ServiceTls, Source};

/// Where the API listens, and whom it serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Admin {
    /// Its address.
    pub listen: SocketAddr,
    /// Certificates; never `None` beyond loopback.
    pub tls: Option<ServiceTls>,
    /// File of tokens; `None` = the one of the runtime directory is the only one.
    pub tokens: Option<String>,
    /// Whether reading takes a token, too.
    pub read_requires_token: bool,
    /// What `Host` may be besides the address itself: `NAME` with any port, or `NAME:PORT`.
    pub hosts: Vec<String>,
    /// Where it is written.
    pub source: Source,
}

impl Admin {
    /// With the defaults that belong to an address.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            tls: None,
            tokens: None,
            read_requires_token: !Self::is_loopback(listen),
            hosts: Vec::new(),
            source: Source::default(),
        }
    }

    /// Whether only this machine can connect to an address.
    pub const fn is_loopback(address: SocketAddr) -> bool {
        address.ip().to_canonical().is_loopback()
    }
}

/// In one line, for the list of changes.
impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.listen)?;
        if let Some(tls) = &self.tls {
            write!(
                f,
                " with TLS {} from {}",
                tls.minimum.as_str(),
                tls.certificates
            )?;
            if let Some(ca) = &tls.client_ca {
                write!(f, ", clients by {ca} {}", tls.client_auth.as_str())?;
            }
        }
        if let Some(tokens) = &self.tokens {
            write!(f, ", tokens of {tokens}")?;
        }
        if self.read_requires_token {
            f.write_str(", a token to read")?;
        }
        if !self.hosts.is_empty() {
            write!(f, ", hosts {}", self.hosts.join(" "))?;
        }
        Ok(())
    }
}
