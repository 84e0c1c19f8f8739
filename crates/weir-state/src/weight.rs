//! Defines the effective weights of a pool's servers, as both planes receive them.

/// The weights of a pool's servers, in one layer 4 service or in all proxy services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolWeights {
    /// In the order of [`Pool::servers`](weir_model::Pool::servers).
    pub servers: Vec<ServerWeight>,
    /// The sorry server.
    pub sorry: Option<ServerWeight>,
}

/// The effective weight of a server, and why it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerWeight {
    /// The weight that the scheduler uses; 0 = no new flows or requests.
    pub effective: u32,
    /// The weight that results only from configuration and override, without checks, ejection, slow start and `adapt`;
    /// 0 in drain and maintenance.
    pub ordered: u32,
    /// Whether failed checks remove the server from the list, according to `on_remove` of its pool.
    pub removed: bool,
    /// Whether the weight is 0 because of the configuration or a weight override: persistent clients may still use the
    /// server.
    pub quiesced: bool,
    /// Whether the server is down according to its checks, with effective weight 0.
    pub down: bool,
}
