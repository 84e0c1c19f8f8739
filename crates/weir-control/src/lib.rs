//! Desired state to plan to effect; status, API and metrics.

pub mod real_server;
