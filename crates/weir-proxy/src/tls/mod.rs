//! Implements TLS with rustls: certificate files, client and server configurations, and connections.
//!
//! Configurations are built together with a plan, from the current content of the files. A connection keeps the
//! configuration under which it was accepted, so a reload does not affect established connections.

mod certificate;
mod channel;
mod client;
mod content;
mod error_text;
mod expiry;
mod files;
mod inspect;
mod no_verification;
mod ocsp;
#[cfg(test)]
mod recorded;
mod server;
mod suite;
mod ticket;
mod verifier;
mod x509;

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use weir_model::TlsVersion;

pub use certificate::CertificateError;
pub(crate) use channel::{Channel, Handshake, TlsDetails};
pub(crate) use client::TlsConnector;
pub use content::{TlsFile, read_certificate_files, read_tls_file};
pub use error_text::{ErrorOrigin, describe_error, describe_io_error};
pub use expiry::{CertificateExpiry, EXPIRY_WARNING_DAYS};
pub use files::{certificate_fingerprint, file_fingerprint};
pub(crate) use inspect::inspect;
pub use inspect::{Problem, inspect_checks};
pub use no_verification::NoCertificateVerification;
pub use server::listener_tls;
pub(crate) use server::{ServiceTlsConfig, server_config};
pub(crate) use ticket::Tickets;
pub use ticket::{ServiceTickets, TicketKey};
pub use verifier::server_verifier;

const TLS12_AND_TLS13: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
const TLS13_ONLY: &[&SupportedProtocolVersion] = &[&TLS13];

/// Returns the supported versions that are not below `minimum`.
const fn versions(minimum: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    match minimum {
        TlsVersion::V12 => TLS12_AND_TLS13,
        TlsVersion::V13 => TLS13_ONLY,
    }
}

/// Parses the input as a certificate and as an OCSP response, for [`fuzzing`](crate::fuzzing).
pub(crate) fn read_der(input: &[u8]) {
    let _ = x509::read(input);
    let _ = ocsp::check(input, &[1, 2, 3], 0);
}
