//! Tests that the status, the log and the counters report each fault, name its cause, and report nothing else.

mod world;

#[path = "diagnostics/counters.rs"]
mod counters;
#[path = "diagnostics/gateway.rs"]
mod gateway;
#[path = "world/log_line.rs"]
mod log_line;
#[path = "diagnostics/log_lines.rs"]
mod log_lines;
#[path = "diagnostics/pins.rs"]
mod pins;
#[path = "diagnostics/routed_pools.rs"]
mod routed_pools;

use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the service with this name from a status document.
fn service<'a>(status: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let services = status["services"].as_array().expect("services is an array");
    let entry = services.iter().find(|service| service["name"] == name);
    entry.unwrap_or_else(|| panic!("{name} is not in {status:#}"))
}
