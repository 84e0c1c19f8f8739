//! The helper of a daemon without rights: opens files and sockets and runs programs that the configuration names.
//!
//! The policy is the configuration file of `weir run`, which the helper reads itself, and only if root alone can
//! write it. A request that the file does not cover is refused and logged. No request changes the policy; a changed
//! file does.
//!
//! The keeper holds the helper's end of the channel. A helper that dies is replaced, and its first message makes the
//! daemon repeat the requests that were not answered.

mod client;
mod message;
mod ping;
mod policy;
mod run;
mod serve;

pub use client::DaemonClient;
pub use policy::{address_digest, is_trusted, read_trusted, section_digest};
pub use serve::serve_daemon;
