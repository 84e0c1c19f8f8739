//! The state of layer 4 that status, metrics and explanations show: plain values, read once, no handles.

mod wire;

use std::net::IpAddr;
use std::time::SystemTime;

use weir_health::Ejection;
use weir_model::Forward;
pub use weir_planner::Totals;
use weir_state::PoolState;

/// One of a few names. An alias, because serde's derive borrows from its input for every `&str`.
pub type Name = &'static str;

/// Label, description, and count over all CPUs.
pub type Counter = (Name, Name, u64);

/// The state of layer 4.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Layer4Snapshot {
    /// Number of configurations that have been applied; survives restarts.
    pub revision: u64,
    /// Where XDP is attached, and how.
    pub interfaces: Vec<InterfaceStatus>,
    /// Services in file order.
    pub services: Vec<ServiceStatus>,
    /// Packets by reason: label, what it means, count over all CPUs.
    #[serde(deserialize_with = "wire::reasons")]
    pub reasons: Vec<Counter>,
    /// Counters of the latency estimator: label, description and count.
    #[serde(deserialize_with = "wire::latency")]
    pub latency: Vec<Counter>,
    /// State of the flow table.
    pub flows: FlowTableStatus,
    /// Drifted kernel objects that were repaired.
    pub drift: Drift,
}

/// Drifted kernel objects that were repaired, since the daemon began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Drift {
    /// Programs that were missing or replaced.
    pub programs: u64,
    /// Map elements that were missing or changed.
    pub elements: u64,
    /// Added VIPs that were missing.
    pub addresses: u64,
    /// Servers whose neighbour moved to another link address.
    pub neighbours: u64,
    /// Devices, programs, routes and rules for packets with a firewall mark.
    #[serde(default)]
    pub marks: u64,
    /// Settings, addresses and programs that `weir real-server` had set up on this machine.
    #[serde(default)]
    pub real_server: u64,
}

/// One interface of the director.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct InterfaceStatus {
    /// Name, as `ip link` shows it.
    pub name: String,
    /// `"native"`, `"generic"` or `"tc"`.
    #[serde(deserialize_with = "wire::mode")]
    pub mode: Name,
    /// Why this mode was selected.
    pub reason: String,
}

/// Fill and health of the flow table.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct FlowTableStatus {
    /// Slots.
    pub places: u64,
    /// Entries that hold a flow, one for each direction under nat.
    pub entries: u64,
    /// Flows that the sweep has expired since the table was created.
    pub expired: u64,
}

/// Whether the director has a service's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum VipStatus {
    /// Present, but not added by Weir: an operator's, keepalived's, Pacemaker's.
    Local,
    /// Added by Weir (`vip_interface`).
    Added,
    /// Missing; packets may still be routed here.
    Absent,
}

/// One service.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ServiceStatus {
    /// Name in the file.
    pub name: String,
    /// `"file"` or `"ipvsadm"`.
    #[serde(deserialize_with = "wire::origin")]
    pub origin: Name,
    /// Where clients reach it.
    pub listen: Vec<String>,
    /// State of its first address.
    pub vip: VipStatus,
    /// Its forwarding method; servers may differ.
    #[serde(with = "wire::forward")]
    pub forward: Forward,
    /// Scheduler as IPVS names it.
    pub scheduler: String,
    /// Its pool.
    pub pool: String,
    /// The pool's state if it is exceptional: in panic mode, or below its quorum.
    pub regime: Option<PoolState>,
    /// Persistence in words, `5m /32 /128`.
    pub persistence: Option<String>,
    /// Every UDP packet is scheduled.
    pub one_packet: bool,
    /// Totals since the service was created, including removed servers.
    pub totals: Totals,
    /// Servers in file order, then removed ones that still have flows.
    pub servers: Vec<ServerStatus>,
}

/// State of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ServerState {
    /// By its checks.
    Up,
    /// By its checks.
    Down,
    /// Before the first result of a check.
    Starting,
    /// No new flows, by an operator's override.
    Drain,
    /// The same, and no checks.
    Maint,
    /// No check is configured.
    Unchecked,
}

impl ServerState {
    /// As status shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Starting => "starting",
            Self::Drain => "drain",
            Self::Maint => "maint",
            Self::Unchecked => "unchecked",
        }
    }
}

/// One server in a service.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ServerStatus {
    /// ADDRESS as in the file.
    pub name: String,
    /// The address itself.
    pub address: IpAddr,
    /// The port given in the file.
    pub port: Option<u16>,
    /// Its forwarding method.
    #[serde(with = "wire::forward")]
    pub forward: Forward,
    /// Configured.
    pub weight: u32,
    /// What the scheduler uses.
    pub effective_weight: u32,
    /// Its state.
    pub state: ServerState,
    /// Why it is in that state.
    pub reason: String,
    /// Since when.
    pub since: SystemTime,
    /// The active override as given to `weir server` ("drain", "maint", "weight 3").
    pub overridden: Option<String>,
    /// Flows in an active state now.
    pub active_connections: u64,
    /// Flows in another state now.
    pub inactive_connections: u64,
    /// Persistence entries for this server.
    pub persistent_connections: u64,
    /// At its upper threshold: no new flows.
    pub overloaded: bool,
    /// Totals since the server was created.
    pub totals: Totals,
    /// Removed from the configuration; its flows continue.
    pub removed: bool,
    /// The active ejection by failed handshakes.
    pub ejected: Option<Ejection>,
    /// A problem of a server that still receives clients.
    pub warning: Option<Warning>,
    /// SYNs sent to it, and established flows, since the server was created.
    pub handshakes: (u64, u64),
    /// Its estimated latency, if there are samples.
    pub latency: Option<weir_latency::Summary>,
    /// The weight that its checks set instead of the configured or overridden one.
    pub check_weight: Option<u32>,
    /// Thousandths of its weight during slow start.
    pub slow_start: Option<u32>,
    /// Its checks; none while they are suspended.
    #[serde(skip)]
    pub checks: Vec<CheckStatus>,
}

/// A problem of a server that still receives clients.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Warning {
    /// The observation and its likely cause.
    pub reason: String,
    /// Since when.
    pub since: SystemTime,
}

/// By checks.
impl From<weir_health::State> for ServerState {
    fn from(state: weir_health::State) -> Self {
        match state {
            weir_health::State::Starting => Self::Starting,
            weir_health::State::Up => Self::Up,
            weir_health::State::Down => Self::Down,
        }
    }
}

/// One check of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckStatus {
    /// `http 10.0.0.5:80`.
    pub what: String,
    /// `"up"`, `"down"` or `"starting"`.
    pub state: &'static str,
    /// The last result in words.
    pub reason: String,
    /// The last results, the newest last, as `+` and `-`.
    pub results: String,
    /// Its probes.
    pub counts: weir_health::ProbeCounts,
}
