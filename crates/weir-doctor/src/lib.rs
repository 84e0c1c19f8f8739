//! `weir doctor`: finds what breaks balancing on and around this machine, and reports how to fix it.
//!
//! The findings are functions over the kernel's state and files; [`director()`] combines those of a director, and
//! weir-real-server combines those of a server. Nothing is changed here.

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
