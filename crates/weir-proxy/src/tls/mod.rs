//! TLS with rustls: certificate files, client and server configurations, and connections.
//!
//! Configurations are built together with a plan, from files that are read at that time. A connection keeps the
//! configuration it was accepted with, so a reload does not affect established connections.

mod certificate;
mod channel;
mod client;
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
pub use error_text::{Peer, describe_error, describe_io_error};
pub use expiry::{CertificateExpiry, EXPIRY_WARNING_DAYS};
pub use files::{certificate_files, number_of_files};
pub use inspect::Problem;
pub(crate) use inspect::inspect;
pub use no_verification::NoCertificateVerification;
pub use server::listener_tls;
pub(crate) use server::{Secured, server_config};
pub(crate) use ticket::Tickets;
pub use ticket::{ServiceTickets, TicketKey};
pub use verifier::server_verifier;

const BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
const NEWEST: &[&SupportedProtocolVersion] = &[&TLS13];

/// The supported versions from `minimum` on.
const fn versions(minimum: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    match minimum {
        TlsVersion::V12 => BOTH,
        TlsVersion::V13 => NEWEST,
    }
}

/// For [`fuzzing`](crate::fuzzing).
pub(crate) fn read_der(input: &[u8]) {
    let _ = x509::read(input);
    let _ = ocsp::check(input, &[1, 2, 3], 0);
}
