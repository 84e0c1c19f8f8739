//! ipvsadm's language, as values: command lines, their checks and messages, the table that they edit, its listings.
//!
//! What ipvsadm 1.31 does between its arguments and the kernel is [`parse()`]; what the kernel's control plane does with the
//! answer is [`Table`]; what comes back to the terminal is [`Listing`] and [`Connection`]. Names of hosts and ports are
//! asked of a [`Names`], so that nothing here reads a file or the network. The crate refuses to know where a table is kept,
//! how it comes into force, and who counts.
//!
//! Every message and format is the tool's, to the byte (ipvsadm.c, libipvs.c of ipvsadm 1.31, popt 1.19). Where Weir
//! differs on purpose, `docs/manual/ipvsadm.md` says so.

mod connection;
mod estimate;
mod format;
mod import;
mod legality;
mod listing;
mod lower;
mod names;
mod parse;
mod popt;
mod restore;
mod save;
mod sort;
mod table;
mod text;
mod usage;
mod value;

pub use connection::{Connection, connections};
pub use estimate::{Estimate, Estimator};
pub use import::{Imported, import};
pub use listing::{Columns, Counters, ListedServer, ListedService, Listing, Rates, timeouts};
pub use lower::{lower, name_of, server_name};
pub use names::{Names, Numeric};
pub use parse::{Command, Exit, List, parse};
pub use restore::{read_error, words};
pub use table::{Edit, Errno, Refusal, Table, TableService};
pub use usage::{usage, version};
pub use value::{
    Forward, MAX_WEIGHT, Mask, Persistence, Protocol, Server, ServerEdit, ServerKey, Service,
    ServiceKey, SyncDaemon, Timeouts, Tunnel,
};
pub use weir_model::TunnelKind;
