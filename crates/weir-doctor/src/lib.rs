//! Finds problems that break load balancing on this machine or its network segments, and their fixes (`weir doctor`).
//!
//! Each check is a function of the kernel's state and of files. [`director()`] runs all checks for a director, and
//! [`router()`] those for a router in front of directors; the crate weir-real-server runs the checks for a server. This
//! crate makes no changes.

pub mod boot_setting;
pub mod checksum;
mod claimant;
pub mod conntrack;
mod diagnosis;
mod director;
mod down;
pub mod duplicate;
pub mod firewall;
pub mod gateway;
mod handshakes;
mod interface;
pub mod manager;
mod reach;
mod report;
mod router;
mod server_path;
mod slow;
pub mod source;
mod stack;
mod tunnel;

pub use claimant::contested_vips;
pub use diagnosis::Diagnosis;
pub use director::{Daemon, DirectorFindings, director};
pub use interface::Disconnected;
pub use report::{
    ActivePeer, DaemonReport, Handshakes, Latency, ServerReport, ServerWarning, ServiceReport,
};
pub use router::{RouterError, router};
