//! Describes TLS errors in plain language. Most messages of rustls contain type names.
//!
//! Logs, check results and problems with files use the same texts.

use std::fmt::Debug;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, InconsistentKeys, PeerIncompatible};

/// The origin of the certificate or message that caused an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// A server that Weir connects to.
    Server,
    /// A client that connects to Weir.
    Client,
    /// A file on this machine.
    File,
}

impl ErrorOrigin {
    /// Returns the grammatical subject for a certificate error.
    const fn certificate(self) -> &'static str {
        match self {
            Self::Server => "the server's certificate",
            Self::Client => "the client's certificate",
            Self::File => "the certificate",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Server => "the server",
            Self::Client => "the client",
            Self::File => "the file",
        }
    }
}

/// Describes a TLS error, without a full stop.
pub fn describe_error(error: &Error, origin: ErrorOrigin) -> String {
    let name = origin.name();
    match error {
        Error::InvalidCertificate(error) => describe_certificate_error(error, origin),
        Error::AlertReceived(alert) => format!(
            "{name} rejected the TLS connection: {}",
            describe_alert(*alert)
        ),
        Error::PeerIncompatible(fault) => format!("{name} {}", describe_incompatibility(fault)),
        Error::PeerMisbehaved(fault) => {
            format!(
                "{name} violated the TLS protocol: {}",
                variant_in_words(fault)
            )
        }
        Error::InvalidMessage(fault) => {
            format!(
                "{name} does not use TLS, or sent a malformed message: {}",
                variant_in_words(fault)
            )
        }
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            format!("{name} sent a TLS message that is not allowed at this point in the handshake")
        }
        Error::NoCertificatesPresented => format!("{name} presented no certificate"),
        Error::UnsupportedNameType => {
            "the server name is neither a host name nor an IP address".to_owned()
        }
        Error::DecryptError => format!("{name} sent a record that cannot be decrypted"),
        Error::EncryptError => "a record cannot be encrypted".to_owned(),
        Error::PeerSentOversizedRecord => format!("{name} sent a record longer than TLS allows"),
        Error::NoApplicationProtocol => {
            format!("{name} has no application protocol (ALPN) in common with Weir")
        }
        Error::HandshakeNotComplete => "the TLS handshake is not complete".to_owned(),
        Error::FailedToGetCurrentTime => "this machine's clock cannot be read".to_owned(),
        Error::FailedToGetRandomBytes => "this machine's random number generator failed".to_owned(),
        Error::BadMaxFragmentSize => "the fragment size is out of range".to_owned(),
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the key does not match the certificate".to_owned()
        }
        Error::InconsistentKeys(_) => "the key cannot be compared with the certificate".to_owned(),
        Error::InvalidCertRevocationList(fault) => {
            format!(
                "the certificate revocation list cannot be used: {}",
                variant_in_words(fault)
            )
        }
        Error::InvalidEncryptedClientHello(_) => {
            "the encrypted client hello is malformed".to_owned()
        }
        Error::General(text) => text.clone(),
        Error::Other(other) => other.0.to_string(),
        other => variant_in_words(other),
    }
}

/// Describes an I/O error that a TLS error caused. Returns `None` if it has a different cause.
pub fn describe_io_error(error: &io::Error, origin: ErrorOrigin) -> Option<String> {
    let inner = error.get_ref()?.downcast_ref::<Error>()?;
    Some(describe_error(inner, origin))
}

fn describe_certificate_error(error: &CertificateError, origin: ErrorOrigin) -> String {
    let subject = origin.certificate();
    let predicate = match error {
        CertificateError::BadEncoding => "is malformed".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: compare the clocks of both machines".to_owned()
        }
        CertificateError::Revoked => "is revoked".to_owned(),
        CertificateError::UnknownIssuer => {
            match origin {
                ErrorOrigin::Client => "is from an unknown issuer: no CA in `client_ca` signed it",
                ErrorOrigin::Server | ErrorOrigin::File => {
                    "is from an unknown issuer: no certificate in `ca` signed it, and `ca` does not contain it"
                }
            }
            .to_owned()
        }
        CertificateError::BadSignature => {
            "or its chain has an invalid signature".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let expected = expected.to_str();
            match presented.as_slice() {
                [] => format!("is not valid for {expected}: it contains no host name"),
                names => format!("is not valid for {expected}, only for {}", names.join(", ")),
            }
        }
        CertificateError::NotValidForName => "is for a different name".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not valid for this purpose: its extended key usage does not permit it".to_owned()
        }
        CertificateError::UnhandledCriticalExtension => {
            "has a critical extension that is not supported".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "is signed with an algorithm that is not supported".to_owned()
        }
        CertificateError::UnknownRevocationStatus => "has an unknown revocation status".to_owned(),
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => {
            "cannot be verified: the revocation list has expired".to_owned()
        }
        CertificateError::InvalidOcspResponse => "has an invalid OCSP response".to_owned(),
        CertificateError::ApplicationVerificationFailure => "was rejected".to_owned(),
        CertificateError::Other(other) => describe_webpki_error(&format!("{:?}", other.0), origin),
        // Deprecated variants, and variants that later versions of rustls add.
        other => format!("cannot be used: {}", variant_in_words(other)),
    };
    format!("{subject} {predicate}")
}

/// Describes a webpki error, given the name of its variant.
fn describe_webpki_error(name: &str, origin: ErrorOrigin) -> String {
    let text = match name {
        "UnsupportedCertVersion" => {
            "is X.509 version 1, which is not supported: issue a version 3 certificate, as \
             `openssl x509 -req` does with `-extfile`"
        }
        "CaUsedAsEndEntity" if origin == ErrorOrigin::Client => {
            "is a CA certificate (CA:TRUE), not an end-entity certificate"
        }
        "CaUsedAsEndEntity" => {
            "is a CA certificate (CA:TRUE), not a server certificate: add it to the `ca` file to accept exactly \
             this one"
        }
        "EndEntityUsedAsCa" => "is signed by a certificate that is not a CA certificate",
        "BadDer" | "BadDerTime" | "MalformedExtensions" | "ExtensionValueInvalid" => "is malformed",
        "InvalidCertValidity" => "expires before it becomes valid",
        "InvalidSerialNumber" => "has an invalid serial number",
        "NameConstraintViolation" => "has a name that its CA's name constraints do not permit",
        "PathLenConstraintViolated" | "MaximumPathDepthExceeded" => "has a chain that is too long",
        "MaximumSignatureChecksExceeded"
        | "MaximumPathBuildCallsExceeded"
        | "MaximumNameConstraintComparisonsExceeded" => {
            "has a chain that is too expensive to verify"
        }
        "SignatureAlgorithmMismatch" => "specifies two different signature algorithms",
        "EmptyEkuExtension" => "has an empty extended key usage",
        "MalformedDnsIdentifier" => "contains a name that is not a host name",
        "UnsupportedNameType" => "contains a name of an unsupported type",
        "CertDistrusted" => "is from a distrusted CA",
        _ => return format!("cannot be used: {}", to_words(name)),
    };
    text.to_owned()
}

fn describe_incompatibility(fault: &PeerIncompatible) -> String {
    let text = match fault {
        PeerIncompatible::ServerDoesNotSupportTls12Or13 | PeerIncompatible::Tls12NotOffered => {
            "supports neither TLS 1.2 nor TLS 1.3"
        }
        PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::SupportedVersionsExtensionRequired => {
            "supports no version of TLS that `minimum` allows"
        }
        PeerIncompatible::NoCipherSuitesInCommon => "has no cipher suite in common with Weir",
        PeerIncompatible::NoKxGroupsInCommon | PeerIncompatible::NamedGroupsExtensionRequired => {
            "has no key exchange group in common with Weir"
        }
        PeerIncompatible::NoSignatureSchemesInCommon
        | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon
        | PeerIncompatible::SignatureAlgorithmsExtensionRequired => {
            "has no signature algorithm in common with Weir"
        }
        PeerIncompatible::ExtendedMasterSecretExtensionRequired => {
            "lacks the extended master secret extension (RFC 7627)"
        }
        other => return format!("is not compatible: {}", variant_in_words(other)),
    };
    text.to_owned()
}

fn describe_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::HandshakeFailure => {
            "no acceptable TLS version, cipher suite or certificate (alert 40)".to_owned()
        }
        AlertDescription::UnknownCA => {
            "it does not trust the CA of the certificate (alert 48)".to_owned()
        }
        AlertDescription::CertificateRequired => "it requires a certificate (alert 116)".to_owned(),
        AlertDescription::UnrecognisedName => "unknown server name (alert 112)".to_owned(),
        AlertDescription::ProtocolVersion => {
            "it does not support this version of TLS (alert 70)".to_owned()
        }
        other => format!("{} (alert {})", variant_in_words(&other), u8::from(other)),
    }
}

/// Returns the name of a variant in words, without its fields.
fn variant_in_words(value: &impl Debug) -> String {
    to_words(&format!("{value:?}"))
}

/// Converts `WrongGroupForKeyShare` to `wrong group for key share`.
fn to_words(debug: &str) -> String {
    let name = debug.split(|c: char| !c.is_ascii_alphanumeric()).next();
    let mut text = String::new();
    let mut previous = ' ';
    for c in name.unwrap_or_default().chars() {
        if c.is_ascii_uppercase() && previous.is_ascii_lowercase() {
            text.push(' ');
        }
        previous = c;
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Arc;

    use rustls::pki_types::UnixTime;
    use rustls::{InvalidMessage, OtherError, PeerMisbehaved};

    use super::*;

    /// An error with the same Debug text as a webpki error.
    struct NamedError(&'static str);

    impl fmt::Debug for NamedError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl fmt::Display for NamedError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for NamedError {}

    fn webpki(name: &'static str) -> Error {
        let other = CertificateError::Other(OtherError(Arc::new(NamedError(name))));
        Error::InvalidCertificate(other)
    }

    /// Returns whether the text is a description of more than two words and contains no type name: no capital letter
    /// inside a word, and no bracket.
    fn is_description(text: &str) -> bool {
        let is_camel_case = |word: &str| {
            let mut lower = false;
            word.chars().any(|c| {
                let inner = lower && c.is_ascii_uppercase();
                lower = c.is_ascii_lowercase();
                inner
            })
        };
        let known = ["OpenSSL"];
        let words = text.split_whitespace();
        !text.contains(['{', '['])
            && !words
                .clone()
                .any(|word| is_camel_case(word) && !known.contains(&word))
            && words.count() > 2
    }

    #[test]
    fn every_webpki_error_has_a_description() {
        for name in [
            "BadDer",
            "BadDerTime",
            "CaUsedAsEndEntity",
            "CertDistrusted",
            "EmptyEkuExtension",
            "EndEntityUsedAsCa",
            "ExtensionValueInvalid",
            "InvalidCertValidity",
            "InvalidCrlNumber",
            "InvalidNetworkMaskConstraint",
            "InvalidSerialNumber",
            "InvalidCrlSignatureForPublicKey",
            "InvalidSignatureForPublicKey",
            "IssuerNotCrlSigner",
            "MalformedDnsIdentifier",
            "MalformedExtensions",
            "MalformedNameConstraint",
            "MaximumNameConstraintComparisonsExceeded",
            "MaximumPathBuildCallsExceeded",
            "MaximumPathDepthExceeded",
            "MaximumSignatureChecksExceeded",
            "NameConstraintViolation",
            "PathLenConstraintViolated",
            "SignatureAlgorithmMismatch",
            "TrailingData(BasicConstraints)",
            "UnknownRevocationStatus",
            "UnsupportedCertVersion",
            "UnsupportedCriticalExtension",
            "UnsupportedCrlIssuingDistributionPoint",
            "UnsupportedCrlVersion",
            "UnsupportedDeltaCrl",
            "UnsupportedIndirectCrl",
            "UnsupportedNameType",
            "UnsupportedRevocationReason",
            "UnsupportedRevocationReasonsPartitioning",
        ] {
            let text = describe_error(&webpki(name), ErrorOrigin::Server);
            assert!(
                text.starts_with("the server's certificate ") && is_description(&text),
                "{name}: {text}"
            );
        }
        assert!(
            describe_error(&webpki("UnsupportedCertVersion"), ErrorOrigin::Server).starts_with(
                "the server's certificate is X.509 version 1, which is not supported: "
            )
        );
    }

    #[test]
    fn rustls_errors_have_descriptions() {
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1));
        let certificates = [
            CertificateError::BadEncoding,
            CertificateError::Expired,
            CertificateError::ExpiredContext {
                time,
                not_after: time,
            },
            CertificateError::NotValidYet,
            CertificateError::NotValidYetContext {
                time,
                not_before: time,
            },
            CertificateError::Revoked,
            CertificateError::UnhandledCriticalExtension,
            CertificateError::UnknownIssuer,
            CertificateError::UnknownRevocationStatus,
            CertificateError::ExpiredRevocationList,
            CertificateError::BadSignature,
            CertificateError::NotValidForName,
            CertificateError::NotValidForNameContext {
                expected: "a.example".try_into().expect("parse name"),
                presented: vec!["b.example".to_owned()],
            },
            CertificateError::InvalidPurpose,
            CertificateError::InvalidOcspResponse,
            CertificateError::ApplicationVerificationFailure,
        ];
        let mut errors: Vec<Error> = certificates.map(Error::InvalidCertificate).to_vec();
        errors.extend([
            Error::NoCertificatesPresented,
            Error::UnsupportedNameType,
            Error::DecryptError,
            Error::EncryptError,
            Error::PeerSentOversizedRecord,
            Error::NoApplicationProtocol,
            Error::HandshakeNotComplete,
            Error::FailedToGetCurrentTime,
            Error::FailedToGetRandomBytes,
            Error::BadMaxFragmentSize,
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch),
            Error::InconsistentKeys(InconsistentKeys::Unknown),
            Error::InvalidMessage(InvalidMessage::InvalidContentType),
            Error::InvalidMessage(InvalidMessage::MissingData("a field")),
            Error::PeerMisbehaved(PeerMisbehaved::WrongGroupForKeyShare),
            Error::InappropriateMessage {
                expect_types: Vec::new(),
                got_type: rustls::ContentType::Alert,
            },
        ]);
        errors.extend(
            [
                PeerIncompatible::ServerDoesNotSupportTls12Or13,
                PeerIncompatible::NoCipherSuitesInCommon,
                PeerIncompatible::NoKxGroupsInCommon,
                PeerIncompatible::NoSignatureSchemesInCommon,
                PeerIncompatible::UncompressedEcPointsRequired,
                PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
                PeerIncompatible::ExtendedMasterSecretExtensionRequired,
            ]
            .map(Error::PeerIncompatible),
        );
        errors.extend((0..=u8::MAX).map(|code| Error::AlertReceived(code.into())));
        for error in errors {
            for origin in [ErrorOrigin::Server, ErrorOrigin::Client, ErrorOrigin::File] {
                let text = describe_error(&error, origin);
                assert!(is_description(&text), "{error:?}: {text}");
            }
        }
    }
}
