//! Builds the TLS server configuration for clients: certificates by SNI, versions, ALPN, client certificates, tickets.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, VerifierBuilderError,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use weir_model::{ClientAuth, ServiceTls};

use super::certificate::{self, Certificate, CertificateError};
use super::expiry::{CertificateExpiry, first_to_expire};
use super::{suite, versions};
use crate::misdirect::Names;

/// A resolver that selects a certificate by the client's SNI.
#[derive(Debug)]
struct Resolver {
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// Certificates with wildcard names, by the name without the star: `.example` for `*.example`.
    wildcard_suffixes: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// The default: the first certificate, and those for the same host with other key types. `None` = a client must
    /// send a known name.
    default: Option<Vec<Arc<CertifiedKey>>>,
}

impl Resolver {
    fn new(certificates: &[Certificate], strict: bool) -> Self {
        let mut resolver = Self {
            exact: HashMap::new(),
            wildcard_suffixes: HashMap::new(),
            default: None,
        };
        for certificate in certificates {
            for name in &certificate.info.names {
                let (map, name) = match name.strip_prefix('*') {
                    Some(rest) => (&mut resolver.wildcard_suffixes, rest),
                    None => (&mut resolver.exact, name.as_str()),
                };
                let keys = map.entry(name.to_owned()).or_default();
                keys.push(Arc::clone(&certificate.key));
            }
        }
        if !strict && let Some(first) = certificates.first() {
            // Includes certificates for the same host with other key types.
            let name = first.info.names.first();
            let keys = name.and_then(|name| resolver.find(name)).cloned();
            resolver.default = Some(keys.unwrap_or_else(|| vec![Arc::clone(&first.key)]));
        }
        resolver
    }

    fn find(&self, name: &str) -> Option<&Vec<Arc<CertifiedKey>>> {
        let name = name.strip_suffix('.').unwrap_or(name);
        self.exact.get(name).or_else(|| {
            let dot = name.find('.')?;
            self.wildcard_suffixes.get(&name[dot..])
        })
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let by_name = name.as_deref().and_then(|name| self.find(name));
        let keys = by_name.or(self.default.as_ref())?;
        let is_supported = |key: &&Arc<CertifiedKey>| {
            let schemes = hello.signature_schemes();
            key.key.choose_scheme(schemes).is_some()
        };
        keys.iter().find(is_supported).or(keys.first()).cloned()
    }
}

/// A ticketer that issues no tickets, for a listener with few clients. Sessions are resumed only from this process's
/// cache.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Builds the TLS configuration for a listener outside any service, from the same configuration keys. Also returns its
/// certificates, in order of expiry.
///
/// # Errors
/// Fails if a certificate, a CA file or a revocation list cannot be used.
pub fn listener_tls(
    tls: &ServiceTls,
    protocols: &[&[u8]],
) -> Result<(Arc<ServerConfig>, Vec<CertificateExpiry>), CertificateError> {
    let secured = server_config(tls, protocols, Arc::new(NoTickets))?;
    Ok((secured.config, secured.expiries))
}

/// A service's TLS configuration, with data about its certificates.
pub(crate) struct ServiceTlsConfig {
    pub(crate) config: Arc<ServerConfig>,
    /// The names in the certificates.
    pub(crate) names: Names,
    pub(crate) expiries: Vec<CertificateExpiry>,
}

/// Builds the configuration for a service's `tls`. `protocols` are the ALPN protocols. All workers share `tickets` with
/// each other and with later configurations that use the same client authentication.
///
/// # Errors
/// Fails if a certificate, a CA file or a revocation list cannot be used.
pub(crate) fn server_config(
    tls: &ServiceTls,
    protocols: &[&[u8]],
    tickets: Arc<dyn ProducesTickets>,
) -> Result<ServiceTlsConfig, CertificateError> {
    let provider = Arc::new(suite::provider(&tls.ciphers, &tls.groups));
    let certificates: Result<Vec<Certificate>, _> =
        certificate::load_all(&tls.certificates, &provider)?
            .into_iter()
            .collect();
    let certificates = certificates?;
    for (path, fault) in certificates
        .iter()
        .filter_map(|certificate| certificate.rejected_ocsp.as_ref())
    {
        tracing::warn!(path = %path.display(), %fault, "the OCSP response is not stapled");
    }
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions(tls.minimum))
        .map_err(|source| rejected_error(&tls.certificates_text(), source))?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = client_verifier(tls, path, provider)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let resolver = Resolver::new(&certificates, tls.strict_sni);
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    if tls.client_crl.is_some() {
        // A resumed session is not verified again, so a client could still connect after its certificate was revoked.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    } else {
        config.ticketer = tickets;
    }
    let names = certificates
        .iter()
        .flat_map(|certificate| &certificate.info.names);
    Ok(ServiceTlsConfig {
        config: Arc::new(config),
        names: Names::new(names.map(String::as_str)),
        expiries: first_to_expire(&certificates),
    })
}

fn rejected_error(path: &str, source: rustls::Error) -> CertificateError {
    CertificateError::Rejected {
        path: path.into(),
        source,
    }
}

/// Returns a verifier that checks client certificates against the CAs in the file `path` and the revocation lists.
pub(super) fn client_verifier(
    tls: &ServiceTls,
    path: &str,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let roots = Arc::new(certificate::read_authorities(Path::new(path))?);
    let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
    if let Some(lists) = &tls.client_crl {
        let lists = certificate::read_revocation_lists(Path::new(lists))?;
        verifier = verifier.with_crls(lists).enforce_revocation_expiration();
    }
    let verifier = match tls.client_auth {
        ClientAuth::Required => verifier,
        ClientAuth::Optional => verifier.allow_unauthenticated(),
    };
    verifier.build().map_err(|error| match error {
        VerifierBuilderError::NoRootAnchors => {
            CertificateError::NoCertificate { path: path.into() }
        }
        VerifierBuilderError::InvalidCrl(fault) => rejected_error(
            tls.client_crl.as_deref().unwrap_or_default(),
            rustls::Error::InvalidCertRevocationList(fault),
        ),
        other => rejected_error(path, rustls::Error::General(other.to_string())),
    })
}
