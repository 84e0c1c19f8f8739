//! What `weir status` shows: one document, as JSON for programs and as a table for people.
//!
//! The document is made of a [`Snapshot`](crate::snapshot::Snapshot) by the daemon, or of what is pinned by the command
//! itself, and is what travels over the API; the table is drawn from the document alone, so that both show the same. It
//! holds no rates: these are the difference of two documents ([`table`]).

mod doctor;
mod made;
pub mod pinned;
mod proxy;
pub mod table;
mod time;

use serde::{Deserialize, Serialize};

use crate::snapshot::Drift;
use weir_discovery::Source;

use made::{state, vip};
pub use proxy::Proxied;
pub use time::rfc3339;

/// `GET /v1/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Counts up with every configuration that took effect.
    pub revision: u64,
    /// How often the daemon died and was started again since `weir run`; absent when it never did.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// How it died the last time: `signal 9`, `exit code 101`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_death: Option<String>,
    /// Daemons that were succeeded by an upgrade and still have clients, the oldest first; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<Draining>,
    /// Where the packet path is attached.
    pub xdp: Vec<Interface>,
    /// Packets of layer 4 services by the way that they took here; absent before the first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ways: Ways,
    /// Services in file order.
    pub services: Vec<Service>,
    /// Fill of the flow table.
    pub flows: Flows,
    /// Lists of servers that others write; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// The checks' own doing; absent without checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<Checks>,
    /// Descriptors of the proxy; absent without proxy services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<OpenFiles>,
    /// Packets by what became of them; reasons that never occurred are left out.
    pub reasons: Vec<Reason>,
    /// Drifted kernel objects that were repaired.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,
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

/// A daemon that was succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// Its process.
    pub pid: u32,
    /// Its program's.
    pub version: String,
    /// Since when another one is in charge.
    pub since: String,
    /// Clients that are connected to it; counted once a second.
    pub clients: u64,
}

/// How clients' TCP handshakes went, since the server was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshakes {
    /// SYNs that went to the server, repeated ones too.
    pub syns: u64,
    /// Flows that became established.
    pub finished: u64,
}

/// A server that is away for what clients' packets say of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ejected {
    /// What was seen.
    pub reason: String,
    /// Since when.
    pub since: String,
    /// When it is tried again.
    pub until: String,
}

/// What is wrong with a server that takes clients nevertheless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What was seen, and what it means.
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

/// How packets of layer 4 services went through this machine, as counted on the wire.
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
    /// Why it is that one; absent without a daemon.
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
    /// Flows that ended by timeout since the table was made.
    pub expired: u64,
}

/// How the probing itself does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Targets that are probed, each once however many servers share it.
    pub targets: u64,
    /// Probes that went out since the daemon began.
    pub probes: u64,
    /// Probes by how late they went out: upper bound in milliseconds, and how many; the last has no bound.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// How the pool serves, where that is not by its servers' states: `panic` or `below quorum`.
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
    /// Totals since the service was made.
    #[serde(flatten)]
    pub totals: Counters,
    /// What only a proxy service has.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxied>,
    /// Servers in file order, then removed ones that still have flows.
    pub servers: Vec<Server>,
}

/// One server in a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Removed from the configuration; its flows live on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// The weight that its checks bring, in place of the configured one or the operator's; absent where they bring
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_weight: Option<u32>,
    /// Thousandths of its weight, while slow start keeps it low.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<u32>,
    /// Away for what clients' packets say of it, apart from any check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ejected: Option<Ejected>,
    /// What is wrong with it although its check passes; it takes clients nevertheless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<Warning>,
    /// How its clients' TCP handshakes went; absent where none began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Its checks; none while they are suspended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Flows in an active state now.
    pub active_connections: u64,
    /// Other flows now.
    pub inactive_connections: u64,
    /// Persistent clients' choices that lead here.
    #[serde(default)]
    pub persistent_connections: u64,
    /// At its upper threshold: no new flows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overloaded: bool,
    /// Totals since the server was made.
    #[serde(flatten)]
    pub totals: Counters,
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
    /// Adds another's, around the end of the range as the kernel's counters go.
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
