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
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustls::ServerConfig;
use weir_http::{HeadLimits, RequestPath};
use weir_model::{
    Compression, Forwarded, ForwardedPath, HashKey, Network, NormalizePath, ProxyHeader,
    ProxyProtocol, ProxyTimeouts, RetryOn, Route, Scheduler, ServerTls, Sticky,
};

use crate::balance::{Dice, Tried};
use crate::h2::ResetLimit;
use crate::limit::{Concurrent, Rate};
use crate::log::Log;
use crate::misdirect::Misdirect;
use crate::page::Page;
use crate::queue::Line;
use crate::tls::TlsConnector;

pub(crate) use counters::{Fault, Sharded};
pub(crate) use shared::Shared;

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
    /// Without weight it still serves the clients whose cookies name it.
    pub(crate) keeps: AtomicBool,
    /// Peak of the time to the first octet: microseconds, and above them the milliseconds when that was.
    latency: AtomicU64,
}

impl Load {
    /// Whether it may have a new one.
    pub(crate) fn is_usable(&self) -> bool {
        self.weight.load(Ordering::Relaxed) > 0 && !self.is_full()
    }

    /// Whether it may have one more of a client that it had before.
    pub(crate) fn takes_back(&self) -> bool {
        !self.is_withdrawn() && !self.is_full()
    }

    /// Whether no client may come to it any more: connections that wait for one are of no use.
    pub(crate) fn is_withdrawn(&self) -> bool {
        let wanted = self.weight.load(Ordering::Relaxed) > 0 || self.keeps.load(Ordering::Relaxed);
        !wanted
    }

    /// Whether it has as many as it may.
    pub(crate) fn is_full(&self) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        most != 0 && self.active.load(Ordering::Relaxed) >= most
    }

    /// Takes a place; not one more than there are, whoever else takes one at the same time.
    pub(crate) fn take(&self) -> bool {
        let before = self.active.fetch_add(1, Ordering::AcqRel);
        let most = self.most.load(Ordering::Relaxed);
        let taken = most == 0 || before < most;
        if !taken {
            self.active.fetch_sub(1, Ordering::AcqRel);
        }
        taken
    }

    /// Learns how long a response took to begin. A longer time than known counts at once, a shorter one by and by.
    pub(crate) fn learn(&self, us: u64, now_ms: u64) {
        let us = us.clamp(1, u64::from(u32::MAX));
        let known = self.latency_us(now_ms);
        let us = if us >= known {
            us
        } else {
            (known * 7 + us) / 8
        };
        self.latency
            .store((now_ms & 0xffff_ffff) << 32 | us, Ordering::Relaxed);
    }

    /// What is known of it, halved for each five seconds that nothing was learnt, so that a server that was slow gets
    /// another try; 0 = nothing.
    pub(crate) fn latency_us(&self, now_ms: u64) -> u64 {
        const HALF_LIFE_MS: u64 = 5_000;
        let known = self.latency.load(Ordering::Relaxed);
        let age = (now_ms & 0xffff_ffff).wrapping_sub(known >> 32) & 0xffff_ffff;
        (known & 0xffff_ffff) >> (age / HALF_LIFE_MS).min(31)
    }
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
        self.load.active.fetch_sub(1, Ordering::AcqRel);
        self.line.call(1);
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
    /// Without a usable server a client gets no answer.
    pub(crate) silent: bool,
    /// Changes with every weight.
    pub(crate) version: Arc<AtomicU32>,
}

impl Targets {
    /// Those that are no reserve.
    pub(crate) fn own(&self) -> &[Arc<Target>] {
        &self.list[..self.tiers[0]]
    }

    /// Whether one that was not tried is usable.
    pub(crate) fn has_others(&self, tried: Tried) -> bool {
        let mut others = (0..self.list.len()).filter(|at| !tried.has(*at));
        others.any(|at| self.list[at].load.is_usable())
    }

    /// Whether one of them would be chosen but for its limit.
    pub(crate) fn is_busy(&self) -> bool {
        let weighs = |target: &Arc<Target>| target.load.weight.load(Ordering::Relaxed) > 0;
        self.list
            .iter()
            .any(|target| weighs(target) && target.load.is_full())
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
    pub(crate) routes: Vec<Route>,
    /// In which form paths are compared; `None` = as they are received.
    pub(crate) normalize_path: Option<NormalizePath>,
    /// Where each route leads in `pools`, and with what weight; of one that answers, nowhere.
    pub(crate) leads: Vec<Vec<(usize, u32)>>,
    /// Octets of a request's body; 0 = any number.
    pub(crate) body_most: u64,
    pub(crate) rate: Option<Arc<Rate>>,
    pub(crate) concurrent: Option<Arc<Concurrent>>,
    /// Of HTTP/2 streams.
    pub(crate) resets: Option<Arc<ResetLimit>>,
    pub(crate) limit_key: HashKey,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// `None` = no request of its clients is misdirected.
    pub(crate) misdirect: Option<Misdirect>,
    /// Clients may speak HTTP/2.
    pub(crate) http2: bool,
    pub(crate) timeouts: Millis,
    pub(crate) head: HeadLimits,
    pub(crate) retries: u32,
    pub(crate) connections: u32,
    pub(crate) idle_servers: usize,
    /// Requests of one connection to a server; 0 = any number.
    pub(crate) server_requests: u32,
    /// Streams of one HTTP/2 client at once.
    pub(crate) streams: u32,
    /// What makes a request go to another server, and whether responses must be looked at for it.
    pub(crate) retry: RetryOn,
    pub(crate) retry_reads: bool,
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

    /// Where a route leads: the one pool, or one of several by chance and weight.
    pub(crate) fn lead(&self, route: usize, dice: &mut Dice) -> Option<usize> {
        let leads = self.leads.get(route)?;
        if let [(only, _)] = leads.as_slice() {
            return Some(*only);
        }
        let sum: u64 = leads.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut rolled = (u64::from(dice.roll()) * sum) >> 32;
        for (pool, weight) in leads {
            match rolled.checked_sub(u64::from(*weight)) {
                None => return Some(*pool),
                Some(rest) => rolled = rest,
            }
        }
        None
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
