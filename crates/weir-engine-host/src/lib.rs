//! Implements `weir helper --engine`: runs the layer 4 engine for an unprivileged daemon.
//!
//! The process loads and attaches programs, writes maps, adds VIPs and repairs drift. The daemon at the other end of
//! the channel reads clients' data and is unprivileged. This process trusts the daemon as little as possible:
//!
//! - A configuration is applied only if its layer 4 part equals that of the configuration file, or that of a recently
//!   active configuration (`policy`). This process reads the file itself, and only root may be able to write it. No
//!   request can choose an interface, a VIP or a map.
//! - The daemon may add servers from lists and API requests to the pools of that configuration, and may set weights.
//! - An ipvsadm edit is applied only if a client requested it on a socket of this process (`permits`): the kernel, not
//!   the daemon, identifies the caller (`caller`).
//! - Flows are exchanged with the peers in `[sync]` of that configuration. This process reads the key (`flow_sync`).
//! - A probe by the daemon must use the path from a configured service to one of its servers (`probe`).
//! - Files are written to a directory where the daemon can neither create nor replace files
//!   ([`weir_runtime_dir::share`]).
//!
//! The kernel forwards packets without either process. The keeper holds this end of the channel and restarts this
//! process if it dies. The daemon then opens the engine again ([`EngineClient::is_lost`]), and the engine adopts the
//! pinned data plane.

mod caller;
mod client;
mod flow_sync;
mod host;
mod message;
mod permits;
mod policy;
mod probe;
mod proxied;
mod serve;

pub use client::{EngineClient, Failure, PendingRequest};
pub use flow_sync::FlowSynchronizer;
pub use message::{
    ActiveState, AddedServer, Counters, ProbeForwarding, ProbeId, Query, Reply, Request,
    SyncPeerStatus, SyncStatus,
};
pub use permits::permit_edits;
pub use policy::RECORD_FILE;
pub use proxied::ProxyListeners;
pub use serve::{restrict, serve};

/// Why the process exits.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A netlink request failed.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The other process sent data that is not a valid message of this version.
    #[error("invalid message: {reason}")]
    Message {
        /// The reason.
        reason: String,
    },
}
