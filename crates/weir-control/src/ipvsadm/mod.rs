//! Implements `weir ipvsadm`, which executes ipvsadm command lines through the daemon or on the pinned data plane.
//!
//! The pinned data plane is used if no daemon is running.
//!
//! weir-ipvsadm parses command lines and formats output; the engine applies edits. This module connects the two. Edits
//! are sent in batches. Listings are received as values, so the command itself resolves names.

mod direct;
mod names;
mod session;

pub use crate::ipvsadm_message::{Request, Response};
pub use names::HostNames;
pub use session::{Streams, run};
