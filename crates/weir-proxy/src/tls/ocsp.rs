//! Checks whether an OCSP response from a file (RFC 6960) can be stapled. A client that gets a useless response rejects
//! the connection, so no response is better than a bad one.
//!
//! `x509-ocsp` parses the response. Its signature is not verified here; clients do that.

use x509_cert::der::Decode;
use x509_ocsp::{BasicOcspResponse, OcspGeneralizedTime, OcspResponse, OcspResponseStatus};

/// Why a response is not stapled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OcspFault {
    /// It cannot be parsed.
    #[error("not an OCSP response")]
    Malformed,
    /// `tryLater`, `unauthorized` and the like.
    #[error("the OCSP responder returned an error")]
    Refusal,
    /// Perhaps for the previous certificate.
    #[error("the OCSP response is for another certificate")]
    Other,
    /// `nextUpdate` has passed.
    #[error("the OCSP response has expired")]
    Over,
}

/// Checks a response for the certificate with this serial number at `now`, in seconds since 1970.
///
/// # Errors
/// It cannot be used.
pub(crate) fn check(response: &[u8], serial: &[u8], now: i64) -> Result<(), OcspFault> {
    let response = OcspResponse::from_der(response).map_err(|_| OcspFault::Malformed)?;
    if response.response_status != OcspResponseStatus::Successful {
        return Err(OcspFault::Refusal);
    }
    let bytes = response.response_bytes.ok_or(OcspFault::Malformed)?;
    let basic =
        BasicOcspResponse::from_der(bytes.response.as_bytes()).map_err(|_| OcspFault::Malformed)?;
    let mut answers = basic.tbs_response_data.responses.iter();
    let answer = answers
        .rfind(|answer| answer.cert_id.serial_number.as_bytes() == serial)
        .ok_or(OcspFault::Other)?;
    if answer
        .next_update
        .is_some_and(|until| seconds(until) <= now)
    {
        return Err(OcspFault::Over);
    }
    Ok(())
}

fn seconds(time: OcspGeneralizedTime) -> i64 {
    i64::try_from(time.0.to_unix_duration().as_secs()).unwrap_or(i64::MAX)
}
