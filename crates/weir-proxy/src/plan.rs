//! Defines the plan, an immutable snapshot of services, listeners, pools and servers that the workers read.
//!
//! Each worker reads it once per wake-up. It also holds the counters and loads that workers and the control thread
//! share. Only numbers change within a snapshot: a server's weight and load, and the counters. All workers share the
//! loads that schedulers compare.

mod counters;
mod detail;
mod exchanges;
mod rate_peaks;
mod shared;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::ServerConfig;
use weir_http::{HeadLimits, RequestPath};
use weir_model::{
    BasicAuth, ClientFields, Compression, Forwarded, ForwardedPath, HashKey, HeaderEdits, Network,
    NoServer, NormalizePath, ProxyHeader, ProxyProtocol, ProxyTimeouts, RouteClientFields,
    Scheduler, ServerTls, Sticky, Template, ValueMap,
};
use weir_select::limit::ConcurrencyLimit;
use weir_select::route::{Limits, Routes};
use weir_select::{Fault, Load, RetryPolicy, Server};

use crate::h2::ResetLimit;
use crate::log::Log;
use crate::log::tap::Taps;
use crate::misdirect::MisdirectRules;
use crate::page::Page;
use crate::queue::Queue;
use crate::tls::{CertificateExpiry, TlsConnector};
use crate::trace::Tracer;

pub use detail::Detail;

pub(crate) use counters::{Count, ShardedCounters};
pub(crate) use detail::Details;
pub(crate) use exchanges::{Exchanges, FinishedExchange, PerWorker, RecentTimes};
pub(crate) use shared::SharedState;

/// A server as used by one service.
#[derive(Debug)]
pub(crate) struct Target {
    /// Index among all targets ever created. Workers store idle connections by this index.
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// `None` = the listener's port.
    pub(crate) port: Option<u16>,
    /// Path of the Unix socket to connect to instead of `address`.
    pub(crate) unix: Option<Arc<str>>,
    pub(crate) load: Arc<Load>,
    /// Connection settings. A server with different TLS or HTTP/2 settings is a different target, so their connections
    /// are never mixed.
    pub(crate) tls: Option<ServerTls>,
    pub(crate) http2: bool,
    /// Identifies the server in hashes; depends only on its name.
    pub(crate) seed: u64,
    /// The queue of the server's pool.
    pub(crate) queue: Arc<Queue>,
    pub(crate) counters: Arc<ShardedCounters>,
    pub(crate) exchanges: Arc<PerWorker<Exchanges>>,
    pub(crate) recent: Arc<PerWorker<RecentTimes>>,
}

impl Target {
    /// Creates a target outside any pool, for a tunnel that `worker` took over from another process. It has no idle
    /// connections and receives no new clients.
    pub(crate) fn outside_pool(name: &str, address: IpAddr, port: u16, worker: usize) -> Self {
        Self {
            id: u32::MAX,
            name: name.to_owned(),
            address,
            port: Some(port),
            unix: None,
            load: Arc::default(),
            tls: None,
            http2: false,
            seed: 0,
            queue: Arc::default(),
            counters: Arc::new(ShardedCounters::new(worker + 1)),
            exchanges: Arc::new(PerWorker::new(worker + 1)),
            recent: Arc::new(PerWorker::new(worker + 1)),
        }
    }

    /// Records a fault, or a success if `fault` is `None`.
    pub(crate) fn record_result(&self, worker: usize, fault: Option<Fault>) {
        let counters = self.counters.of(worker);
        match fault {
            None => counters.successes.add(1),
            Some(fault) => counters.faults[fault as usize].add(1),
        }
    }

    /// Releases a slot on the server, and wakes the next session in the queue.
    pub(crate) fn release_slot(&self) {
        self.load.release();
        self.queue.wake(1);
    }
}

impl Server for Target {
    fn load(&self) -> &Load {
        &self.load
    }

    fn hash_seed(&self) -> u64 {
        self.seed
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn port(&self) -> Option<u16> {
        self.port
    }
}

/// A pool as used by one service.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) pool: String,
    pub(crate) scheduler: Scheduler,
    pub(crate) tls: Option<TlsConnector>,
    /// Whether the servers use HTTP/2.
    pub(crate) http2: bool,
    /// The pool's servers in file order, then the backups, then the sorry server.
    pub(crate) list: Vec<Arc<Target>>,
    /// Indices of the first backup and of the sorry server.
    pub(crate) tiers: [usize; 2],
    pub(crate) hash_key: HashKey,
    pub(crate) sticky: Option<Stickiness>,
    /// The `Host` field of requests to the servers.
    pub(crate) host: Option<Template>,
    /// Version of the PROXY protocol header that the servers expect.
    pub(crate) preamble: Option<ProxyHeader>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) queue_ms: u64,
    pub(crate) no_server: NoServer,
    /// Incremented whenever a weight changes.
    pub(crate) version: Arc<AtomicU32>,
    pub(crate) exchanges: Arc<PerWorker<Exchanges>>,
}

impl Targets {
    /// Returns the current state of the pool, for a selection.
    pub(crate) fn view(&self) -> weir_select::Pool<'_, Arc<Target>> {
        weir_select::Pool {
            scheduler: self.scheduler,
            servers: &self.list,
            tier_starts: self.tiers,
            version: self.version.load(Ordering::Acquire),
            queued: self.queue.len(),
            queue_timeout_ms: self.queue_ms,
            no_server: self.no_server,
        }
    }
}

/// Session affinity: how a client's requests are sent to the same server.
#[derive(Debug)]
pub(crate) struct Stickiness {
    pub(crate) kind: Sticky,
    /// The servers' cookie values, in the order of `list`.
    pub(crate) cookie_values: Vec<Box<[u8]>>,
    /// Attributes for the cookie that Weir sets; empty = none.
    pub(crate) attributes: String,
}

/// Listening sockets for one address: one per worker, or more if a process with more workers handed them over.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) address: SocketAddr,
    pub(crate) sockets: Vec<OwnedFd>,
    /// Number of workers: socket `n` belongs to worker `n % workers`.
    pub(crate) workers: usize,
}

/// One service. The plan, not the service, owns the listening sockets. Clients can keep a removed service in memory; if
/// it owned the sockets, they would stay open, and new clients would wait in a backlog that no worker accepts from.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) protocol: ProxyProtocol,
    /// `ADDRESS:PORT`, used as the host for a request that has no `Host` field.
    pub(crate) host: String,
    /// The service's own pool, then those of its routes.
    pub(crate) pools: Vec<Targets>,
    pub(crate) routes: Routes,
    /// For each route, the settings that override the service's; empty if no route has any.
    pub(crate) options: Vec<Option<Box<RouteOptions>>>,
    /// Maximum body size in bytes, for requests whose route does not set a limit. 0 = there is no limit, or no route
    /// sets one and `limits` contains the service's.
    pub(crate) max_body_bytes: u64,
    /// The users for the service and its routes; `None` = `basic_auth` is not used.
    pub(crate) auth: Option<ServiceUsers>,
    /// Whether a route has `forward_auth`.
    pub(crate) has_forward_auth: bool,
    /// Normalization of paths before comparisons; `None` = no normalization.
    pub(crate) normalize_path: Option<NormalizePath>,
    pub(crate) limits: Limits,
    /// Limit on HTTP/2 stream resets.
    pub(crate) reset_limit: Option<Arc<ResetLimit>>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Expiry dates of its certificates, earliest first.
    pub(crate) expiries: Vec<CertificateExpiry>,
    /// `None` = no request is rejected as misdirected.
    pub(crate) misdirect: Option<MisdirectRules>,
    /// Whether clients may use HTTP/2.
    pub(crate) http2: bool,
    pub(crate) timeouts: TimeoutsMs,
    pub(crate) head: HeadLimits,
    pub(crate) connections: u32,
    pub(crate) idle_servers: usize,
    /// Maximum number of requests on one connection to a server; 0 = no limit.
    pub(crate) max_server_requests: u32,
    /// Maximum number of concurrent streams on an HTTP/2 connection from a client.
    pub(crate) max_streams: u32,
    pub(crate) retry: RetryPolicy,
    /// Retry budget, as a percentage of requests.
    pub(crate) retry_percent: u32,
    pub(crate) forwarded: Forwarded,
    pub(crate) x_forwarded: ClientFields,
    /// Changes to the header of every request and every response.
    pub(crate) request_header: HeaderEdits,
    pub(crate) response_header: HeaderEdits,
    /// Whether routes or templates use data about the client's TLS connection.
    pub(crate) needs_tls: bool,
    /// Whether a request is aborted when the client half-closes its connection.
    pub(crate) abort_on_close: bool,
    /// Whether a body of known length is received before a server is selected; see [`crate::session`].
    pub(crate) request_buffering: bool,
    pub(crate) pages: Vec<Page>,
    pub(crate) compression: Option<Compression>,
    /// Networks of clients that `x_forwarded` does not apply to.
    pub(crate) x_forwarded_except: Vec<Network>,
    pub(crate) trusted: Vec<Network>,
    /// Field in which trusted proxies send the client's address, in lower case.
    pub(crate) client_ip_header: Option<String>,
    /// Proxies whose addresses are skipped in that field.
    pub(crate) client_ip_skipped: Vec<Network>,
    /// Whether clients send a PROXY protocol header.
    pub(crate) preamble: bool,
    pub(crate) log: Option<Arc<Log>>,
    /// The maps that the log format uses.
    pub(crate) log_maps: Vec<Arc<ValueMap>>,
    pub(crate) taps: Arc<Taps>,
    /// `None` = requests are not traced.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// Name of the header field that contains the request identifier.
    pub(crate) request_id: Option<String>,
    pub(crate) counters: Arc<ShardedCounters>,
    pub(crate) exchanges: Arc<PerWorker<Exchanges>>,
    pub(crate) details: Arc<PerWorker<Details>>,
    /// Maximum number of requests per minute from one client; 0 = no limit.
    pub(crate) rate_per_minute: u32,
    /// For each route, its conditions and counters.
    pub(crate) route_exchanges: Vec<(String, Arc<PerWorker<Exchanges>>)>,
    /// Current number of clients across all workers.
    pub(crate) clients: Arc<AtomicU32>,
}

impl Service {
    /// Returns the users who may send requests that match a route, or requests that match no route if `route` is
    /// `None`. Returns `None` if all clients may send them.
    pub(crate) fn auth_for(&self, route: Option<usize>) -> Option<&BasicAuth> {
        let auth = self.auth.as_ref()?;
        let route_users = route.and_then(|index| auth.routes.get(index)?.as_ref());
        match route_users {
            Some(route_users) => route_users.as_ref(),
            None => auth.service.as_ref(),
        }
    }

    /// Returns the status that replaces the status of responses from servers, if any.
    pub(crate) fn response_status(&self, route: Option<usize>) -> Option<u16> {
        self.routes.get(route?)?.edits.status
    }

    /// Returns a route's `forward_auth` settings.
    pub(crate) fn forward_auth_for(&self, route: Option<usize>) -> Option<&Arc<ForwardAuth>> {
        let options = self.options.get(route?)?.as_ref()?;
        options.forward_auth.as_ref()
    }

    /// Returns a route's rules for fields about the client, which replace the service's.
    pub(crate) fn client_rules_of(&self, route: usize) -> Option<&RouteClientFields> {
        self.options.get(route)?.as_ref()?.x_forwarded.as_ref()
    }

    /// Moves one of a worker's clients from this service's count to that of `other`: the same service with a different
    /// configuration, or a service that was removed and added again.
    pub(crate) fn move_client_count(&self, other: &Self, worker: usize) {
        if Arc::ptr_eq(&self.clients, &other.clients) {
            return;
        }
        self.clients.fetch_sub(1, Ordering::Relaxed);
        self.counters.of(worker).current.sub(1);
        other.clients.fetch_add(1, Ordering::Relaxed);
        other.counters.of(worker).current.add(1);
    }

    /// Returns one of a worker's detail counters.
    pub(crate) fn detail(&self, worker: usize, detail: Detail) -> &Count {
        self.details.of(worker).of(detail)
    }

    /// Returns whether the service changes the headers of all requests or responses.
    pub(crate) const fn has_header_edits(&self) -> bool {
        !self.request_header.is_empty() || !self.response_header.is_empty()
    }

    /// Returns the path and query to send to a server, unless the selected route has a `rewrite`.
    pub(crate) fn forwarded_path<'a>(
        &self,
        target: &RequestPath<'a>,
        received: &'a [u8],
    ) -> &'a [u8] {
        match self.normalize_path {
            _ if target.is_rewritten() => target.as_bytes(),
            Some(rules) if rules.forward == ForwardedPath::Normalized => target.as_bytes(),
            _ => received,
        }
    }

    /// Returns the servers in all its pools.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.pools.iter().flat_map(|pool| &pool.list)
    }
}

/// The users who may send requests to a service and to each of its routes.
#[derive(Debug)]
pub(crate) struct ServiceUsers {
    /// The users who may send requests to the service; `None` = all clients.
    pub(crate) service: Option<BasicAuth>,
    /// For each route, the users that override the service's; the inner `None` = all clients.
    pub(crate) routes: Vec<Option<Option<BasicAuth>>>,
}

/// Route settings that override its service's.
#[derive(Debug)]
pub(crate) struct RouteOptions {
    pub(crate) timeouts: TimeoutsMs,
    pub(crate) retry: RetryPolicy,
    /// Maximum size of a request body, in bytes; 0 = no limit.
    pub(crate) max_body_bytes: u64,
    pub(crate) compression: Option<Compression>,
    pub(crate) logged: bool,
    /// Limits for each client.
    pub(crate) limits: Option<Limits>,
    /// Counts the requests in progress from all clients together.
    pub(crate) all_clients: Option<Arc<ConcurrencyLimit>>,
    /// Rules for individual header fields about the client; `None` = the service's.
    pub(crate) x_forwarded: Option<RouteClientFields>,
    /// Mirrors that receive copies of its requests.
    pub(crate) mirrors: Vec<Arc<Mirror>>,
    /// Name of the server in the pool that receives the route's requests while that server is usable.
    pub(crate) server: Option<String>,
    /// Settings for the server that allows or rejects its requests.
    pub(crate) forward_auth: Option<Arc<ForwardAuth>>,
}

/// A route's `forward_auth` settings.
#[derive(Debug)]
pub(crate) struct ForwardAuth {
    /// The `forward_auth` rules.
    pub(crate) rules: weir_model::ForwardAuth,
    /// The settings for authorization requests, which are sent like copies without a body.
    pub(crate) mirror: Arc<Mirror>,
}

/// A mirror for a route, which receives copies of its requests.
#[derive(Debug)]
pub(crate) struct Mirror {
    /// Index of the pool that receives the copies.
    pub(crate) pool_index: usize,
    /// Share of the requests that are copied, in hundredths of a percent.
    pub(crate) share: u32,
    /// Maximum size of a copied body, in bytes; 0 = copies have no body.
    pub(crate) max_body_bytes: usize,
    /// Path for the copies; replaces the request path.
    pub(crate) path: Option<String>,
    /// Counts the copies in progress.
    pub(crate) concurrent: Arc<ConcurrencyLimit>,
    /// Whether the copies are authorization requests, whose responses decide whether the original requests are allowed.
    pub(crate) is_auth_request: bool,
    /// The policy for copies, which are never retried.
    pub(crate) retry: RetryPolicy,
    pub(crate) timeouts: TimeoutsMs,
}

/// Timeouts, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeoutsMs {
    pub(crate) request: u64,
    pub(crate) idle: u64,
    pub(crate) client: u64,
    pub(crate) connect: u64,
    pub(crate) server: u64,
    /// Time to the first byte of a response.
    pub(crate) response: u64,
    pub(crate) tunnel: u64,
    /// Time for a request with all its retries; 0 = no limit.
    pub(crate) total: u64,
}

impl From<&ProxyTimeouts> for TimeoutsMs {
    fn from(timeouts: &ProxyTimeouts) -> Self {
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 2);
        Self {
            request: ms(timeouts.request),
            idle: ms(timeouts.idle),
            client: ms(timeouts.client),
            connect: ms(timeouts.connect),
            server: ms(timeouts.server),
            response: ms(timeouts.response.unwrap_or(timeouts.server)),
            tunnel: ms(timeouts.tunnel),
            total: timeouts.total.map_or(0, ms),
        }
    }
}

/// The configuration of all workers.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) services: Vec<Arc<Service>>,
    /// The listening sockets, with their services.
    pub(crate) listen: Vec<(Arc<Listeners>, Arc<Service>)>,
    /// Services that were removed, but whose clients another process may still hand over.
    pub(crate) removed: Vec<Arc<Service>>,
    /// Number of targets ever created.
    pub(crate) targets: usize,
}
