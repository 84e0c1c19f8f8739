//! The workers' configuration: services with listeners, pools and servers, as an immutable snapshot that they fetch
//! once per wake-up, and the numbers that workers and control share.
//!
//! Only numbers change in a snapshot: a server's weight, its load, the counters. All workers share the loads that
//! schedulers compare.

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
use weir_select::limit::Concurrent;
use weir_select::route::{Limits, Routes};
use weir_select::{Fault, Load, RetryPolicy, Server};

use crate::h2::ResetLimit;
use crate::log::Log;
use crate::log::tap::Taps;
use crate::misdirect::Misdirect;
use crate::page::Page;
use crate::queue::Queue;
use crate::tls::{CertificateExpiry, TlsConnector};
use crate::trace::Tracer;

pub use detail::Detail;

pub(crate) use counters::{Count, Sharded};
pub(crate) use detail::Details;
pub(crate) use exchanges::{Exchanges, Finished, PerWorker, RecentTimes};
pub(crate) use shared::Shared;

/// A server as one service uses it.
#[derive(Debug)]
pub(crate) struct Target {
    /// Index among all targets that ever existed; a worker's idle connections are stored by it.
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// `None` = the listener's.
    pub(crate) port: Option<u16>,
    /// Path of the unix socket to connect to in place of `address`.
    pub(crate) unix: Option<Arc<str>>,
    pub(crate) load: Arc<Load>,
    /// How to connect to it; a connection of another kind belongs to another target.
    pub(crate) tls: Option<ServerTls>,
    pub(crate) http2: bool,
    /// Identifies it in a hash; depends on its name only.
    pub(crate) seed: u64,
    /// The queue of its pool.
    pub(crate) queue: Arc<Queue>,
    pub(crate) counters: Arc<Sharded>,
    pub(crate) exchanges: Arc<PerWorker<Exchanges>>,
    pub(crate) recent: Arc<PerWorker<RecentTimes>>,
}

impl Target {
    /// A server of no pool, for a tunnel that `worker` took over from another process. It has no idle connections, and
    /// no client is sent to it.
    pub(crate) fn unlisted(name: &str, address: IpAddr, port: u16, worker: usize) -> Self {
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
            counters: Arc::new(Sharded::new(worker + 1)),
            exchanges: Arc::new(PerWorker::new(worker + 1)),
            recent: Arc::new(PerWorker::new(worker + 1)),
        }
    }

    /// Records a success, or a fault.
    pub(crate) fn record_result(&self, worker: usize, fault: Option<Fault>) {
        let counters = self.counters.of(worker);
        match fault {
            None => counters.well.add(1),
            Some(fault) => counters.faults[fault as usize].add(1),
        }
    }

    /// Releases a slot, and calls the queue.
    pub(crate) fn release_slot(&self) {
        self.load.release();
        self.queue.call(1);
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

/// A pool as one service uses it.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) pool: String,
    pub(crate) scheduler: Scheduler,
    pub(crate) tls: Option<TlsConnector>,
    /// Whether servers use HTTP/2.
    pub(crate) http2: bool,
    /// The pool's servers in file order, then the backups, then the sorry server.
    pub(crate) list: Vec<Arc<Target>>,
    /// Index of the first backup, and of the sorry server.
    pub(crate) tiers: [usize; 2],
    pub(crate) hash_key: HashKey,
    pub(crate) sticky: Option<Stickiness>,
    /// `Host` of requests to the servers.
    pub(crate) host: Option<Template>,
    /// Version of the PROXY protocol that servers expect.
    pub(crate) preamble: Option<ProxyHeader>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) queue_ms: u64,
    pub(crate) no_server: NoServer,
    /// Changes with every weight.
    pub(crate) version: Arc<AtomicU32>,
    pub(crate) exchanges: Arc<PerWorker<Exchanges>>,
}

impl Targets {
    /// The pool as it is now, for a decision.
    pub(crate) fn view(&self) -> weir_select::Pool<'_, Arc<Target>> {
        weir_select::Pool {
            scheduler: self.scheduler,
            servers: &self.list,
            tiers: self.tiers,
            version: self.version.load(Ordering::Acquire),
            queued: self.queue.len(),
            queue_timeout_ms: self.queue_ms,
            no_server: self.no_server,
        }
    }
}

/// How clients are kept at a server.
#[derive(Debug)]
pub(crate) struct Stickiness {
    pub(crate) kind: Sticky,
    /// The cookie values of the servers, in the order of the list.
    pub(crate) signs: Vec<[u8; 16]>,
    /// Attributes of a cookie that Weir sets; empty = none.
    pub(crate) attributes: String,
}

/// Listening sockets of one address: one for each worker, more if another process with more workers handed them over.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) address: SocketAddr,
    pub(crate) sockets: Vec<OwnedFd>,
    /// Socket `n` belongs to worker `n % workers`.
    pub(crate) workers: usize,
}

/// One service. The plan owns its sockets: a client that outlives the service would keep them open, and new clients
/// would wait where no worker accepts.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) protocol: ProxyProtocol,
    /// `ADDRESS:PORT` for a request without `Host`.
    pub(crate) host: String,
    /// The service's own pool, then those of its routes.
    pub(crate) pools: Vec<Targets>,
    pub(crate) routes: Routes,
    /// By route, what replaces the service's settings; empty if no route has any.
    pub(crate) options: Vec<Option<Box<RouteOptions>>>,
    /// Maximum body size of a request whose route sets none, if some route sets one; 0 = no limit.
    pub(crate) body_bytes: u64,
    /// Users by route; `None` = no route and no service has any.
    pub(crate) auth: Option<Auths>,
    /// Whether a route has `forward_auth`.
    pub(crate) has_forward_auth: bool,
    /// The form in which paths are compared; `None` = as received.
    pub(crate) normalize_path: Option<NormalizePath>,
    pub(crate) limits: Limits,
    /// Limit of HTTP/2 stream resets.
    pub(crate) resets: Option<Arc<ResetLimit>>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Its certificates, the first to expire first.
    pub(crate) expiries: Vec<CertificateExpiry>,
    /// `None` = no request is misdirected.
    pub(crate) misdirect: Option<Misdirect>,
    /// Whether clients may use HTTP/2.
    pub(crate) http2: bool,
    pub(crate) timeouts: Millis,
    pub(crate) head: HeadLimits,
    pub(crate) connections: u32,
    pub(crate) idle_servers: usize,
    /// Maximum number of requests on one connection to a server; 0 = no limit.
    pub(crate) server_requests: u32,
    /// Maximum number of concurrent streams of an HTTP/2 client.
    pub(crate) streams: u32,
    pub(crate) retry: RetryPolicy,
    /// Retry budget in percent of the requests.
    pub(crate) retry_percent: u32,
    pub(crate) forwarded: Forwarded,
    pub(crate) x_forwarded: ClientFields,
    /// Changes to the header of every request, and of every response.
    pub(crate) request_header: HeaderEdits,
    pub(crate) response_header: HeaderEdits,
    /// Whether routes or texts need to know the client's TLS connection.
    pub(crate) needs_tls: bool,
    /// Whether a client that closes its direction aborts its request.
    pub(crate) abort_on_close: bool,
    /// Whether a body of known length is received before a server is selected.
    pub(crate) request_buffering: bool,
    pub(crate) pages: Vec<Page>,
    pub(crate) compression: Option<Compression>,
    /// Networks of clients that `x_forwarded` does not apply to.
    pub(crate) x_forwarded_except: Vec<Network>,
    pub(crate) trusted: Vec<Network>,
    /// Whether clients send a PROXY protocol header.
    pub(crate) preamble: bool,
    pub(crate) log: Option<Arc<Log>>,
    /// The maps that the log's format names.
    pub(crate) log_maps: Vec<Arc<ValueMap>>,
    pub(crate) taps: Arc<Taps>,
    /// `None` = requests are not traced.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The field of request identifiers.
    pub(crate) request_id: Option<String>,
    pub(crate) counters: Arc<Sharded>,
    pub(crate) exchanges: Arc<PerWorker<Exchanges>>,
    pub(crate) details: Arc<PerWorker<Details>>,
    /// Maximum number of requests of a client per minute; 0 = no limit.
    pub(crate) rate_per_minute: u32,
    /// One per route, with its conditions.
    pub(crate) route_exchanges: Vec<(String, Arc<PerWorker<Exchanges>>)>,
    /// Current clients of all workers.
    pub(crate) clients: Arc<AtomicU32>,
}

impl Service {
    /// The users that may send requests of a route, or of none; `None` = all clients.
    pub(crate) fn auth_of(&self, route: Option<usize>) -> Option<&BasicAuth> {
        let auth = self.auth.as_ref()?;
        let of_route = route.and_then(|at| auth.routes.get(at)?.as_ref());
        match of_route {
            Some(of_route) => of_route.as_ref(),
            None => auth.own.as_ref(),
        }
    }

    /// The server that decides about requests of a route.
    pub(crate) fn forward_auth_of(&self, route: Option<usize>) -> Option<&Arc<ForwardAuth>> {
        let options = self.options.get(route?)?.as_ref()?;
        options.forward_auth.as_ref()
    }

    /// Counts a client of a worker as one of `other` from now on: the same service with another configuration, or one
    /// that was removed and added again.
    pub(crate) fn pass_client(&self, other: &Self, worker: usize) {
        if Arc::ptr_eq(&self.clients, &other.clients) {
            return;
        }
        self.clients.fetch_sub(1, Ordering::Relaxed);
        self.counters.of(worker).present.sub(1);
        other.clients.fetch_add(1, Ordering::Relaxed);
        other.counters.of(worker).present.add(1);
    }

    /// One of its further numbers in a worker.
    pub(crate) fn detail(&self, worker: usize, detail: Detail) -> &Count {
        self.details.of(worker).of(detail)
    }

    /// Whether it changes headers of all requests or responses.
    pub(crate) const fn has_header_edits(&self) -> bool {
        !self.request_header.is_empty() || !self.response_header.is_empty()
    }

    /// Path and query that a server receives if no route rewrites them.
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

    /// The servers of all its pools.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.pools.iter().flat_map(|pool| &pool.list)
    }
}

/// Users that may send requests.
#[derive(Debug)]
pub(crate) struct Auths {
    /// Of the service.
    pub(crate) own: Option<BasicAuth>,
    /// By route in place of the service's; the inner `None` = all clients.
    pub(crate) routes: Vec<Option<Option<BasicAuth>>>,
}

/// Settings of a route in place of its service's.
#[derive(Debug)]
pub(crate) struct RouteOptions {
    pub(crate) timeouts: Millis,
    pub(crate) retry: RetryPolicy,
    /// Maximum number of bytes of a request's body; 0 = no limit.
    pub(crate) body_bytes: u64,
    pub(crate) compression: Option<Compression>,
    pub(crate) logged: bool,
    /// Of each client.
    pub(crate) limits: Option<Limits>,
    /// Requests in progress of all clients.
    pub(crate) all_clients: Option<Arc<Concurrent>>,
    /// Rules for single fields about the client; `None` = the service's.
    pub(crate) x_forwarded: Option<RouteClientFields>,
    /// Copies of its requests.
    pub(crate) mirrors: Vec<Arc<Mirror>>,
    /// Name of the server of the pool that gets its requests while it is usable.
    pub(crate) server: Option<String>,
    /// The server that decides about its requests.
    pub(crate) forward_auth: Option<Arc<ForwardAuth>>,
}

/// `forward_auth` of a route.
#[derive(Debug)]
pub(crate) struct ForwardAuth {
    /// The rules.
    pub(crate) rules: weir_model::ForwardAuth,
    /// How the request to the server that decides is sent: like a copy, without a body.
    pub(crate) way: Arc<Mirror>,
}

/// Copies of a route's requests.
#[derive(Debug)]
pub(crate) struct Mirror {
    /// Index of the pool of their servers.
    pub(crate) pool: usize,
    /// Share of the requests, in hundredths of a percent.
    pub(crate) share: u32,
    /// Maximum number of bytes of a body; 0 = copies have no body.
    pub(crate) body_bytes: usize,
    /// Their path, in place of that of the request.
    pub(crate) path: Option<String>,
    /// Copies in progress.
    pub(crate) concurrent: Arc<Concurrent>,
    /// Whether these are authorization requests, whose responses decide about other requests.
    pub(crate) is_auth_request: bool,
    /// Copies are not retried.
    pub(crate) retry: RetryPolicy,
    pub(crate) timeouts: Millis,
}

/// The timeouts in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Millis {
    pub(crate) request: u64,
    pub(crate) idle: u64,
    pub(crate) client: u64,
    pub(crate) connect: u64,
    pub(crate) server: u64,
    /// Time to the first byte of a response.
    pub(crate) response: u64,
    pub(crate) tunnel: u64,
    /// 0 = none.
    pub(crate) total: u64,
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
            response: ms(timeouts.response.unwrap_or(timeouts.server)),
            tunnel: ms(timeouts.tunnel),
            total: timeouts.total.map_or(0, ms),
        }
    }
}

/// Everything that workers need.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) services: Vec<Arc<Service>>,
    /// The listeners, with their services.
    pub(crate) listen: Vec<(Arc<Listeners>, Arc<Service>)>,
    /// Services that are no longer configured, but whose clients another process may still hand over.
    pub(crate) former: Vec<Arc<Service>>,
    /// Number of targets that ever existed.
    pub(crate) targets: usize,
}
