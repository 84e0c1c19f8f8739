//! Desired state to map rows: which service and server has which row, and what every row of the data plane contains.
//!
//! [`allocation`] gives rows to services and servers and keeps them while flows live. [`rows`] plans one service, with
//! its lists and hash tables from [`extent`] and flags from [`policy`]; [`row_set`] aggregates the rows of all services
//! and reports which ones changed. Counts, cursors, weights, time and routes are arguments. weir-engine writes the
//! rows into maps, in an order that is safe under traffic.

pub mod allocation;
mod error;
pub mod extent;
mod index;
pub mod mark;
mod number;
pub mod policy;
pub mod row_set;
pub mod rows;
pub mod scheduler;
pub mod socket;
#[cfg(test)]
mod tests;
mod totals;

pub use error::{Error, Result};
pub use totals::Totals;
