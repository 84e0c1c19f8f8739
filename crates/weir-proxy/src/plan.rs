//! What the workers run by: services with listeners, pools and servers, as an immutable snapshot that they look up once
//! per wake-up, and the numbers that workers and control share.
//!
//! Only numbers change in a snapshot: a server's weight, its load, the counters. The load that schedulers compare is
//! shared by all workers.

mod counters;
mod shared;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::ServerConfig;
use weir_http::{HeadLimits, RequestPath};
use weir_model::{
    Compression, Forwarded, ForwardedPath, HashKey, Network, NoServer, NormalizePath, ProxyHeader,
    ProxyProtocol, ProxyTimeouts, Scheduler, ServerTls, Sticky,
};
use weir_select::route::{Limits, Routes};
use weir_select::{Fault, Load, RetryPolicy, Server};

use crate::h2::ResetLimit;
use crate::log::Log;
use crate::misdirect::Misdirect;
use crate::page::Page;
use crate::queue::Line;
use crate::tls::TlsConnector;

pub(crate) use counters::Sharded;
pub(crate) use shared::Shared;

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
    pub(crate) http2: bool,
    /// What tells it apart in a hash; follows from its name.
    pub(crate) seed: u64,
    /// Who waits for a server of its pool.
    pub(crate) line: Arc<Line>,
    pub(crate) counters: Arc<Sharded>,
}

impl Target {
    /// A server of no pool, for a tunnel to it that came to `worker` from another process. It has no place among those
    /// whose connections wait, and no client is sent there.
    pub(crate) fn stranger(name: &str, address: IpAddr, port: u16, worker: usize) -> Self {
        Self {
            id: u32::MAX,
            name: name.to_owned(),
            address,
            port: Some(port),
            load: Arc::default(),
            tls: None,
            http2: false,
            seed: 0,
            line: Arc::default(),
            counters: Arc::new(Sharded::new(worker + 1)),
        }
    }

    /// Notes how it did: as it should, or not.
    pub(crate) fn judge(&self, worker: usize, fault: Option<Fault>) {
        let counters = self.counters.of(worker);
        match fault {
            None => counters.well.add(1),
            Some(fault) => counters.faults[fault as usize].add(1),
        }
    }

    /// Gives back a place that was taken.
    pub(crate) fn give_back(&self) {
        self.load.release();
        self.line.call(1);
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
    /// Servers speak HTTP/2.
    pub(crate) http2: bool,
    /// Those of the pool in file order, then the backups, then the sorry server.
    pub(crate) list: Vec<Arc<Target>>,
    /// Where the backups begin, and where they end.
    pub(crate) tiers: [usize; 2],
    pub(crate) hash_key: HashKey,
    pub(crate) sticky: Option<Stickiness>,
    /// What servers are told in front.
    pub(crate) preamble: Option<ProxyHeader>,
    pub(crate) line: Arc<Line>,
    pub(crate) queue_ms: u64,
    pub(crate) no_server: NoServer,
    /// Changes with every weight.
    pub(crate) version: Arc<AtomicU32>,
}

impl Targets {
    /// The pool as it is now, for a decision.
    pub(crate) fn view(&self) -> weir_select::Pool<'_, Arc<Target>> {
        weir_select::Pool {
            scheduler: self.scheduler,
            servers: &self.list,
            tiers: self.tiers,
            version: self.version.load(Ordering::Acquire),
            queued: self.line.len(),
            queue_timeout_ms: self.queue_ms,
            no_server: self.no_server,
        }
    }
}

/// How clients come back to a server.
#[derive(Debug)]
pub(crate) struct Stickiness {
    pub(crate) kind: Sticky,
    /// Of each server in the list.
    pub(crate) signs: Vec<[u8; 16]>,
    /// Of a cookie that Weir sets; empty = none.
    pub(crate) attributes: String,
}

/// Sockets on one address: one for each worker, more when another process with more workers left them.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) address: SocketAddr,
    pub(crate) sockets: Vec<OwnedFd>,
    /// Socket `n` is worker `n % workers`'s.
    pub(crate) workers: usize,
}

/// One service. Its sockets are the plan's: a client that outlives the service would keep them open, and whoever comes
/// would wait where nobody accepts.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) protocol: ProxyProtocol,
    /// `ADDRESS:PORT` for a request without `Host`.
    pub(crate) host: String,
    /// Of each pool, the service's own first.
    pub(crate) pools: Vec<Targets>,
    pub(crate) routes: Routes,
    /// In which form paths are compared; `None` = as they are received.
    pub(crate) normalize_path: Option<NormalizePath>,
    pub(crate) limits: Limits,
    /// Of HTTP/2 streams.
    pub(crate) resets: Option<Arc<ResetLimit>>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// `None` = no request of its clients is misdirected.
    pub(crate) misdirect: Option<Misdirect>,
    /// Clients may speak HTTP/2.
    pub(crate) http2: bool,
    pub(crate) timeouts: Millis,
    pub(crate) head: HeadLimits,
    pub(crate) connections: u32,
    pub(crate) idle_servers: usize,
    /// Requests of one connection to a server; 0 = any number.
    pub(crate) server_requests: u32,
    /// Streams of one HTTP/2 client at once.
    pub(crate) streams: u32,
    pub(crate) retry: RetryPolicy,
    /// Requests that may be sent a second time, in percent of all.
    pub(crate) retry_percent: u32,
    pub(crate) forwarded: Forwarded,
    /// A client that closes its direction ends its request.
    pub(crate) abort_on_close: bool,
    /// Whether content of a known length is waited for before a server is chosen.
    pub(crate) request_buffering: bool,
    pub(crate) pages: Vec<Page>,
    pub(crate) compression: Option<Compression>,
    pub(crate) trusted: Vec<Network>,
    /// Clients say in front for whom they speak.
    pub(crate) preamble: bool,
    pub(crate) log: Option<Arc<Log>>,
    pub(crate) counters: Arc<Sharded>,
    /// Clients connected now, over all workers.
    pub(crate) clients: Arc<AtomicU32>,
}

impl Service {
    /// A client of a worker's counts as one of `other` from now on: the same service in another form, or one that was
    /// gone meanwhile and has begun to count anew.
    pub(crate) fn pass_client(&self, other: &Self, worker: usize) {
        if Arc::ptr_eq(&self.clients, &other.clients) {
            return;
        }
        self.clients.fetch_sub(1, Ordering::Relaxed);
        self.counters.of(worker).present.sub(1);
        other.clients.fetch_add(1, Ordering::Relaxed);
        other.counters.of(worker).present.add(1);
    }

    /// Path and query that a server is asked for where no route writes another.
    pub(crate) fn asked<'a>(&self, target: &RequestPath<'a>, received: &'a [u8]) -> &'a [u8] {
        match self.normalize_path {
            Some(rules) if rules.forward == ForwardedPath::Normalized => target.as_bytes(),
            _ => received,
        }
    }

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
    /// For a response to begin.
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

/// Everything that workers run by.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) services: Vec<Arc<Service>>,
    /// Where each is listened for.
    pub(crate) listen: Vec<(Arc<Listeners>, Arc<Service>)>,
    /// Services that are in force no more, while another process may still send clients of theirs.
    pub(crate) former: Vec<Arc<Service>>,
    /// How many targets there ever were.
    pub(crate) targets: usize,
}
