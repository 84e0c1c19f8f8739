//! Defines the TLS settings of proxy services for clients and for servers.

use crate::{CipherSuite, Secret, Source, TlsGroup};

named_enum! {
    /// A TLS version; older versions are not supported.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub enum TlsVersion {
        /// 1.2 (RFC 5246).
        #[default]
        V12 = "1.2",
        /// 1.3 (RFC 8446).
        V13 = "1.3",
    }
}

named_enum! {
    /// Whether clients must present a certificate, if client certificates are enabled.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub enum ClientAuth {
        /// A valid certificate is required.
        #[default]
        Required = "required",
        /// A certificate is optional; an invalid one is rejected.
        Optional = "optional",
    }
}

named_enum! {
    /// Which requests are rejected because their host differs from the connection's SNI.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub enum SniHost {
        /// Rejects, with 421, hosts assigned to another service that requires client certificates from a different CA.
        #[default]
        ClientAuth = "client_auth",
        /// Rejects every host that differs from the SNI.
        Same = "same",
        /// Rejects no requests.
        Ignore = "ignore",
    }
}

/// A proxy service's `tls` setting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceTls {
    /// Paths of certificate files, and of directories that contain them; at least one.
    pub certificates: Vec<String>,
    /// Whether clients without SNI, or with a name that matches no certificate, are rejected.
    pub strict_sni: bool,
    /// Minimum TLS version.
    pub minimum: TlsVersion,
    /// Cipher suites that clients may use. If no suite of a TLS version is listed, clients may use all of its suites.
    pub ciphers: Vec<CipherSuite>,
    /// Key exchange groups, in order of preference; empty = the default groups.
    pub groups: Vec<TlsGroup>,
    /// PEM file with the CA certificates that verify clients; `None` = no client certificates.
    pub client_ca: Option<String>,
    /// PEM file with the revocation lists of the CAs in `client_ca`; `None` = revocation is not checked.
    pub client_crl: Option<String>,
    /// Whether client certificates are required; ignored without `client_ca`.
    pub client_auth: ClientAuth,
    /// Session ticket keys. The first key encrypts; all keys decrypt. Empty = Weir generates and rotates the keys.
    pub ticket_keys: Vec<Secret>,
    /// How requests whose host differs from the SNI are treated.
    pub sni_host: SniHost,
    /// Position in the configuration.
    pub source: Source,
}

impl ServiceTls {
    /// Returns the paths of the certificates, for a message.
    pub fn certificates_text(&self) -> String {
        self.certificates.join(" ")
    }

    /// Minimum size of a ticket key, in bytes.
    pub const MIN_TICKET_KEY_BYTES: usize = 32;
}

/// A pool's `tls` setting: TLS to the servers, in proxy services.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerTls {
    /// Whether to verify the server's certificate: trusted CA and matching name.
    pub verify: bool,
    /// PEM file with CA certificates; `None` = the system's CA certificates.
    pub ca: Option<String>,
    /// Name to send as SNI and to verify; `None` = the server's address.
    pub server_name: Option<String>,
    /// PEM file with the client certificate chain and key.
    pub certificate: Option<String>,
    /// Minimum TLS version.
    pub minimum: TlsVersion,
    /// Position in the configuration.
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
