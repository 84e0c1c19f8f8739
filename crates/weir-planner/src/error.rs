//! Defines the crate's errors.

/// A reason why a configuration cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A service uses a pool that does not exist.
    #[error("service {service} uses pool {pool}, which does not exist")]
    NoPool {
        /// The service.
        service: String,
        /// The name of the pool.
        pool: String,
    },
    /// There are more services than service rows.
    #[error("more than {max} services: raise max_services in [node]")]
    TooManyServices {
        /// Maximum number.
        max: u32,
    },
    /// There are more servers than server rows. A server counts once for each service.
    #[error("more than {max} servers: raise max_servers in [node]")]
    TooManyServers {
        /// Maximum number.
        max: u32,
    },
    /// The data plane does not implement the scheduler of a service.
    #[error("service {service}: scheduler {scheduler} is for proxy services only")]
    Scheduler {
        /// The service.
        service: String,
        /// The scheduler.
        scheduler: &'static str,
    },
    /// A scheduler's table cannot be built.
    #[error("service {service}: {source}")]
    Tables {
        /// The service.
        service: String,
        /// The cause.
        source: weir_sched::Error,
    },
}

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
