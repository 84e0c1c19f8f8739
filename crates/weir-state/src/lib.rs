//! Owns the run-time state of servers for both planes: overrides, health, ejection, slow start.
//!
//! [`ServerStates`] receives events (check results, operators' overrides, traffic samples, an applied
//! configuration) and returns effective weights, the pools whose weights may have changed, and records to persist. The
//! layer 4 plane and the proxy read weights here and keep no server state of their own. [`ServerStates::place_order`]
//! changes an override: it is recorded first, then applied.
//!
//! Time is an argument: a [`Duration`](std::time::Duration) since the Unix epoch. The crate opens no file; its
//! persistent state is in serde types ([`OverrideFile`], [`SavedServers`]) that weir-control reads and writes.

mod copy;
mod ejection;
mod order;
mod overrides;
mod pool;
mod record;
mod server_health;
mod states;
mod weight;

pub use copy::StateCopy;
pub use ejection::{EjectedServer, EjectionEvent, PoolSamples, Source};
pub use order::{Driver, OrderError};
pub use overrides::{Override, Overrides, ServerUpdate};
pub use pool::{PoolChange, PoolState};
pub use record::{
    HealthRecord, OverrideFile, OverrideRecord, SavedHealth, SavedServerHealth, SavedServers,
};
pub use server_health::{HealthEvent, state_before_first_result};
pub use states::ServerStates;
pub use weight::{PoolWeights, ServerWeight};
