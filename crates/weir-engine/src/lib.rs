//! The layer 4 engine: applies a configuration to the data plane and the network, and keeps them in that state.

mod adopt;
mod allocate;
mod claim;
mod clean;
mod engine;
mod error;
mod ipvsadm_term;
mod journal;
mod listing;
mod mark_routing;
mod memory;
mod network;
mod origin;
mod packet;
mod paths;
mod pinned;
mod rate_estimate;
mod reply_monitor;
mod route_index;
pub mod snapshot;
mod state;
mod totals;
mod tree;
pub mod vip;
mod write;

pub use self::claim::Claim;
pub use self::clean::{Cleaned, clean, clean_unused, is_pinned};
pub use self::engine::{Applied, Engine, LastPass, Restore, WeightOrder};
pub use self::error::{Error, Result};
pub use self::ipvsadm_term::is_from_ipvsadm;
pub use self::packet::{Explanation, Packet, PacketError};
pub use self::paths::Paths;
pub use self::pinned::{Persisted, Pinned, added_vips, with_ipvsadm_services};
pub use self::state::Unreadable;
