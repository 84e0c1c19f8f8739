//! Defines the effective server weights that both planes use.

/// The weights of a pool's servers for one layer 4 service, or for all proxy services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolWeights {
    /// The servers' weights, in the order of [`Pool::servers`](weir_model::Pool::servers).
    pub servers: Vec<ServerWeight>,
    /// The sorry server's weight.
    pub sorry: Option<ServerWeight>,
}

/// The effective weight of a server, and the reason if it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerWeight {
    /// The weight that the scheduler uses; 0 = no new flows or requests.
    pub effective: u32,
    /// The weight from the configuration and the override alone, regardless of checks, ejections, slow start and
    /// `adapt`; 0 in drain and maintenance.
    pub base: u32,
    /// Whether the server is down and a failed check has `on_failure = "remove"`: the pool's `on_remove` then applies
    /// to its flows.
    pub removed: bool,
    /// Whether the weight is 0 because of the configuration or a weight override. Persistent clients may then still use
    /// the server.
    pub quiesced: bool,
    /// Whether the server is down according to its checks, and its effective weight is 0.
    pub down: bool,
}
