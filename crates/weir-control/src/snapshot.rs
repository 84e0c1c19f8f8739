//! The state that status, metrics and explanations show: plain values, read once, no handles.

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
use weir_probing::Probing;
use weir_state::PoolState;

pub use crate::trace_export::TraceStatus;

/// The state of a director.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Number of configurations that have been applied; survives restarts.
    pub revision: u64,
    /// Where XDP is attached, and how.
    pub interfaces: Vec<InterfaceStatus>,
    /// Layer 4 services in file order.
    pub services: Vec<ServiceStatus>,
    /// Proxy services in file order.
    pub proxies: Vec<ProxyStatus>,
    /// Packets by reason: label, what it means, count over all CPUs.
    pub reasons: Vec<(&'static str, &'static str, u64)>,
    /// Counters of the latency estimator: label, description and count.
    pub latency: Vec<(&'static str, &'static str, u64)>,
    /// State of the flow table.
    pub flows: FlowTableStatus,
    /// Counters of the checks.
    pub probing: Probing,
    /// Drifted kernel objects that were repaired.
    pub drift: Drift,
    /// Descriptors of the proxy; `None` without proxy services.
    pub open_files: Option<OpenFiles>,
    /// Traces of requests; `None` = they are off.
    pub traces: Option<TraceStatus>,
}

/// The part of layer 4; the caller adds the others.
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

/// The process's descriptors, as far as the proxy uses them.
#[derive(Clone, Debug, Default)]
pub struct OpenFiles {
    /// Limit and use.
    pub numbers: weir_proxy::Descriptors,
    /// Which limits of services exceed them, and why.
    pub exceeding: Vec<String>,
}

/// One proxy service.
#[derive(Clone, Debug)]
pub struct ProxyStatus {
    /// Where clients reach it.
    pub listen: Vec<SocketAddr>,
    /// State of its first address.
    pub vip: VipStatus,
    /// Protocol.
    pub protocol: ProxyProtocol,
    /// Scheduler.
    pub scheduler: String,
    /// Its pool.
    pub pool: String,
    /// The pool's state if it is exceptional: in panic mode, or below its quorum.
    pub regime: Option<PoolState>,
    /// Name and counts, without servers: `servers` has those with their states.
    pub numbers: weir_proxy::ServiceStatus,
    /// When it was read.
    pub now: SystemTime,
    /// In file order.
    pub servers: Vec<ProxyServerStatus>,
}

/// One server in a proxy service.
#[derive(Clone, Debug)]
pub struct ProxyServerStatus {
    /// Configured.
    pub weight: u32,
    /// Its state.
    pub state: ServerState,
    /// Why it is in that state.
    pub reason: String,
    /// Since when.
    pub since: SystemTime,
    /// The active ejection by failed requests.
    pub ejected: Option<Ejection>,
    /// The active override.
    pub overridden: Option<String>,
    /// The weight that its checks set instead of the configured or overridden one.
    pub check_weight: Option<u32>,
    /// Thousandths of its weight during slow start.
    pub slow_start: Option<u32>,
    /// Its checks; none while they are suspended.
    pub checks: Vec<CheckStatus>,
    /// Name and counts.
    pub numbers: weir_proxy::ServerStatus,
    /// Maximum number of connections; 0 = no limit.
    pub max_connections: u32,
    /// Used only when no other server is available.
    pub backup: bool,
    /// Whether histograms of this server are exported.
    pub histograms: bool,
}
