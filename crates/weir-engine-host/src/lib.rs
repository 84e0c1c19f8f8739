//! `weir helper --engine`: the process that owns the layer 4 engine for a daemon without rights.
//!
//! It loads and attaches programs, writes maps, adds VIPs, repairs drift. The daemon at the other end of the channel
//! reads what clients send and has no rights; this process trusts it as little as possible:
//!
//! - A configuration is applied only if its layer 4 part is that of the configuration file, which this process reads
//!   itself and only if root alone can write it, or of the one that was applied last (`policy`). No message names an
//!   interface, a VIP or a map.
//! - The daemon may add servers to the pools of that configuration, as lists and the API do, and it decides weights.
//! - Edits of ipvsadm are those that a client has asked for at a socket of this process (`permits`): the kernel, not
//!   the daemon, identifies the caller (`caller`).
//! - Flows are exchanged with the peers of `[sync]` in that configuration, whose key this process reads (`flow_sync`).
//! - Probes of the daemon take the path of a configured service to one of its servers (`probe`).
//! - Files are written to a directory in which the daemon can neither replace nor plant them
//!   ([`weir_runtime_dir::share`]).
//!
//! The kernel forwards packets without either process. The keeper holds this end of the channel and replaces this
//! process when it dies; the daemon then opens the engine again ([`EngineClient::is_lost`]), which adopts the pinned
//! data plane.

mod caller;
mod client;
mod flow_sync;
mod host;
mod message;
mod permits;
mod policy;
mod probe;
mod serve;

pub use client::{EngineClient, Failure, Pending};
pub use flow_sync::FlowSynchronizer;
pub use message::{
    AddedServer, Counters, Facts, ProbeId, ProbeWay, Query, Reply, Request, SyncPeerStatus,
    SyncStatus,
};
pub use permits::permit_edits;
pub use policy::RECORD;
pub use serve::{restrict, serve};

/// Why the process ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the network failed.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The other process sent something else than a message of this version.
    #[error("invalid message: {reason}")]
    Message {
        /// Why.
        reason: String,
    },
}
