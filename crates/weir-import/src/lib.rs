//! Other balancers' configurations, read and said again as `weir.toml`.
//!
//! Each importer reads its program's language as the program does, and writes what has a place in ours. Every line that has
//! none, or that its own program would refuse, is named with its number and the reason; nothing is dropped in silence. The
//! text always passes `weir check`: what the configuration's own parser refuses is taken out again and reported, so that an
//! importer may speak of keys that a build lacks.
//!
//! The crate refuses to open files, to resolve names and to know the machine: [`World`] does that for it.

mod document;
mod edit;
mod guard;
mod haproxy;
mod inert;
mod keepalived;
mod layer4;
mod layer7;
mod ldirectord;
mod name;
mod nginx;
mod note;
mod probe;
mod settle;
mod time;
mod world;

pub use haproxy::haproxy;
pub use keepalived::keepalived;
pub use ldirectord::ldirectord;
pub use nginx::nginx;
pub use world::{Alone, World};

/// A configuration, and what has no place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The text of weir.toml; `weir check` accepts it.
    pub toml: String,
    /// One line for each line that was not carried over, or not wholly, in the order of the files.
    pub notes: Vec<String>,
    /// Those of the notes that are about lines which clients or servers see something of: what they ask for is not carried over, or
    /// otherwise. The other notes are about the program itself, or say what it does unasked.
    pub losses: Vec<String>,
    /// Those of the losses that are about lines which refuse, limit or authenticate clients: without these lines weir.toml may let in
    /// whom the file keeps out.
    pub unguarded: Vec<String>,
}
