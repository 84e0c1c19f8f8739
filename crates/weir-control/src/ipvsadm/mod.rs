//! `weir ipvsadm`: command lines of ipvsadm, executed by the daemon, or on the pinned data plane if there is no daemon.
//!
//! weir-ipvsadm parses command lines and formats output; the engine applies edits. This module connects them: edits are
//! sent in batches and listings as values, so names are resolved where the command was called.

mod direct;
mod names;
mod session;

pub use crate::ipvsadm_message::{Answer, Request};
pub use names::HostNames;
pub use session::{Streams, run};
