//! Defines the part of the daemon's status that the checks use.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// The daemon's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonReport {
    /// The services, with the servers that requests can reach.
    pub services: Vec<ServiceReport>,
    /// The active directors of the virtual routers that are backup on this machine.
    pub active_peers: Vec<ActivePeer>,
    /// The addresses of virtual routers that start, change or stop when the reload guard ends.
    pub waiting_vips: BTreeSet<IpAddr>,
}

/// The active director of a virtual router that is backup on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivePeer {
    /// The name of the virtual router.
    pub router: String,
    /// The virtual router ID.
    pub router_id: u8,
    /// The director's address, from its advertisements.
    pub address: IpAddr,
    /// Whether the addresses in its advertisements differ from `addresses` on this machine.
    pub advertises_other_addresses: bool,
}

/// Status of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceReport {
    /// The service's name.
    pub name: String,
    /// The forwarding method, or `mixed` if the servers' methods differ.
    pub forward: String,
    /// The servers, including removed ones.
    pub servers: Vec<ServerReport>,
}

/// Status of a server in a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// The address as configured, with or without a port.
    pub address: String,
    /// The pool; `None` = the service's pool.
    pub pool: Option<String>,
    /// The forwarding method.
    pub forward: String,
    /// `up`, `down`, `starting`, `drain`, `maint` or `unchecked`.
    pub state: String,
    /// The reason for the state.
    pub reason: String,
    /// Whether the server is down, but the last probe of each check that is down passed.
    pub is_recovering: bool,
    /// The weight that the scheduler uses; 0 means that the server gets no new clients.
    pub effective_weight: u32,
    /// Whether the server is no longer configured but still has flows.
    pub removed: bool,
    /// Why outlier detection has ejected the server.
    pub ejected: Option<String>,
    /// A problem with the server, which still receives clients.
    pub warning: Option<ServerWarning>,
    /// Number of packets to clients, if replies pass through this machine.
    pub packets_out: u64,
    /// Client TCP handshakes, or `None` if no handshake has started.
    pub handshakes: Option<Handshakes>,
    /// The latency of recent responses, or `None` if it is unknown.
    pub latency: Option<Latency>,
}

/// A problem with a server that still receives clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerWarning {
    /// The observed behavior and its likely cause.
    pub reason: String,
    /// Time since the problem was last observed, in seconds.
    pub last_seen_seconds: u64,
}

/// The latency of a server's recent responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Median, in microseconds.
    pub p50_us: i64,
    /// Number of samples since the server was added.
    pub samples: u64,
}

/// Client TCP handshakes since the server was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// Number of SYNs sent to the server, including retransmissions.
    pub syns: u64,
    /// Number of flows that became established.
    pub completed: u64,
    /// Time since the last SYN in seconds, while no flow has become established; `None` = unknown.
    pub last_syn_seconds: Option<u64>,
}
