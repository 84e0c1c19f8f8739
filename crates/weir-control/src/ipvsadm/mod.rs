//! `weir ipvsadm`: executes command lines of ipvsadm through the daemon, or on the pinned data plane if no daemon is
//! running.
//!
//! weir-ipvsadm parses command lines and formats output; the engine applies edits. This module connects both. Edits are
//! sent in batches, and listings are received as values, so names are resolved in the process of the command.

mod direct;
mod names;
mod session;

pub use crate::ipvsadm_message::{Request, Response};
pub use names::HostNames;
pub use session::{Streams, run};
