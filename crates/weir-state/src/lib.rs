//! Owns the run-time state of servers for both planes: overrides, health, ejections and slow start.
//!
//! [`ServerStates`] receives events (check results, overrides from operators, traffic samples, applied configurations).
//! It returns effective weights, the pools whose weights may have changed, and the records to persist. The layer 4
//! plane and the proxy read weights here and keep no server state of their own. [`ServerStates::change_override`]
//! records a changed override before applying it.
//!
//! The caller passes the time as a [`Duration`](std::time::Duration) since the Unix epoch, from a clock that does not
//! follow steps of the wall clock. The crate opens no files; its persistent state consists of serde types
//! ([`OverrideFile`], [`SavedServers`]) that weir-control reads and writes.

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
pub use order::{Driver, OverrideError};
pub use overrides::{Override, Overrides, ServerUpdate};
pub use pool::{PoolChange, PoolState};
pub use record::{
    HealthRecord, OverrideFile, OverrideRecord, SavedHealth, SavedServerHealth, SavedServers,
};
pub use server_health::{HealthEvent, state_before_first_result};
pub use states::ServerStates;
pub use weight::{PoolWeights, ServerWeight};
