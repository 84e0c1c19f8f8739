//! What can go wrong between a configuration and its effect.

use std::path::PathBuf;

use super::Claim;

/// A change that was not made, or not wholly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The BPF side.
    #[error(transparent)]
    Dataplane(#[from] weir_dataplane::Error),
    /// Addresses, routes, neighbours.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// Addresses for proxy services.
    #[error(transparent)]
    Vip(#[from] crate::vip::Error),
    /// The configuration has no rows.
    #[error(transparent)]
    Plan(#[from] weir_planner::Error),
    /// The kernel around them.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// A file of the runtime directory.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The state file was written by a newer Weir.
    #[error("{path}: version {found} is not known here", path = path.display())]
    StateVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The file wants what ipvsadm has made.
    #[error(transparent)]
    Claimed(Claim),
    /// No such pool or server.
    #[error("no server {server} in pool {pool}")]
    NoServer {
        /// The pool.
        pool: String,
        /// The server, as given.
        server: String,
    },
    /// A weight that is none.
    #[error("weight {weight} is above {most}")]
    Weight {
        /// The weight.
        weight: u32,
        /// The highest.
        most: u32,
    },
    /// An interface of the configuration is not there.
    #[error("there is no interface {name}")]
    NoInterface {
        /// Its name.
        name: String,
    },
    /// The interface has a program that is not this director's in the place of this one's.
    #[error("interface {interface} has another {hook} program already: {holder}; {fix}")]
    ForeignProgram {
        /// Its name.
        interface: String,
        /// `XDP` or `tc`.
        hook: &'static str,
        /// The program, and what is known of its owner.
        holder: String,
        /// How it goes away.
        fix: String,
    },
    /// No room for lists and hash tables.
    #[error("no room for {elements} elements of tables: raise max_servers in [node]")]
    NoRoom {
        /// What was asked for.
        elements: u32,
    },
    /// A change failed midway, and so did taking it back.
    #[error("{cause}; what was in force could not be put back wholly: {back}")]
    Halfway {
        /// Why the change failed.
        cause: Box<Error>,
        /// Why the way back did.
        back: Box<Error>,
    },
}

/// The result of every fallible function of the engine.
pub type Result<T> = std::result::Result<T, Error>;
