//! The state of servers at run time, with one owner for both planes: overrides, health, ejection, slow start.
//!
//! [`ServerStates`] receives events (results of checks, orders of operators, traffic samples, a configuration that was
//! applied) and returns effective weights, the pools whose weights may have changed, and records to persist. The layer
//! 4 plane and the proxy read weights here and keep no state of servers of their own. [`ServerStates::place_order`]
//! fixes the sequence of an order: it is recorded first, then applied.
//!
//! Time is an argument: a [`Duration`](std::time::Duration) since the Unix epoch. The crate opens no file; what it
//! persists are serde types ([`OrderFile`], [`SavedServers`]), and weir-control reads and writes them.

mod copy;
mod ejection;
mod order;
mod overrides;
mod pool;
mod record;
mod standing;
mod states;
mod weight;

pub use copy::StateCopy;
pub use ejection::{Ejected, EjectionEvent, Source, Watched};
pub use order::{Driver, OrderError};
pub use overrides::{Override, Overrides, ServerOrder};
pub use pool::{PoolChange, PoolState};
pub use record::{
    OrderFile, OverrideRecord, SavedServers, SavedStanding, SavedStandings, StandingRecord,
};
pub use standing::{HealthEvent, state_before_first_result};
pub use states::ServerStates;
pub use weight::{PoolWeights, ServerWeight};
