//! Defines the layer 4 state that status and metrics show: plain values, read once, without references to the engine.

mod wire;

use std::net::IpAddr;
use std::time::SystemTime;

use weir_health::Ejection;
use weir_model::Forward;
pub use weir_planner::Totals;
use weir_state::PoolState;

/// A name from a fixed set. It is an alias, because serde's derive makes every `&str` field borrow from the input.
pub type Name = &'static str;

/// Label, description, and count over all CPUs.
pub type Counter = (Name, Name, u64);

/// The state of layer 4.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Layer4Snapshot {
    /// Number of configurations that have been applied; survives restarts.
    pub revision: u64,
    /// Interfaces that the packet path is attached to, each with its mode.
    pub interfaces: Vec<InterfaceStatus>,
    /// Services in file order.
    pub services: Vec<ServiceStatus>,
    /// Packets by reason: label, description, count over all CPUs.
    #[serde(deserialize_with = "wire::reasons")]
    pub reasons: Vec<Counter>,
    /// Counters of the latency estimator: label, description and count.
    #[serde(deserialize_with = "wire::latency")]
    pub latency: Vec<Counter>,
    /// State of the flow table.
    pub flows: FlowTableStatus,
    /// Number of repaired kernel objects, by kind.
    pub drift: Drift,
}

/// Number of drifted kernel objects that were repaired since the daemon started, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Drift {
    /// Programs that were missing or replaced.
    pub programs: u64,
    /// Map elements that were missing or changed.
    pub elements: u64,
    /// Added VIPs that were missing.
    pub addresses: u64,
    /// Changes to the MAC address of a server's neighbor.
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

/// Occupancy of the flow table.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct FlowTableStatus {
    /// Number of slots.
    pub slots: u64,
    /// Number of entries that contain a flow; with `nat`, a flow has one entry for each direction.
    pub entries: u64,
    /// Number of flows that the sweep has removed since the table was created.
    pub expired: u64,
}

/// State of a service's address on the director.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum VipStatus {
    /// Present, but not added by Weir: an operator, keepalived or Pacemaker may have added it.
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
    /// Its listeners and marks.
    pub listen: Vec<String>,
    /// State of its first address.
    pub vip: VipStatus,
    /// Its forwarding method; servers may differ.
    #[serde(with = "wire::forward")]
    pub forward: Forward,
    /// The scheduler's name in IPVS.
    pub scheduler: String,
    /// Its pool.
    pub pool: String,
    /// The pool's state if it is in panic mode or below its quorum.
    pub pool_state: Option<PoolState>,
    /// Persistence as text: `5m /32 /128`.
    pub persistence: Option<String>,
    /// Whether every UDP packet is scheduled separately.
    pub one_packet: bool,
    /// Totals since the service was created, including removed servers.
    pub totals: Totals,
    /// Servers in file order, then removed servers that still have flows; with `[sync]`, for at least a minute.
    pub servers: Vec<ServerStatus>,
}

/// State of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ServerState {
    /// Up according to its checks.
    Up,
    /// Down according to its checks.
    Down,
    /// Its checks have no result yet.
    Starting,
    /// No new flows, because of an operator's override.
    Drain,
    /// Like `Drain`, and without checks.
    Maint,
    /// No check is configured.
    Unchecked,
}

impl ServerState {
    /// Returns the name that status shows.
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
    /// Its address as in the file.
    pub name: String,
    /// Its IP address.
    pub address: IpAddr,
    /// The port given in the file.
    pub port: Option<u16>,
    /// Its forwarding method.
    #[serde(with = "wire::forward")]
    pub forward: Forward,
    /// Configured weight.
    pub weight: u32,
    /// Weight that the scheduler uses.
    pub effective_weight: u32,
    /// Its state.
    pub state: ServerState,
    /// Why it is in that state.
    pub reason: String,
    /// When it entered that state.
    pub since: SystemTime,
    /// The active override as given to `weir server` ("drain", "maint", "weight 3").
    pub overridden: Option<String>,
    /// Number of flows in an active state.
    pub active_connections: u64,
    /// Number of flows in other states.
    pub inactive_connections: u64,
    /// Number of persistence entries for this server.
    pub persistent_connections: u64,
    /// Whether the server is at its upper threshold and gets no new flows.
    pub overloaded: bool,
    /// Totals since the server was created.
    pub totals: Totals,
    /// Whether the server was removed from the configuration; its flows continue.
    pub removed: bool,
    /// The active ejection because of failed handshakes.
    pub ejected: Option<Ejection>,
    /// A problem with a server that still receives clients.
    pub warning: Option<Warning>,
    /// Number of SYNs sent to the server, and number of flows that became established, since the server was created.
    pub handshakes: (u64, u64),
    /// Time since the last SYN in seconds, while no flow has become established; `None` = unknown.
    #[serde(default)]
    pub last_syn_seconds: Option<u64>,
    /// Its estimated latency, if there are samples.
    pub latency: Option<weir_latency::Summary>,
    /// The weight that its checks set instead of the configured or overridden weight.
    pub check_weight: Option<u32>,
    /// Share of its weight during slow start, in thousandths.
    pub slow_start: Option<u32>,
    /// Its checks; none while they are suspended.
    #[serde(skip)]
    pub checks: Vec<CheckStatus>,
}

/// A problem with a server that still receives clients.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Warning {
    /// The observed behavior and its likely cause.
    pub reason: String,
    /// When the problem began.
    pub since: SystemTime,
    /// Time since the problem was last observed, in seconds.
    #[serde(default)]
    pub last_seen_seconds: u64,
}

/// Converts the state that the checks report.
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
    /// The check, such as `http 10.0.0.5:80`.
    pub what: String,
    /// `"up"`, `"down"` or `"starting"`.
    pub state: &'static str,
    /// Description of the last result.
    pub reason: String,
    /// The last results as `+` and `-`, newest last.
    pub results: String,
    /// Counters of its probes.
    pub counts: weir_health::ProbeCounts,
}
