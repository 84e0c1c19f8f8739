//! The status document: JSON for programs, and a text table.
//!
//! The daemon creates it from a [`Snapshot`](crate::snapshot::Snapshot), or the command from the pinned data plane. The
//! API transfers it, and the table is rendered from it alone, so both show the same. It contains no rates: they are the
//! difference of two documents ([`table`]).

pub(crate) mod announce;
mod certificate;
mod doctor;
pub mod exchanges;
mod group;
mod latency;
mod made;
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

use made::{state, vip};

pub use announce::Announced;
pub use certificate::Certificate;
pub use group::{Group, GroupMember};
pub use latency::{Latency, Milliseconds};
pub use proxy::{Proxied, ProxiedServer};
pub use sync::Sync;
pub use time::rfc3339;
pub(crate) use time::seconds_of;
pub use traces::Traces;
pub use vrrp::Vrrp;

/// What metrics have as the service of the API's certificates; no service has such a name.
const API_SERVICE: &str = "[node] admin";

/// `GET /v1/status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Number of configurations that have been applied.
    pub revision: u64,
    /// The daemon's process; absent without a daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Number of daemon crashes since `weir run` started; absent if zero.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// Cause of the last crash: `signal 9`, `exit code 101`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_death: Option<String>,
    /// Daemons that were replaced by an upgrade and still have clients, the oldest first; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<Draining>,
    /// Where the packet path is attached.
    pub xdp: Vec<Interface>,
    /// Packets of layer 4 services by their path through this machine; absent before the first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ways: Ways,
    /// Services in file order.
    pub services: Vec<Service>,
    /// Fill of the flow table.
    pub flows: Flows,
    /// Lists of servers that others write; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// Counters of health checking; absent without checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<Checks>,
    /// Descriptors of the proxy; absent without proxy services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<OpenFiles>,
    /// Packets by outcome; outcomes that never occurred are omitted.
    pub reasons: Vec<Reason>,
    /// Counters of the latency estimator; those that are zero are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Reason>,
    /// Drifted kernel objects that were repaired.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,
    /// Virtual routers in file order; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrrp: Vec<Vrrp>,
    /// VIPs that are announced by BGP; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announce: Vec<Announced>,
    /// Why VIPs cannot be announced; absent if they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce_error: Option<String>,
    /// An operator drains this director; absent otherwise.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drained: bool,
    /// Flow synchronization; absent without `[sync]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// Traces of proxied requests; absent without `[tracing]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Traces>,
    /// The group of directors; absent without `[cluster]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Group>,
    /// The last reloads of this process, the oldest first; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reloads: Vec<Reload>,
    /// Number of reloads of this process; absent before the first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reload_counts: ReloadCounts,
    /// The certificates of `[node] admin`, the first to expire first; absent without TLS.
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
    /// All certificates for clients, with the service that uses them; those of the API with [`API_SERVICE`].
    pub(crate) fn certificates(&self) -> impl Iterator<Item = (&str, &Certificate)> {
        let own = self.admin_certificates.iter().map(|it| (API_SERVICE, it));
        let of_services = self.services.iter().flat_map(|service| {
            let certificates = service.proxy.iter().flat_map(|it| &it.certificates);
            certificates.map(|it| (service.name.as_str(), it))
        });
        of_services.chain(own)
    }
}

/// Reloads of the daemon's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadCounts {
    /// Those that took effect, without a change too.
    pub applied: u64,
    /// Those that were refused; nothing changed.
    pub refused: u64,
}

/// One reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// When, RFC 3339.
    pub at: String,
    /// The revision that it made active; absent if it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Why it was refused, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The changes, one per line.
    pub changes: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The process's descriptors, as far as the proxy uses them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFiles {
    /// How many the process may have: RLIMIT_NOFILE.
    pub limit: u64,
    /// Connections of clients.
    pub clients: u64,
    /// Connections to servers.
    pub servers: u64,
    /// Clients that fit, each with a connection to a server; more wait to be accepted.
    pub clients_max: u64,
    /// Limits of services that exceed that; absent where none does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceeding: Vec<String>,
}

/// A draining daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// Its process.
    pub pid: u32,
    /// Version of its program.
    pub version: String,
    /// Since when its successor is active.
    pub since: String,
    /// Clients that are connected to it; counted once a second.
    pub clients: u64,
}

/// TCP handshakes of clients since the server was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshakes {
    /// SYNs sent to the server, including retransmissions.
    pub syns: u64,
    /// Flows that became established.
    pub finished: u64,
}

/// An ejection by passive checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ejected {
    /// The observation.
    pub reason: String,
    /// Since when.
    pub since: String,
    /// Time of the next trial.
    pub until: String,
}

/// A problem of a server that still receives clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The observation and its likely cause.
    pub reason: String,
    /// Since when, RFC 3339.
    pub since: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks with a reference"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Paths of layer 4 packets through this machine, as counted on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ways {
    /// By XDP alone.
    pub xdp: u64,
    /// By XDP, and sent by tc: the neighbour was not resolved, or XDP cannot send on that device.
    pub xdp_sent_by_tc: u64,
    /// By tc: all of an interface in mode `tc`, and packets with unfinished checksums of the others.
    pub tc: u64,
}

impl Ways {
    /// From the packets of all services and the data plane's counters.
    pub(crate) fn new(forwarded: u64, reasons: &[Reason]) -> Self {
        let count = |label: &str| {
            let found = reasons.iter().find(|it| it.reason == label);
            found.map_or(0, |it| it.packets)
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

/// One interface of the packet path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name, as `ip link` shows it.
    pub interface: String,
    /// `native`, `generic` or `tc`.
    pub mode: String,
    /// Why this mode was selected; absent without a daemon.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The flow table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// Slots.
    pub places: u64,
    /// Slots in use; a flow under nat has two.
    pub entries: u64,
    /// Flows that expired since the table was created.
    pub expired: u64,
}

/// Counters of health checking.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Probed targets; a target that several servers share counts once.
    pub targets: u64,
    /// Probes sent since the daemon started.
    pub probes: u64,
    /// Probes by delay: upper bound in milliseconds and count; the last has no bound.
    pub lateness: Vec<(Option<u64>, u64)>,
}

/// One check of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// `http 10.0.0.5:80`.
    pub check: String,
    /// `up`, `down` or `starting`.
    pub state: String,
    /// The last result in words.
    pub reason: String,
    /// The last results, the newest last, as `+` and `-`.
    pub results: String,
    /// Probes with a result since the check was configured.
    #[serde(default)]
    pub probes: u64,
    /// Those that failed.
    #[serde(default)]
    pub failures: u64,
    /// How long they took together, microseconds.
    #[serde(default)]
    pub time_us: u64,
    /// How long the last one took, microseconds.
    #[serde(default)]
    pub last_us: u64,
    /// How often the check went down since it was configured.
    #[serde(default)]
    pub downs: u64,
    /// How long it has been down, seconds.
    #[serde(default)]
    pub downtime_s: u64,
    /// Passed probes in a row that make it up, as configured.
    #[serde(default)]
    pub rise: u32,
    /// Failed probes in a row that make it down, as configured.
    #[serde(default)]
    pub fall: u32,
}

/// Packets with one outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Label.
    pub reason: String,
    /// What it means.
    pub description: String,
    /// Packets over all CPUs.
    pub packets: u64,
}

/// One service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Name.
    pub name: String,
    /// `file` or `ipvsadm`.
    pub origin: String,
    /// Listeners, `tcp/192.0.2.10:80`.
    pub listen: Vec<String>,
    /// `local`, `added` or `absent`.
    pub vip: String,
    /// Forwarding method; `mixed` where its servers differ.
    pub forward: String,
    /// Scheduler, flags included.
    pub scheduler: String,
    /// Pool.
    pub pool: String,
    /// The pool's state if exceptional: `panic` or `below quorum`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_state: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_cause: Option<String>,
    /// Persistence: timeout, IPv4 and IPv6 prefix length, `5m /32 /128`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<String>,
    /// Every UDP packet is scheduled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_packet: bool,
    /// Totals since the service was created.
    #[serde(flatten)]
    pub totals: Counters,
    /// Additional data of a proxy service.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxied>,
    /// Servers in file order, then removed ones that still have flows.
    pub servers: Vec<Server>,
}

/// One server in a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// ADDRESS as in the file.
    pub address: String,
    /// Its pool; absent for layer 4 services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Forwarding method.
    pub forward: String,
    /// Configured.
    pub weight: u32,
    /// What the scheduler uses.
    pub effective_weight: u32,
    /// `up`, `down`, `starting`, `drain`, `maint` or `unchecked`.
    pub state: String,
    /// Why it is in that state.
    pub reason: String,
    /// Since when, RFC 3339.
    pub since: String,
    /// The active override: `drain`, `maint`, `weight 3`.
    #[serde(rename = "override", default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
    /// Removed from the configuration; its flows continue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// The weight that its checks set instead of the configured or overridden one; absent if they set none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_weight: Option<u32>,
    /// Thousandths of its weight during slow start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<u32>,
    /// The active ejection by passive checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ejected: Option<Ejected>,
    /// A problem although its checks pass; it still receives clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<Warning>,
    /// TCP handshakes of its clients; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Its latency; absent without samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Its checks; none while they are suspended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Flows in an active state now.
    pub active_connections: u64,
    /// Other flows now.
    pub inactive_connections: u64,
    /// Persistence entries for this server.
    #[serde(default)]
    pub persistent_connections: u64,
    /// At its upper threshold: no new flows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overloaded: bool,
    /// Totals since the server was created.
    #[serde(flatten)]
    pub totals: Counters,
    /// Additional data of a server of a proxy service.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxiedServer>,
}

/// Totals that survive restart, crash, reload and upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Flows ever bound.
    pub connections: u64,
    /// Flows sent by hash without an entry.
    pub stateless: u64,
    /// Packets from clients.
    pub packets_in: u64,
    /// Packets to clients, where replies pass here.
    pub packets_out: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients, where replies pass here.
    pub bytes_out: u64,
}

impl Counters {
    /// Adds another's counters, wrapping as the kernel's counters do.
    fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.connections, other.connections),
            (&mut self.stateless, other.stateless),
            (&mut self.packets_in, other.packets_in),
            (&mut self.packets_out, other.packets_out),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.bytes_out, other.bytes_out),
        ] {
            *mine = mine.wrapping_add(theirs);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
