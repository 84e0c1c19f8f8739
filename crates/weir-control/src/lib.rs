//! Desired state to plan to effect; status, API and metrics.

pub mod real_server;
pub mod api;
pub mod client;
pub mod configuration;
pub mod daemon;
pub mod explain;
pub mod metrics;
pub mod plan;
pub mod snapshot;
pub mod status;
