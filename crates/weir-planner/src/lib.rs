//! Converts desired state to map rows: assigns rows to services and servers, and plans their contents.
//!
//! [`allocation`] assigns rows to services and servers and keeps them while there are flows. [`rows`] plans one
//! service, with its lists and hash tables from [`extent`] and flags from [`policy`]; [`row_set`] aggregates the rows
//! of all services and returns which rows changed. Counters, cursors, weights, time and routes are arguments.
//! weir-engine writes the rows into maps, in an order that is safe under traffic.

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
