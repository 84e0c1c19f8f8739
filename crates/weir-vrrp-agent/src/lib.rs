//! Runs the virtual routers of `[vrrp.NAME]` in a separate process, `weir vrrp-agent`.
//!
//! A reload, upgrade or crash of the daemon therefore never delays an advertisement. The agent sends and receives
//! packets and announces addresses, which requires only `CAP_NET_RAW`. The helper (`weir-helper`) changes addresses and
//! runs programs for the agent, and sends it the list of virtual routers. The agent does not read the configuration.
//!
//! `weir-vrrp` implements the protocol. This crate drives that state machine and serves the socket
//! `RUNTIME_DIR/vrrp.sock`, which `weir vrrp` and the daemon's status use.

mod agent;
mod announce;
mod control;
mod frame;
mod link;
mod status;
mod track;

use std::path::PathBuf;

pub use agent::{STANDBY_NAME, active_interval, run, stop_routers};
pub use control::{ControlRequest, ObservedState, report_observed_state, send_request, status};
pub use status::{IdConflictStatus, RouterReport, RouterStatus, TrackedStatus};

/// Name of the account that the agent runs as, if the account exists.
pub const ACCOUNT: &str = "weir-vrrp";

/// Errors from the agent, and from requests to it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The helper has exited or rejected a request.
    #[error("helper: {0}")]
    Helper(#[from] weir_helper::Error),
    /// The helper did not send a list of virtual routers.
    #[error("failed to get the virtual routers: {reason}")]
    Policy {
        /// The helper's reply, or the reason why there is none.
        reason: String,
    },
    /// A netlink request failed.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The control socket cannot be used.
    #[error("{path}: {source}", path = path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The channel to the helper cannot be watched.
    #[error("failed to watch the channel to the helper: {0}")]
    Channel(std::io::Error),
    /// A signal handler cannot be installed.
    #[error("failed to install a signal handler: {0}")]
    Signals(std::io::Error),
    /// The agent rejected a request.
    #[error("{0}")]
    Rejected(String),
}
