//! Defines the state that the status, metrics and explanations show.
//!
//! It contains only values that were read at the same time, and no handles.

mod checks;

use std::net::SocketAddr;
use std::time::SystemTime;

use weir_engine::snapshot::Layer4Snapshot;
pub use weir_engine::snapshot::{
    CheckStatus, Drift, FlowTableStatus, InterfaceStatus, ServerState, ServerStatus, ServiceStatus,
    Totals, VipStatus, Warning,
};
use weir_health::Ejection;
use weir_model::ProxyProtocol;
use weir_probing::ProbeStats;
use weir_state::PoolState;

pub use crate::trace_export::TraceStatus;

/// A director's state at one point in time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Number of configurations that have been applied; survives restarts.
    pub revision: u64,
    /// Interfaces that the packet path is attached to, with their modes.
    pub interfaces: Vec<InterfaceStatus>,
    /// Layer 4 services in file order.
    pub services: Vec<ServiceStatus>,
    /// Proxy services in file order.
    pub proxies: Vec<ProxyStatus>,
    /// Packets by reason: label, description and number of packets on all CPUs.
    pub reasons: Vec<(&'static str, &'static str, u64)>,
    /// Counters of the latency estimator: label, description and count.
    pub latency: Vec<(&'static str, &'static str, u64)>,
    /// The state of the flow table.
    pub flows: FlowTableStatus,
    /// Counters of the checks.
    pub probing: ProbeStats,
    /// Number of repaired kernel objects, by kind.
    pub drift: Drift,
    /// File descriptors of the proxy; `None` without proxy services.
    pub open_files: Option<OpenFiles>,
    /// Counters of the trace export; `None` = tracing is off.
    pub traces: Option<TraceStatus>,
}

/// Converts the layer 4 part. The caller adds the other parts.
impl From<Layer4Snapshot> for Snapshot {
    fn from(layer4: Layer4Snapshot) -> Self {
        Self {
            revision: layer4.revision,
            interfaces: layer4.interfaces,
            services: layer4.services,
            reasons: layer4.reasons,
            latency: layer4.latency,
            flows: layer4.flows,
            drift: layer4.drift,
            ..Self::default()
        }
    }
}

/// The proxy's use of file descriptors.
#[derive(Clone, Debug, Default)]
pub struct OpenFiles {
    /// The limit, and the number in use.
    pub numbers: weir_proxy::Descriptors,
    /// A message for each service whose connection limits exceed the descriptor limit.
    pub exceeding: Vec<String>,
}

/// One proxy service.
#[derive(Clone, Debug)]
pub struct ProxyStatus {
    /// Addresses that the service listens on.
    pub listen: Vec<SocketAddr>,
    /// The state of the first listening address.
    pub vip: VipStatus,
    /// The protocol.
    pub protocol: ProxyProtocol,
    /// The scheduler.
    pub scheduler: String,
    /// The pool.
    pub pool: String,
    /// The pool's state if it is in panic mode or below its quorum.
    pub pool_state: Option<PoolState>,
    /// The name and the counters. `servers` contains the servers with their states.
    pub numbers: weir_proxy::ServiceStatus,
    /// When the state was read.
    pub now: SystemTime,
    /// The servers in file order.
    pub servers: Vec<ProxyServerStatus>,
}

/// One server in a proxy service.
#[derive(Clone, Debug)]
pub struct ProxyServerStatus {
    /// The weight in the configuration.
    pub weight: u32,
    /// The server's state.
    pub state: ServerState,
    /// The reason for the server's state.
    pub reason: String,
    /// When the server entered its state.
    pub since: SystemTime,
    /// The active ejection for failed requests.
    pub ejected: Option<Ejection>,
    /// The active override.
    pub overridden: Option<String>,
    /// The weight that the server's checks set, instead of the configured or overriding weight.
    pub check_weight: Option<u32>,
    /// During slow start, the current share of the weight in thousandths.
    pub slow_start: Option<u32>,
    /// The server's checks; empty while they are suspended.
    pub checks: Vec<CheckStatus>,
    /// The name and the counters.
    pub numbers: weir_proxy::ServerStatus,
    /// Maximum number of connections; 0 = no limit.
    pub max_connections: u32,
    /// Whether the server is used only while no other server is available.
    pub backup: bool,
    /// Whether histograms of this server are exported.
    pub histograms: bool,
}
