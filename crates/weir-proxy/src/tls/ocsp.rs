//! Checks whether an OCSP response from a file (RFC 6960) can be stapled.
//!
//! Clients reject a connection with an invalid response, so such a response is not stapled.
//!
//! `x509-ocsp` parses the response. Its signature is verified by the clients, not by Weir.

use x509_cert::der::Decode;
use x509_ocsp::{BasicOcspResponse, OcspGeneralizedTime, OcspResponse, OcspResponseStatus};

/// Why a response is not stapled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OcspFault {
    /// The response cannot be parsed.
    #[error("not an OCSP response")]
    Malformed,
    /// The responder returned an error status, such as `tryLater` or `unauthorized`.
    #[error("the OCSP responder returned an error")]
    ErrorStatus,
    /// The response is for a different certificate, perhaps the previous one.
    #[error("the OCSP response is for a different certificate")]
    OtherCertificate,
    /// `nextUpdate` has passed.
    #[error("the OCSP response has expired")]
    Expired,
}

/// Checks a response for the certificate with this serial number. `now` is in seconds since 1970.
///
/// # Errors
/// Fails if the response cannot be stapled.
pub(crate) fn check(response: &[u8], serial: &[u8], now: i64) -> Result<(), OcspFault> {
    let response = OcspResponse::from_der(response).map_err(|_| OcspFault::Malformed)?;
    if response.response_status != OcspResponseStatus::Successful {
        return Err(OcspFault::ErrorStatus);
    }
    let bytes = response.response_bytes.ok_or(OcspFault::Malformed)?;
    let basic =
        BasicOcspResponse::from_der(bytes.response.as_bytes()).map_err(|_| OcspFault::Malformed)?;
    let mut responses = basic.tbs_response_data.responses.iter();
    let single = responses
        .rfind(|single| single.cert_id.serial_number.as_bytes() == serial)
        .ok_or(OcspFault::OtherCertificate)?;
    if single
        .next_update
        .is_some_and(|until| seconds(until) <= now)
    {
        return Err(OcspFault::Expired);
    }
    Ok(())
}

fn seconds(time: OcspGeneralizedTime) -> i64 {
    i64::try_from(time.0.to_unix_duration().as_secs()).unwrap_or(i64::MAX)
}
