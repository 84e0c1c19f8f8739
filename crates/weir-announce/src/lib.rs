//! Announces VIPs through a BGP speaker on the same machine (`[announce]`, `weir announcer`).
//!
//! The daemon reports over `RUNTIME_DIR/announce.sock` which VIPs can serve ([`DaemonReport`]). [`Decisions`]
//! determines which of these are announced, and a driver passes the routes to BIRD, ExaBGP, GoBGP or FRR. Weir does not
//! implement BGP.
//!
//! The announcer is a separate process so that routes outlive a daemon that crashes or is replaced. If the daemon sends
//! nothing for `withdraw_after`, all routes are withdrawn: the kernel still forwards, but the servers are not checked.

mod client;
mod decision;
mod error;
mod message;
mod policy;
mod process;
mod speaker;

pub use client::Client;
pub use decision::{Decisions, Quality};
pub use error::Error;
pub use message::{DaemonReport, Report, RouteReport, VipState};
pub use process::run;
