//! Builds the TLS configuration for the proxy's connections to servers. Health checks have their own.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, SignatureScheme};
use weir_model::ServerTls;

use super::NoCertificateVerification;
use super::certificate::{self, CertificateError};
use super::verifier::{SYSTEM_CA_FILE, server_verifier};
use super::versions;

/// The TLS configuration for a pool's servers.
#[derive(Debug, Clone)]
pub(crate) struct TlsConnector {
    pub(crate) config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl TlsConnector {
    /// Returns the name for which the certificate of a server at `address` is verified.
    pub(crate) fn name(&self, address: IpAddr) -> ServerName<'static> {
        let by_address = || ServerName::IpAddress(address.into());
        self.name.clone().unwrap_or_else(by_address)
    }

    /// Builds the configuration for a pool's `tls`; `protocols` are the ALPN protocols.
    ///
    /// # Errors
    /// Fails if a file or the configured server name cannot be used.
    pub(crate) fn new(tls: &ServerTls, protocols: &[&[u8]]) -> Result<Self, CertificateError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let refused = |source| CertificateError::Rejected {
            path: tls.certificate.as_deref().unwrap_or(SYSTEM_CA_FILE).into(),
            source,
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions(tls.minimum))
            .map_err(refused)?;
        let builder = if tls.verify {
            let verifier = server_verifier(tls.ca.as_deref())?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        } else {
            let no_verification = NoCertificateVerification::new(&provider);
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(no_verification))
        };
        let mut config = match &tls.certificate {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let certificate = certificate::load_one(Path::new(path), &provider)?;
                let resolver = ClientCertificate(certificate.key);
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let name = tls.server_name.clone().map(ServerName::try_from);
        let name = name.transpose().map_err(|error| {
            let source = rustls::Error::General(error.to_string());
            refused(source)
        })?;
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }
}

/// The client certificate that Weir presents to servers.
#[derive(Debug)]
struct ClientCertificate(Arc<rustls::sign::CertifiedKey>);

impl rustls::client::ResolvesClientCert for ClientCertificate {
    fn resolve(
        &self,
        _: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        let is_supported = self.0.key.choose_scheme(schemes).is_some();
        is_supported.then(|| Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
