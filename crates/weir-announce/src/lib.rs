//! `weir announcer`: announces VIPs by BGP through a speaker that runs on this machine (`[announce]`).
//!
//! The daemon sends which VIPs can serve ([`Facts`]) over `RUNTIME_DIR/announce.sock`; [`Decisions`] decides which ones
//! are announced, and a driver passes the routes to BIRD, ExaBGP, GoBGP or FRR. Weir speaks no BGP of its own.
//!
//! It is a process of its own so that routes outlive a daemon that crashes or is replaced. A daemon that sends nothing
//! for `withdraw_after` is gone: then all routes are withdrawn, although the kernel still forwards, because nothing
//! checks the servers any more.

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
pub use message::{Facts, Report, RouteReport, VipFact};
pub use process::run;
