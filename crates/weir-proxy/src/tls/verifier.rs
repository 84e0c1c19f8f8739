//! Verifies server certificates, for proxied servers and for health checks.
//!
//! A certificate is accepted if it chains to a CA, or if it is identical to one of the certificates in `ca`. OpenSSL,
//! and therefore HAProxy and nginx, treat a self-signed certificate in `ca-file` the same way: it is its own CA,
//! regardless of its basic constraints. As in OpenSSL, validity, extended key usage and name are still checked, and a
//! certificate without DNS names is valid for its common name (X509_check_host(3)). The handshake signature is always
//! verified.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use super::certificate::{self, CertificateError};
use super::x509;

/// Debian's file of well-known CAs.
pub(super) const SYSTEM_CA_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";

#[derive(Debug)]
struct Verifier {
    /// Verifies certificate chains; `None` = the file contains no CA.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that are accepted without a chain.
    pinned: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Returns a verifier that checks server certificates against the certificates in the file `ca` or the system's CAs.
///
/// # Errors
/// Fails if the file cannot be read, or contains no usable certificate.
pub fn server_verifier(ca: Option<&str>) -> Result<Arc<dyn ServerCertVerifier>, CertificateError> {
    let path = Path::new(ca.unwrap_or(SYSTEM_CA_FILE));
    let certificates = certificate::read_chain(path)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    let authorities = certificates
        .iter()
        .filter(|certificate| may_issue(certificate));
    let (ca_count, _) = roots.add_parsable_certificates(authorities.cloned());
    let pinned = if ca.is_some() {
        certificates
    } else {
        Vec::new()
    };
    if ca_count == 0 && pinned.is_empty() {
        return Err(CertificateError::NoCertificate { path: path.into() });
    }
    let algorithms = provider.signature_verification_algorithms;
    let chain = if ca_count == 0 {
        None
    } else {
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = builder.build().map_err(|error| CertificateError::Rejected {
            path: path.into(),
            source: Error::General(error.to_string()),
        });
        Some(verifier?)
    };
    Ok(Arc::new(Verifier {
        chain,
        pinned,
        algorithms,
    }))
}

/// Returns whether a certificate in `ca` may be a CA. An end-entity certificate, or one whose constraints cannot be
/// read, is accepted only as the server's own certificate.
fn may_issue(certificate: &[u8]) -> bool {
    x509::read(certificate).is_some_and(|info| !info.is_end_entity)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        staple: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain_result = match &self.chain {
            Some(chain) => chain.verify_server_cert(end, intermediates, name, staple, now),
            None => Err(rustls::CertificateError::UnknownIssuer.into()),
        };
        match chain_result {
            Err(_) if self.pinned.iter().any(|pinned| pinned == end) => {
                verify_pinned(end, name, now)
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifies a pinned certificate, whose chain is not checked.
fn verify_pinned(
    end: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    use rustls::CertificateError::{BadEncoding, Expired, InvalidPurpose, NotValidYet};
    // This rejects certificates that webpki cannot parse, such as version 1 certificates and certificates with unknown
    // critical extensions.
    let parsed = ParsedCertificate::try_from(end)?;
    let info = x509::read(end).ok_or(BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < info.not_before {
        return Err(NotValidYet.into());
    }
    if now > info.not_after {
        return Err(Expired.into());
    }
    if !info.is_for_servers {
        return Err(InvalidPurpose.into());
    }
    let name_result = verify_server_name(&parsed, name);
    let has_common_name = match name {
        ServerName::DnsName(host) => info.names.contains(&host.as_ref().to_ascii_lowercase()),
        _ => false,
    };
    match name_result {
        Err(error) if !has_common_name => Err(error),
        _ => Ok(ServerCertVerified::assertion()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readable_ca_certificates_may_issue() {
        let end_entity = include_bytes!("../../testdata/x509/end_entity.der");
        let mut authority = include_bytes!("../../testdata/x509/authority.der").to_vec();
        assert!(may_issue(&authority));
        assert!(!may_issue(end_entity));
        let not_before = authority.windows(2).position(|window| window == [0x17, 13]);
        authority[not_before.expect("find UTCTime") + 2] = b'x';
        assert!(!may_issue(&authority));
    }
}
