//! `weir doctor`: finds what would break balancing here and says how to fix it.

pub(crate) mod checksum;
mod claimant;
pub(crate) mod conntrack;
mod diagnosis;
mod director;
pub(crate) mod duplicate;
pub(crate) mod firewall;
pub(crate) mod manager;
pub(crate) mod persistence;
mod reach;
mod report;
pub(crate) mod source;
mod stack;

pub use diagnosis::Diagnosis;
pub use director::{Daemon, director};
pub use report::{Handshakes, ServerReport, ServiceReport};
