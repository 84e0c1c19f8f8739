//! Implements the helper of an unprivileged daemon, which opens files and sockets and runs programs for the daemon.
//!
//! The policy is the configuration file of `weir run`, which names the files, sockets and programs. The helper reads
//! the file itself, and rejects it unless it is a regular file that only root can change. The helper refuses and logs a
//! request that neither the file nor its previous content permits. Requests cannot change the policy.
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
