//! Defines the settings of `[node] admin`, the HTTP API over TCP.

use std::fmt;
use std::net::SocketAddr;

use crate::{ServiceTls, Source};

/// Listen address and access control of the API.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Admin {
    /// Listen address.
    pub listen: SocketAddr,
    /// Certificates; `None` = no TLS, which is allowed only on loopback.
    pub tls: Option<ServiceTls>,
    /// Token file; `None` = only the token in the runtime directory is valid.
    pub tokens: Option<String>,
    /// Whether read access also requires a token.
    pub read_requires_token: bool,
    /// Allowed `Host` values in addition to the listen address: `NAME` with any port, or `NAME:PORT`.
    pub hosts: Vec<String>,
    /// Position in the configuration.
    pub source: Source,
}

impl Admin {
    /// Creates the default settings for a listen address.
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

    /// Returns whether an address can be reached only from this machine.
    pub const fn is_loopback(address: SocketAddr) -> bool {
        address.ip().to_canonical().is_loopback()
    }
}

/// Formats the settings in one line, for the list of changes.
impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.listen)?;
        if let Some(tls) = &self.tls {
            write!(
                f,
                " with TLS {} from {}",
                tls.minimum.as_str(),
                tls.certificates_text()
            )?;
            if let Some(ca) = &tls.client_ca {
                write!(
                    f,
                    ", {} client certificates, verified with {ca}",
                    tls.client_auth.as_str()
                )?;
            }
        }
        if let Some(tokens) = &self.tokens {
            write!(f, ", tokens from {tokens}")?;
        }
        if self.read_requires_token {
            f.write_str(", token required to read")?;
        }
        if !self.hosts.is_empty() {
            write!(f, ", hosts {}", self.hosts.join(" "))?;
        }
        Ok(())
    }
}
