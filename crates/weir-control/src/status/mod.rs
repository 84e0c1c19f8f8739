//! Implements the status document, as JSON for programs and as a text table.
//!
//! The daemon creates the document from a [`Snapshot`](crate::snapshot::Snapshot); without a daemon, the command
//! creates it from the pinned data plane. The API sends the document, and the table is rendered only from the document,
//! so both show the same data. The document contains no rates; a rate is computed from two documents ([`table`]).

pub(crate) mod announce;
mod certificate;
mod conversion;
mod doctor;
pub mod exchanges;
mod group;
mod latency;
pub mod pinned;
mod proxy;
mod sync;
pub mod table;
mod time;
mod traces;
pub mod vrrp;

use serde::{Deserialize, Serialize};

use crate::snapshot::Drift;
use weir_discovery::Source;

use conversion::{state, vip};

pub use announce::AnnouncedVip;
pub use certificate::Certificate;
pub use group::{Group, GroupMember};
pub use latency::{Latency, Milliseconds};
pub use proxy::{ProxyServerDetails, ProxyServiceDetails};
pub use sync::Sync;
pub(crate) use time::parse_seconds;
pub use time::rfc3339;
pub use traces::Traces;
pub use vrrp::VirtualRouterStatus;

/// The service name under which metrics report the API's certificates. It is not a valid name for a service.
const API_SERVICE: &str = "[node] admin";

/// The response to `GET /v1/status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Number of configurations that have been applied.
    pub revision: u64,
    /// The daemon's process ID; absent without a daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Number of daemon crashes since `weir run` started; absent if zero.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// Cause of the last crash: `signal 9`, `exit code 101`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_death: Option<String>,
    /// Daemons that were replaced by an upgrade and still have clients, oldest first; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<Draining>,
    /// Interfaces that the packet path is attached to.
    pub xdp: Vec<Interface>,
    /// Number of packets of layer 4 services by path through this host; absent before the first packet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ways: PacketPaths,
    /// Services in file order.
    pub services: Vec<Service>,
    /// Use of the flow table.
    pub flows: Flows,
    /// Server lists; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// Counters of the checks; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<Checks>,
    /// File descriptors of the proxy; absent if there are no proxy services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<OpenFiles>,
    /// Number of packets by outcome; outcomes that never occurred are omitted.
    pub reasons: Vec<Reason>,
    /// Counters of the latency estimator; counters that are zero are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Reason>,
    /// Number of repaired kernel objects, by kind.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,
    /// Virtual routers in file order; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrrp: Vec<VirtualRouterStatus>,
    /// VIPs that are announced through BGP; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announce: Vec<AnnouncedVip>,
    /// Why VIPs cannot be announced; absent if they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce_error: Option<String>,
    /// Why the BGP speaker does not work as configured, although it announces the VIPs; absent if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce_warning: Option<String>,
    /// Whether an operator has drained this director; absent if not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drained: bool,
    /// Whether forwarding ends with the daemon's mount namespace, because the pins are in a bpffs that `ip netns exec`
    /// mounted; absent if not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pins_are_temporary: bool,
    /// Flow synchronization; absent without `[sync]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// Traces of proxied requests; absent without `[tracing]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Traces>,
    /// The group of directors; absent without `[cluster]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Group>,
    /// The last reloads in this process, oldest first; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reloads: Vec<Reload>,
    /// Number of reloads in this process; absent before the first reload.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reload_counts: ReloadCounts,
    /// The certificates of `[node] admin`, in order of expiry; absent if TLS is not configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admin_certificates: Vec<Certificate>,
    /// Why changed certificate files are not in use; absent if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_error: Option<String>,
    /// Why changed lists (networks, hosts, users, maps) are not in use; absent if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_error: Option<String>,
}

impl Report {
    /// Returns all certificates that are sent to clients, each with the name of its service, or [`API_SERVICE`] for the
    /// API.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = (&str, &Certificate)> {
        let api_certificates = self
            .admin_certificates
            .iter()
            .map(|certificate| (API_SERVICE, certificate));
        let service_certificates = self.services.iter().flat_map(|service| {
            let certificates = service.proxy.iter().flat_map(|proxy| &proxy.certificates);
            certificates.map(|certificate| (service.name.as_str(), certificate))
        });
        service_certificates.chain(api_certificates)
    }
}

/// Number of reloads in the daemon's process, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadCounts {
    /// Number of reloads that took effect, including those without a change.
    pub applied: u64,
    /// Number of reloads that failed. They changed nothing.
    pub refused: u64,
}

/// A reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Time of the reload, in RFC 3339 format.
    pub at: String,
    /// The revision that became active; absent if the reload failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Why the reload failed, in one line; absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The changes, one per line.
    pub changes: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The proxy's use of file descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFiles {
    /// Maximum number of open descriptors: RLIMIT_NOFILE.
    pub limit: u64,
    /// Number of connections from clients.
    pub clients: u64,
    /// Number of connections to servers.
    pub servers: u64,
    /// Maximum number of clients if each has a connection to a server. Further clients wait to be accepted.
    pub clients_max: u64,
    /// A message for each service whose limits exceed this maximum; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceeding: Vec<String>,
}

/// A draining daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// The daemon's process ID.
    pub pid: u32,
    /// The daemon's version of Weir.
    pub version: String,
    /// When the successor became active, in RFC 3339 format.
    pub since: String,
    /// Number of connected clients; updated once per second.
    pub clients: u64,
}

/// Clients' TCP handshakes since the server was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshakes {
    /// Number of SYNs sent to the server, including retransmissions.
    pub syns: u64,
    /// Number of flows that became established.
    pub finished: u64,
    /// Number of seconds since a SYN was last sent to the server, while no flow has become established; after a restart
    /// of the daemon, since its start. Absent if a flow has become established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_syn_seconds: Option<u64>,
}

/// An ejection by passive checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EjectionStatus {
    /// The observed behavior.
    pub reason: String,
    /// When the server was ejected, in RFC 3339 format.
    pub since: String,
    /// When the server will be retried, in RFC 3339 format.
    pub until: String,
}

/// A problem with a server that is still in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The observed behavior and its likely cause.
    pub reason: String,
    /// When the problem was first observed, in RFC 3339 format.
    pub since: String,
    /// Number of seconds since the problem was last observed.
    #[serde(default)]
    pub last_seen_seconds: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Number of layer 4 packets by path through this host, counted as they appear on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketPaths {
    /// Received and sent by XDP.
    pub xdp: u64,
    /// Received by XDP and sent by tc, because the neighbor was not resolved or XDP cannot send on the device.
    pub xdp_sent_by_tc: u64,
    /// Received by tc: all packets of an interface in mode `tc`, and packets with partial checksums from other
    /// interfaces.
    pub tc: u64,
}

impl PacketPaths {
    /// Computes the numbers from the total number of forwarded packets and the data plane's counters.
    pub(crate) fn new(forwarded: u64, reasons: &[Reason]) -> Self {
        let count = |label: &str| {
            let reason = reasons.iter().find(|reason| reason.reason == label);
            reason.map_or(0, |reason| reason.packets)
        };
        let (tc, sent) = (count("count_tc"), count("pass_to_tc"));
        let by_xdp = forwarded.saturating_sub(tc);
        Self {
            xdp: by_xdp.saturating_sub(sent),
            xdp_sent_by_tc: sent,
            tc,
        }
    }
}

/// An interface that the packet path is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name, as `ip link` shows it.
    pub interface: String,
    /// `native`, `generic` or `tc`.
    pub mode: String,
    /// The reason for this mode; absent if no daemon is running.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The flow table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// Number of slots.
    #[serde(rename = "places")]
    pub slots: u64,
    /// Number of slots in use; a nat flow uses two.
    pub entries: u64,
    /// Number of flows that have expired since the table was created.
    pub expired: u64,
}

/// Counters of the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Number of probed targets. A target that several servers share is counted once.
    pub targets: u64,
    /// Number of probes sent since the daemon started.
    pub probes: u64,
    /// Number of probes by how late they were sent: upper bound in milliseconds, and count. The last entry has no
    /// bound.
    pub lateness: Vec<(Option<u64>, u64)>,
}

/// A check of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Kind and target, such as `http 10.0.0.5:80`.
    pub check: String,
    /// `up`, `down` or `starting`.
    pub state: String,
    /// Description of the last result.
    pub reason: String,
    /// The last results, newest last: `+` passed, `-` failed.
    pub results: String,
    /// Number of probes with a result since the check was configured.
    #[serde(default)]
    pub probes: u64,
    /// Number of failed probes.
    #[serde(default)]
    pub failures: u64,
    /// Total duration of the probes in microseconds.
    #[serde(default)]
    pub time_us: u64,
    /// Duration of the last probe in microseconds.
    #[serde(default)]
    pub last_us: u64,
    /// Number of times the check has gone down since it was configured.
    #[serde(default)]
    pub downs: u64,
    /// Total time in state `down`, in seconds.
    #[serde(default)]
    pub downtime_s: u64,
    /// Number of consecutive passed probes that make the check `up`, as configured.
    #[serde(default)]
    pub rise: u32,
    /// Number of consecutive failed probes that make the check `down`, as configured.
    #[serde(default)]
    pub fall: u32,
}

/// The number of packets with one outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The outcome's label.
    pub reason: String,
    /// The meaning of the label.
    pub description: String,
    /// Number of packets on all CPUs.
    pub packets: u64,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Name.
    pub name: String,
    /// `file` or `ipvsadm`.
    pub origin: String,
    /// Listeners, such as `tcp/192.0.2.10:80`.
    pub listen: Vec<String>,
    /// The state of the first VIP: `local`, `added` or `absent`. `vrrp` shows which director has the addresses of
    /// virtual routers.
    pub vip: String,
    /// Forwarding method; `mixed` if the servers differ.
    pub forward: String,
    /// Scheduler, including flags.
    pub scheduler: String,
    /// Pool.
    pub pool: String,
    /// `panic` or `below quorum`; absent if the pool is in its normal state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_state: Option<String>,
    /// The reason for the pool's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_cause: Option<String>,
    /// Persistence: timeout, IPv4 prefix length and IPv6 prefix length, such as `5m /32 /128`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<String>,
    /// Whether every UDP packet is scheduled separately.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_packet: bool,
    /// Totals since the service was created.
    #[serde(flatten)]
    pub totals: Counters,
    /// Additional data about a proxy service.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyServiceDetails>,
    /// Servers in file order, then removed servers that still have flows. With `[sync]`, removed servers are listed for
    /// at least a minute.
    pub servers: Vec<Server>,
}

/// A server in a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The server's name, which is its address as in the file.
    pub address: String,
    /// The server's pool; absent for layer 4 services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Forwarding method.
    pub forward: String,
    /// The configured weight.
    pub weight: u32,
    /// The weight that the scheduler uses.
    pub effective_weight: u32,
    /// `up`, `down`, `starting`, `drain`, `maint` or `unchecked`.
    pub state: String,
    /// The reason for the server's state.
    pub reason: String,
    /// When the server entered this state, in RFC 3339 format.
    pub since: String,
    /// The active override, such as `drain`, `maint` or `weight 3`.
    #[serde(rename = "override", default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
    /// Whether the server was removed from the configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// The weight that the server's checks set, instead of the configured or overriding weight; absent if no check sets
    /// a weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_weight: Option<u32>,
    /// During slow start, the current share of the weight in thousandths; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<u32>,
    /// The active ejection by passive checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ejected: Option<EjectionStatus>,
    /// A problem that was observed although the checks pass. The server is still in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<Warning>,
    /// Clients' TCP handshakes with the server; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// The server's latency; absent if there are no samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// The server's checks; absent while they are suspended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Current number of flows in an active state.
    pub active_connections: u64,
    /// Current number of other flows.
    pub inactive_connections: u64,
    /// Number of persistence entries for this server.
    #[serde(default)]
    pub persistent_connections: u64,
    /// Whether the server has reached its upper threshold and receives no new flows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overloaded: bool,
    /// Totals since the server was created.
    #[serde(flatten)]
    pub totals: Counters,
    /// Additional data about a proxy service's server.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyServerDetails>,
}

/// Totals that survive restarts, crashes, reloads and upgrades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Number of flows assigned to a server.
    pub connections: u64,
    /// Number of flows forwarded by hash, without a flow table entry.
    pub stateless: u64,
    /// Number of packets from clients.
    pub packets_in: u64,
    /// Number of packets to clients, if replies pass through this host.
    pub packets_out: u64,
    /// Number of bytes from clients.
    pub bytes_in: u64,
    /// Number of bytes to clients, if replies pass through this host.
    pub bytes_out: u64,
}

impl Counters {
    /// Adds other counters. The sums wrap, as the kernel's counters do.
    fn add(&mut self, other: &Self) {
        for (total, added) in [
            (&mut self.connections, other.connections),
            (&mut self.stateless, other.stateless),
            (&mut self.packets_in, other.packets_in),
            (&mut self.packets_out, other.packets_out),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.bytes_out, other.bytes_out),
        ] {
            *total = total.wrapping_add(added);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
