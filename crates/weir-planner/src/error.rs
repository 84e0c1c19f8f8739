//! Why a configuration has no rows.

/// A configuration that cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A service names a pool that is not there.
    #[error("service {service} names pool {pool}, which does not exist")]
    NoPool {
        /// The service.
        service: String,
        /// The name.
        pool: String,
    },
    /// More services than the data plane has rows for.
    #[error("more than {most} services: raise max_services in [node]")]
    TooManyServices {
        /// How many there may be.
        most: u32,
    },
    /// More servers than the data plane has rows for, counted once for each service.
    #[error("more than {most} servers: raise max_servers in [node]")]
    TooManyServers {
        /// How many there may be.
        most: u32,
    },
    /// A scheduler's table cannot be built.
    #[error("service {service}: {source}")]
    Tables {
        /// The service.
        service: String,
        /// Why.
        source: weir_sched::Error,
    },
}

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
