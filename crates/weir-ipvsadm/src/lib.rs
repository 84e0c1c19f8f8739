//! Implements ipvsadm's command line: parsing, validation, messages, listings, and the table that it edits.
//!
//! [`parse()`] implements ipvsadm 1.31 up to its calls to the kernel. [`Table`] implements the kernel's control plane.
//! [`Listing`] and [`Connection`] format the output. Host and port names are looked up through [`Names`], so this crate
//! does not access files or the network. The crate does not store the table, apply it to the data plane, or count
//! packets.
//!
//! All messages and formats match the tool byte for byte (ipvsadm.c, libipvs.c of ipvsadm 1.31, popt 1.19).
//! `docs/manual/ipvsadm.md` lists intentional differences.

mod connection;
mod estimate;
mod exit;
mod format;
mod import;
mod listing;
mod lower;
mod names;
mod option_rule;
mod parse;
mod popt;
mod restore;
mod save;
mod sort;
mod table;
mod text;
mod usage;
mod value;

pub use connection::{Connection, format_connections};
pub use estimate::{Estimate, Estimator};
pub use exit::Exit;
pub use import::{ImportResult, import};
pub use listing::{
    Columns, Counters, ListedServer, ListedService, Listing, Rates, format_timeouts,
};
pub use lower::{lower, server_name, service_name};
pub use names::{Names, NumericNames};
pub use parse::{Command, List, parse};
pub use restore::{read_error, words};
pub use table::{Edit, EditError, Errno, Table, TableService};
pub use usage::{usage, version};
pub use value::{
    Forward, MAX_WEIGHT, Mask, Persistence, Protocol, Server, ServerEdit, ServerKey, Service,
    ServiceKey, SyncDaemon, Timeouts, Tunnel,
};
pub use weir_model::TunnelKind;
