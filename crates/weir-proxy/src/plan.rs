//! What the workers run by: services with listeners, pools and servers, as an immutable snapshot that they look up once per
//! wake-up, and the numbers that workers and control share.
//!
//! Only numbers change in a snapshot: a server's weight, its load, the counters. Each counter has one writing worker, so
//! that adding is a plain store; the load that schedulers compare is shared by all workers.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustls::ServerConfig;
use weir_http::HeadLimits;
use weir_model::{Network, ProxyProtocol, ProxyTimeouts, Route, Scheduler, ServerTls};

use crate::tls::Back;

/// A number on a cache line that one thread writes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    /// Connections of clients, or to a server.
    pub(crate) connections: Count,
    /// Requests; of a TCP service none.
    pub(crate) requests: Count,
    /// Octets from clients.
    pub(crate) bytes_in: Count,
    /// Octets to clients.
    pub(crate) bytes_out: Count,
    /// Answers of Weir's own, in place of a server's.
    pub(crate) errors: Count,
    /// Attempts at another server.
    pub(crate) retries: Count,
    /// Connections of clients now, or of a server that wait.
    pub(crate) present: Count,
}

/// Written by one thread, read by any.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// By the one thread that writes: no other store can come between.
    pub(crate) fn add(&self, more: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(more),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn sub(&self, less: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_sub(less),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One set of counters for each worker.
#[derive(Debug)]
pub(crate) struct Sharded(Box<[Counters]>);

impl Sharded {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Counters::default()).collect())
    }

    /// The worker's own.
    pub(crate) fn of(&self, worker: usize) -> &Counters {
        &self.0[worker]
    }

    pub(crate) fn sum(&self, of: impl Fn(&Counters) -> &Count) -> u64 {
        self.0
            .iter()
            .map(|counters| of(counters).get())
            .fold(0, u64::wrapping_add)
    }
}

/// What all services and workers know of a server of a pool.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Load {
    /// Exchanges under way, or connections of a TCP service.
    pub(crate) active: AtomicU32,
    /// What the scheduler uses; 0 = no new ones.
    pub(crate) weight: AtomicU32,
    /// No new ones at this many; 0 = no limit.
    pub(crate) most: AtomicU32,
}

/// A server as one service uses it.
#[derive(Debug)]
pub(crate) struct Target {
    /// Place among all targets that ever were; what a worker's idle connections are kept by.
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// `None` = the listener's.
    pub(crate) port: Option<u16>,
    pub(crate) load: Arc<Load>,
    /// How it is connected to; a connection of another kind is another target's.
    pub(crate) tls: Option<ServerTls>,
    pub(crate) counters: Arc<Sharded>,
}

/// A pool as one service uses it.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) pool: String,
    pub(crate) scheduler: Scheduler,
    pub(crate) tls: Option<Back>,
    /// In file order.
    pub(crate) list: Vec<Arc<Target>>,
    /// Without a usable server a client gets no answer.
    pub(crate) silent: bool,
    /// Changes with every weight.
    pub(crate) version: Arc<AtomicU32>,
}

/// Sockets on one address: one for each worker, more when another process with more workers left them.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) address: SocketAddr,
    pub(crate) sockets: Vec<OwnedFd>,
    /// Socket `n` is worker `n % workers`'s.
    pub(crate) workers: usize,
}

/// One service.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) protocol: ProxyProtocol,
    pub(crate) listen: Vec<Arc<Listeners>>,
    /// `ADDRESS:PORT` for a request without `Host`.
    pub(crate) host: String,
    /// Of each pool, the service's own first.
    pub(crate) pools: Vec<Targets>,
    pub(crate) routes: Vec<Route>,
    /// Where each route leads in `pools`; of one that answers, nowhere.
    pub(crate) leads: Vec<Option<usize>>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) timeouts: Millis,
    pub(crate) head: HeadLimits,
    pub(crate) retries: u32,
    pub(crate) connections: u32,
    pub(crate) idle_servers: usize,
    pub(crate) forwarded: bool,
    pub(crate) trusted: Vec<Network>,
    pub(crate) counters: Arc<Sharded>,
    /// Clients connected now, over all workers.
    pub(crate) clients: Arc<AtomicU32>,
}

impl Service {
    /// Servers of all its pools.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.pools.iter().flat_map(|pool| &pool.list)
    }
}

/// The timeouts in the clock's unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Millis {
    pub(crate) request: u64,
    pub(crate) idle: u64,
    pub(crate) client: u64,
    pub(crate) connect: u64,
    pub(crate) server: u64,
    pub(crate) tunnel: u64,
}

impl From<&ProxyTimeouts> for Millis {
    fn from(timeouts: &ProxyTimeouts) -> Self {
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 2);
        Self {
            request: ms(timeouts.request),
            idle: ms(timeouts.idle),
            client: ms(timeouts.client),
            connect: ms(timeouts.connect),
            server: ms(timeouts.server),
            tunnel: ms(timeouts.tunnel),
        }
    }
}

/// Everything that workers run by.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) services: Vec<Arc<Service>>,
    /// How many targets there ever were.
    pub(crate) targets: usize,
}

/// Between control and workers.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) plan: std::sync::Mutex<Arc<Plan>>,
    /// Changes with every plan; what a worker compares when it wakes up.
    pub(crate) generation: AtomicU64,
    /// No new clients, no further requests.
    pub(crate) draining: AtomicBool,
    /// At once.
    pub(crate) stop: AtomicBool,
}

impl Shared {
    pub(crate) fn plan(&self) -> Arc<Plan> {
        let plan = self
            .plan
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(&plan)
    }

    pub(crate) fn publish(&self, plan: Plan) {
        *self
            .plan
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(plan);
        // Behind the plan: a worker that sees the number finds it.
        self.generation.fetch_add(1, Ordering::Release);
    }
}
