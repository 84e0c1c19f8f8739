//! `weir doctor`: finds what would break balancing here and says how to mend it.

mod ailment;
pub(crate) mod checksum;
mod claimant;
pub(crate) mod conntrack;
mod director;
pub(crate) mod duplicate;
pub(crate) mod firewall;
pub(crate) mod manager;
pub(crate) mod persistence;
mod reach;
pub(crate) mod source;
mod stack;

pub use ailment::Ailment;
pub use director::{Daemon, director};
