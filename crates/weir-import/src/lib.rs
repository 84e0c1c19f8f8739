//! Converts configurations of haproxy, keepalived, ldirectord and nginx to `weir.toml`.
//!
//! Each importer parses a configuration as the other program does, and writes the settings that weir.toml supports.
//! Every line that is not supported, or that the other program rejects, gets a note with the line's number and the
//! reason; nothing is dropped silently. The output always passes `weir check`: everything that the configuration parser
//! rejects is removed and reported, so an importer can write keys that this build does not support.
//!
//! The crate does not open files, resolve names or read the state of the host: the caller's [`Environment`] does that.

mod annotate;
mod block;
mod document;
mod edit;
mod environment;
mod guard;
mod haproxy;
mod inert;
mod keepalived;
mod layer4;
mod layer7;
mod ldirectord;
mod mail;
mod name;
mod nginx;
mod note;
mod probe;
mod scheduler;
mod shared_check;
mod time;
mod tls_suite;
mod validate;

pub use environment::{EmptyEnvironment, Environment};
pub use haproxy::haproxy;
pub use keepalived::keepalived;
pub use ldirectord::ldirectord;
pub use nginx::nginx;

/// An imported configuration, and notes about the parts that were not imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The text of weir.toml; `weir check` accepts it.
    pub toml: String,
    /// Notes about lines that were not imported completely, in file order.
    pub notes: Vec<String>,
    /// The notes about lines whose effect on clients or servers was lost or changed. The remaining notes are about
    /// how the other program itself runs, or about its defaults.
    pub losses: Vec<String>,
    /// The losses of lines that reject, limit or authenticate clients: without these lines, weir.toml may admit clients
    /// that the file rejects.
    pub unguarded: Vec<String>,
}
