//! `weir doctor`: finds what would break balancing here and says how to fix it.

pub mod checksum;
mod claimant;
pub mod conntrack;
mod diagnosis;
mod director;
pub mod duplicate;
pub mod firewall;
pub mod manager;
pub mod persistence;
mod reach;
mod report;
pub mod source;
mod stack;

pub use diagnosis::Diagnosis;
pub use director::{Daemon, director};
pub use report::{Handshakes, ServerReport, ServiceReport};
