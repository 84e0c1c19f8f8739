//! TLS of a proxy service, towards its clients and towards servers.

use crate::{Secret, Source};

/// A version of TLS; older ones than these are never spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TlsVersion {
    /// 1.2 (RFC 5246).
    #[default]
    V12,
    /// 1.3 (RFC 8446).
    V13,
}

impl TlsVersion {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::V12, Self::V13];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V12 => "1.2",
            Self::V13 => "1.3",
        }
    }
}

/// Whether a client must have a certificate, where certificates are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ClientAuth {
    /// Without a good one there is no connection.
    #[default]
    Required,
    /// Without one there is; with a bad one there is not.
    Optional,
}

impl ClientAuth {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Required, Self::Optional];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
        }
    }
}

/// How the host of a request must agree with the name in its connection's handshake (SNI).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum SniHost {
    /// A host of another service that asks for other client certificates is answered with 421.
    #[default]
    ClientAuth,
    /// Every other host is.
    Same,
    /// None is.
    Ignore,
}

impl SniHost {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::ClientAuth, Self::Same, Self::Ignore];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientAuth => "client_auth",
            Self::Same => "same",
            Self::Ignore => "ignore",
        }
    }
}

/// `tls` of a proxy service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceTls {
    /// A directory of certificates, or one file.
    pub certificates: String,
    /// A client that names no host, or one without a certificate, is refused.
    pub strict_sni: bool,
    /// The oldest version.
    pub minimum: TlsVersion,
    /// A file of authorities whose certificates clients may have; `None` = clients are not asked.
    pub client_ca: Option<String>,
    /// Whether they must; nothing without `client_ca`.
    pub client_auth: ClientAuth,
    /// What tickets are sealed with, the first one, and opened with; empty = keys of Weir's own, which change by themselves.
    pub ticket_keys: Vec<Secret>,
    /// What becomes of a request for a host that is not the one in the handshake.
    pub sni_host: SniHost,
    /// Where its table begins.
    pub source: Source,
}

impl ServiceTls {
    /// The least that a ticket key holds, in bytes.
    pub const TICKET_KEY_MIN: usize = 32;
}

/// `tls` of a pool: how a proxy service connects to its servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerTls {
    /// Whether a server must have a certificate for its name from a known authority.
    pub verify: bool,
    /// A file of authorities; `None` = those that the system knows.
    pub ca: Option<String>,
    /// The name that is asked for and verified; `None` = the server's address.
    pub server_name: Option<String>,
    /// A file with chain and key for servers that ask for a certificate.
    pub certificate: Option<String>,
    /// The oldest version.
    pub minimum: TlsVersion,
    /// Where it is written.
    pub source: Source,
}

impl Default for ServerTls {
    fn default() -> Self {
        Self {
            verify: true,
            ca: None,
            server_name: None,
            certificate: None,
            minimum: TlsVersion::default(),
            source: Source::default(),
        }
    }
}
