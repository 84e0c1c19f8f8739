//! `weir vrrp-agent`: the process that runs the virtual routers of `[vrrp.NAME]`.
//!
//! It has a process of its own, so that reload, upgrade and crash of the daemon never delay an advertisement. It sends
//! and receives packets and announces addresses, for which `CAP_NET_RAW` is enough; the helper (`weir-helper`) changes
//! addresses and runs programs for it. It reads no configuration either: the helper sends it the virtual routers.
//!
//! The protocol is `weir-vrrp`; this crate is its driver, and a socket `RUNTIME_DIR/vrrp.sock` for `weir vrrp` and the
//! daemon's status.

mod agent;
mod announce;
mod control;
mod frame;
mod link;
mod status;
mod track;

use std::path::PathBuf;

pub use agent::run;
pub use control::{Observed, Order, observe, order, status};
pub use status::{IgnoredPackets, RouterReport, RouterStatus, TrackedStatus};

/// The account of the agent, if it exists.
pub const ACCOUNT: &str = "weir-vrrp";

/// Why the agent, or a request to it, failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The helper has ended or refuses.
    #[error("the helper: {0}")]
    Helper(#[from] weir_helper::Error),
    /// It sent no list of virtual routers.
    #[error("the helper sent no virtual routers: {reason}")]
    Policy {
        /// Why.
        reason: String,
    },
    /// A request to the network failed.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The control socket cannot be used.
    #[error("{path}: {source}", path = path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The channel to the helper cannot be watched.
    #[error("the channel to the helper: {0}")]
    Channel(std::io::Error),
    /// Signals cannot be received.
    #[error("signals: {0}")]
    Signals(std::io::Error),
    /// The agent rejected a request.
    #[error("{0}")]
    Rejected(String),
}
