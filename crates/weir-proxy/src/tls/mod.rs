//! TLS by rustls: certificates as files, what clients and servers are asked for, and connections.
//!
//! Configurations are made when a plan is, from files that are read then; a connection keeps the one that it began
//! with, so that a reload changes nothing for those that stand.

mod anybody;
mod back;
mod certificate;
mod channel;
mod der;
mod front;
mod inspect;
mod sentence;
mod staple;
mod ticket;
mod verifier;

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use weir_model::TlsVersion;

pub use anybody::Anybody;
pub(crate) use back::Back;
pub use certificate::CertificateError;
pub(crate) use channel::{Channel, Handshake};
pub(crate) use front::config;
pub use front::listener_tls;
pub use inspect::Doubt;
pub(crate) use inspect::inspect;
pub use sentence::{Peer, sentence, sentence_of_io};
pub(crate) use ticket::Tickets;
pub use ticket::{ServiceTickets, TicketKey};
pub use verifier::server_verifier;

const BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
const NEWEST: &[&SupportedProtocolVersion] = &[&TLS13];

/// From `minimum` on.
const fn versions(minimum: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    match minimum {
        TlsVersion::V12 => BOTH,
        TlsVersion::V13 => NEWEST,
    }
}

/// For [`fuzzing`](crate::fuzzing).
pub(crate) fn read_der(input: &[u8]) {
    let _ = der::facts(input);
    let _ = staple::judge(input, &[1, 2, 3], 0);
}
