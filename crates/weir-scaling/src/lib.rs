//! Simulates a group of directors behind an ECMP router, and counts the connections that changes break.
//!
//! [`router`] models how a router selects a director, [`design`] how a director selects a server. [`simulation`]
//! changes servers and directors, and counts the sampled connections that reach a different server than before.
//! [`capacity`] calculates the packet rate, CPUs and memory of one director from measured costs. The crate does no I/O;
//! the same seed gives the same result. `weir lab scaling` prints the results of the simulation and the calculation,
//! and docs/scaling.md explains them.

pub mod capacity;
pub mod design;
pub mod router;
pub mod simulation;

pub use capacity::{Costs, Load, Requirements};
pub use design::Design;
pub use router::Router;
pub use simulation::{Error, Group, Outcome, Scenario, Simulation};
