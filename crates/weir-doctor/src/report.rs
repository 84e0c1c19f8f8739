//! What the daemon reports about services and servers, as far as the findings need it.

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceReport {
    /// Its name.
    pub name: String,
    /// Its forwarding method; `mixed` where its servers differ.
    pub forward: String,
    /// Its servers, removed ones included.
    pub servers: Vec<ServerReport>,
}

/// A server of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// Its address as in the configuration file, with or without a port.
    pub address: String,
    /// Its forwarding method.
    pub forward: String,
    /// `up`, `down`, `starting`, `drain`, `maint` or `unchecked`.
    pub state: String,
    /// Why it is in that state.
    pub reason: String,
    /// The weight that the scheduler uses; 0 = it gets no new clients.
    pub effective_weight: u32,
    /// It is no longer configured; its flows live on.
    pub removed: bool,
    /// Why outlier detection has ejected it.
    pub ejected: Option<String>,
    /// A problem of a server that gets clients nevertheless.
    pub warning: Option<String>,
    /// Its clients' TCP handshakes; `None` = no handshake has begun.
    pub handshakes: Option<Handshakes>,
}

/// TCP handshakes of clients since the server was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// SYNs that were sent to the server, repeated ones included.
    pub syns: u64,
    /// Flows that became established.
    pub finished: u64,
}
