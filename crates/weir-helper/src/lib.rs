//! Implements `weir helper`, a small privileged process that changes addresses and runs programs for other processes.
//!
//! A request can only refer to objects in the configuration: a virtual router by its name, a tracked object by its
//! index. Addresses, interfaces, programs and accounts come from the configuration file, which the helper reads itself.
//! The configuration text that an unprivileged daemon sends only selects one of the versions of this file
//! ([`RootSection`]). If the host already has an address of a virtual router, the helper removes it while the router is
//! not active, unless it is the source address of the router's advertisements. When the channel is closed, the helper
//! removes all addresses, because the caller no longer advertises them. The keeper holds both ends of the channel, so
//! the helper and its caller can be replaced separately: a new helper takes over the record of the previous one.
//!
//! Addresses, routes, rules and devices are recorded in `RUNTIME_DIR/vrrp.json` before they are added, so the next
//! helper, `weir run` and `weir clean` can remove them.

mod address;
mod client;
mod daemon;
mod fifo;
mod handover;
mod machine;
mod message;
mod other_change;
mod process;
mod program;
mod published;
mod record;
mod root_section;
mod router_source;
mod serve;
mod state;

use std::path::PathBuf;

pub use address::revert_recorded;
pub use client::{Client, ReplyWithRouters, add_caller};
pub use daemon::{
    DaemonClient, address_digest, is_trusted, read_trusted, section_digest, serve_daemon,
};
pub use machine::{Environment, ThisMachine, parse};
pub use message::{NotifyState, NumberedReply, Reply, Request, TrackedOutcome, VERSION};
pub use other_change::{virtual_device, virtual_mac};
pub use published::with_published_part;
pub use root_section::RootSection;
pub use serve::serve;

/// The environment variable that is set for the VRRP agent's helper if an unprivileged daemon wrote the recorded
/// configuration, even if the file has a different owner now.
pub const CONFINED: &str = "WEIR_HELPER_CONFINED";

/// Why the helper failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A netlink request failed.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The file's owner is not trusted, other users can write to the file, or it is not a regular file.
    #[error("{path}: must be owned by root and not writable by others", path = path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
    },
    /// The configuration has an error.
    #[error("{path}: {reason}", path = path.display())]
    Configuration {
        /// The file.
        path: PathBuf,
        /// The first error.
        reason: String,
    },
    /// An unprivileged daemon requested content that is not in root's configuration file.
    #[error("{path} does not permit the requested {name}: {reason}", path = path.display())]
    NotPermitted {
        /// The file.
        path: PathBuf,
        /// The section.
        name: &'static str,
        /// Why it is not permitted, or a fix.
        reason: String,
    },
    /// No virtual router has this name.
    #[error("the virtual router {name} does not exist")]
    UnknownRouter {
        /// The name.
        name: String,
    },
    /// The interface does not exist, or no interface has the source address.
    #[error("{name}: interface not found")]
    NoInterface {
        /// A virtual router or its route, or the interface itself.
        name: String,
    },
    /// The other process sent data that is not a valid message of this version.
    #[error("invalid message: {reason}")]
    Message {
        /// Why the message is invalid.
        reason: String,
    },
}
