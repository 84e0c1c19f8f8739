//! Defines the effective weights of servers in the form that both planes use.

/// The weights of a pool's servers in one layer 4 service, or in all proxy services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolWeights {
    /// The servers' weights, in the order of [`Pool::servers`](weir_model::Pool::servers).
    pub servers: Vec<ServerWeight>,
    /// The weight of the sorry server.
    pub sorry: Option<ServerWeight>,
}

/// The effective weight of a server, and the reason if it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerWeight {
    /// The weight that the scheduler uses; 0 = no new flows or requests.
    pub effective: u32,
    /// The weight from the configuration and the override alone, without checks, ejections, slow start and `adapt`; 0
    /// in drain and maintenance.
    pub ordered: u32,
    /// Whether failed checks remove the server from the list, as set by its pool's `on_remove`.
    pub removed: bool,
    /// Whether the weight is 0 because of the configuration or a weight override. Persistent clients may then still use
    /// the server.
    pub quiesced: bool,
    /// Whether the checks report the server down and its effective weight is 0.
    pub down: bool,
}
