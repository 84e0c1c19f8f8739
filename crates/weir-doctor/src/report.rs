//! The part of the daemon's status that the checks use.

/// Status of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceReport {
    /// The name.
    pub name: String,
    /// The forwarding method; `mixed` if it differs between servers.
    pub forward: String,
    /// The servers, including removed ones.
    pub servers: Vec<ServerReport>,
}

/// Status of a server of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// The address as configured, with or without a port.
    pub address: String,
    /// The forwarding method.
    pub forward: String,
    /// `up`, `down`, `starting`, `drain`, `maint` or `unchecked`.
    pub state: String,
    /// The reason for the state.
    pub reason: String,
    /// The weight that the scheduler uses; 0 = no new clients.
    pub effective_weight: u32,
    /// Whether the server is no longer configured but still has flows.
    pub removed: bool,
    /// Why outlier detection ejected the server.
    pub ejected: Option<String>,
    /// The problem of a server that still receives clients.
    pub warning: Option<String>,
    /// TCP handshakes of clients; `None` = no handshake has started.
    pub handshakes: Option<Handshakes>,
    /// The latency of recent responses; `None` = unknown.
    pub latency: Option<Latency>,
}

/// The latency of a server's recent responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Median, in microseconds.
    pub p50_us: i64,
    /// Samples since the server was added.
    pub samples: u64,
}

/// TCP handshakes of clients since the server was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// SYNs sent to the server, including retransmissions.
    pub syns: u64,
    /// Flows that became established.
    pub completed: u64,
}
