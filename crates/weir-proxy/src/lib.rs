//! `forward = "proxy"`: TCP and HTTP/1 services in user space, by plain threads.
//!
//! One thread per CPU, each with its own listeners (`SO_REUSEPORT`), epoll set, clients, connections to servers and timers;
//! nothing is locked and nothing is allocated for an ordinary request. What they run by is an immutable plan that they look up
//! once per wake-up ([`Proxy::prepare`], [`Proxy::commit`]); servers' weights and loads are numbers that all share. What
//! octets mean is weir-http's, which server comes next weir-sched's.
//!
//! The crate refuses to read configuration, to check servers' health, and to touch the kernel's data plane: it needs no
//! more rights than its ports do.

mod balance;
mod budget;
mod context;
mod depot;
mod encoder;
mod error;
mod h2;
mod handover;
mod limit;
mod log;
mod page;
mod pipe;
mod plan;
mod proxy;
mod queue;
mod session;
mod slab;
mod socket;
mod status;
mod tls;
mod transport;
mod wheel;
mod worker;

pub use error::Error;
pub use handover::{Handed, Inlet, TAKEN_ALONG_MAX, Tunnel};
pub use proxy::{Prepared, Proxy};
pub use status::{Conduct, ServerStatus, ServiceStatus};
pub use tls::{Anybody, CertificateError, Doubt, ServiceTickets, TicketKey};

/// Looks at every file that `desired` names and a service needs, as of `now`.
pub fn inspect(desired: &weir_model::Desired, now: std::time::SystemTime) -> Vec<Doubt> {
    let mut doubts = tls::inspect(desired, now);
    doubts.extend(page::doubts(desired));
    doubts.extend(log::doubts(desired));
    doubts
}

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
