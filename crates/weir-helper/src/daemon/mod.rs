//! Implements the helper of an unprivileged daemon, which opens files and sockets and runs programs for the daemon.
//!
//! The configuration names the files, sockets and programs.
//!
//! The policy is the configuration file of `weir run`. The helper reads the file itself, and rejects a file that users
//! other than root can write to. It refuses and logs a request that the file does not permit. Requests cannot change
//! the policy.
//!
//! The keeper holds the helper's end of the channel. It replaces a helper that dies. The first message of the new
//! helper makes the daemon resend the unanswered requests.

mod client;
mod message;
mod ping;
mod policy;
mod run;
mod serve;

pub use client::DaemonClient;
pub use policy::{address_digest, is_trusted, read_trusted, section_digest};
pub use serve::serve_daemon;
