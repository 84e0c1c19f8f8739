//! Announces VIPs through a BGP speaker on the same machine. Implements `[announce]` and `weir announcer`.
//!
//! The daemon reports over `RUNTIME_DIR/announce.sock` which VIPs can serve ([`DaemonReport`]). [`Decisions`] selects
//! the VIPs to announce, and a driver passes the routes to BIRD, ExaBGP, GoBGP or FRR. Weir does not implement BGP.
//!
//! The announcer is a separate process so that routes remain when the daemon crashes or is replaced. If the daemon
//! sends nothing for `withdraw_after`, the announcer withdraws all routes, because the kernel still forwards packets
//! but no process checks the servers.

mod announcer;
mod client;
mod decision;
mod error;
mod message;
mod policy;
mod process;
mod record;
mod speaker;

pub use client::Client;
pub use decision::{Decisions, Quality};
pub use error::Error;
pub use message::{DaemonReport, Report, RouteReport, VipState};
pub use process::{STOP_TIMEOUT, run};
