//! Reads the fields of a certificate that Weir needs: validity, names, serial number and usage.
//!
//! `x509-cert` parses the certificate. rustls verifies signatures and chains.

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::certificate::{CertificateInner, Raw, TbsCertificateInner};
use x509_cert::der::asn1::Any;
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::oid::db::rfc5280::{ANY_EXTENDED_KEY_USAGE, ID_KP_SERVER_AUTH};
use x509_cert::der::{Decode, Tag, TagNumber, Tagged};
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, SubjectAltName};
use x509_cert::name::Name;
use x509_cert::time::Time;

/// The fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateInfo {
    /// Seconds since 1970.
    pub(crate) not_before: i64,
    /// Seconds since 1970.
    pub(crate) not_after: i64,
    /// Host names in lower case, including wildcards (`*.`). If there are none, the subject's common name.
    pub(crate) names: Vec<String>,
    /// The bytes of the serial number, in two's complement.
    pub(crate) serial: Vec<u8>,
    /// Whether its basic constraints do not permit it to be a CA (RFC 5280 section 4.2.1.9), or are malformed.
    pub(crate) is_end_entity: bool,
    /// Whether servers may use it: its extended key usage is absent or permits server authentication.
    pub(crate) is_for_servers: bool,
}

/// The `dNSName` alternative of a `GeneralName` (RFC 5280 section 4.2.1.6).
const DNS_NAME: Tag = Tag::ContextSpecific {
    constructed: false,
    number: TagNumber::N2,
};

/// Reads a certificate. Returns `None` if it cannot be parsed.
pub(crate) fn read(certificate: &[u8]) -> Option<CertificateInfo> {
    // The raw profile accepts serial numbers of more than 20 bytes, which rustls accepts too.
    let certificate = CertificateInner::<Raw>::from_der(certificate).ok()?;
    let body = &certificate.tbs_certificate;
    let mut names = alternative_names(body)?;
    if names.is_empty() {
        names.extend(common_name(&body.subject));
    }
    Some(CertificateInfo {
        not_before: seconds(body.validity.not_before),
        not_after: seconds(body.validity.not_after),
        names,
        serial: body.serial_number.as_bytes().to_vec(),
        is_end_entity: is_end_entity(body),
        is_for_servers: is_for_servers(body),
    })
}

/// Returns a certificate's subject in the format of RFC 4514, or `None` if the certificate cannot be parsed.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    let certificate = CertificateInner::<Raw>::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate.subject.to_string())
}

fn seconds(time: Time) -> i64 {
    i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX)
}

/// Returns the DNS names in `subjectAltName`, or `None` if the extension is malformed.
///
/// The names are not parsed as `GeneralName`s, because a name of an unsupported type would then hide all others.
fn alternative_names(body: &TbsCertificateInner<Raw>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for extension in body.extensions.iter().flatten() {
        if extension.extn_id == SubjectAltName::OID {
            let all = Vec::<Any>::from_der(extension.extn_value.as_bytes()).ok()?;
            let dns = all.iter().filter(|name| name.tag() == DNS_NAME);
            names.extend(dns.map(lower_case));
        }
    }
    Some(names)
}

fn common_name(subject: &Name) -> Option<String> {
    let mut attributes = subject.0.iter().flat_map(|set| set.0.iter());
    let is_common = |attribute: &&AttributeTypeAndValue| attribute.oid == COMMON_NAME;
    attributes
        .find(is_common)
        .map(|attribute| lower_case(&attribute.value))
}

fn lower_case(text: &Any) -> String {
    String::from_utf8_lossy(text.value()).to_ascii_lowercase()
}

fn is_end_entity(body: &TbsCertificateInner<Raw>) -> bool {
    match body.get::<BasicConstraints>() {
        Ok(None) => false,
        Ok(Some((_, constraints))) => !constraints.ca,
        Err(_) => true,
    }
}

fn is_for_servers(body: &TbsCertificateInner<Raw>) -> bool {
    match body.get::<ExtendedKeyUsage>() {
        Ok(None) => true,
        Ok(Some((_, ExtendedKeyUsage(usages)))) => usages
            .iter()
            .any(|usage| [ID_KP_SERVER_AUTH, ANY_EXTENDED_KEY_USAGE].contains(usage)),
        Err(_) => false,
    }
}
