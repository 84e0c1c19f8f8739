//! Accounts for file descriptors: how many the proxy may use, and how many it uses.
//!
//! RLIMIT_NOFILE limits the process as a whole, so the counts are the process's too. A part of the limit stays free for
//! everything else that opens descriptors: the API, health checks, log files, reloads. A client is accepted only if the
//! rest has a descriptor for its connection to a server as well, so an accepted client never fails because descriptors
//! are used up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use rustix::process::{Resource, getrlimit};
use weir_model::{Desired, ProxyLimits};

use crate::tls::Problem;

/// Smallest and largest part of the limit that stays free, and its share of limits in between.
const RESERVE: (usize, usize) = (32, 1024);
const RESERVE_SHARE: usize = 8;
/// Descriptors of a process without clients, if they cannot be counted.
const USUAL: usize = 64;
/// How long all workers close idle clients after one worker has found no idle client itself.
const WANTED_MS: u64 = 500;

/// The process's descriptors.
pub(crate) static TABLE: Table = Table::new();

/// The budget of descriptors of all workers.
#[derive(Debug)]
pub(crate) struct Table {
    /// RLIMIT_NOFILE.
    limit: AtomicUsize,
    /// Open descriptors that are not counted below, and those that stay free.
    others: AtomicUsize,
    reserve: AtomicUsize,
    /// Descriptors that the proxy may use.
    most: AtomicUsize,
    clients: Padded,
    servers: Padded,
    pipes: Padded,
    /// Until when workers close idle clients for each other, in milliseconds of the workers' clock.
    wanted_until: AtomicU64,
}

/// A number that all workers change.
#[derive(Debug)]
#[repr(align(64))]
struct Padded(AtomicUsize);

/// What a counted descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Client,
    Server,
    /// Both ends.
    Pipe,
}

/// Counts a descriptor until it is dropped.
#[derive(Debug)]
pub(crate) struct Held(Use);

impl Held {
    pub(crate) fn new(of: Use) -> Self {
        let (count, many) = TABLE.count(of);
        count.fetch_add(many, Relaxed);
        Self(of)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (count, many) = TABLE.count(self.0);
        count.fetch_sub(many, Relaxed);
    }
}

/// Descriptors, as `weir status` shows them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// The limit: RLIMIT_NOFILE.
    pub limit: u64,
    /// Clients' connections that are open.
    pub clients: u64,
    /// Connections to servers that are open.
    pub servers: u64,
    /// Clients that fit, each with a connection to a server.
    pub clients_max: u64,
}

impl Table {
    const fn new() -> Self {
        const fn zero() -> Padded {
            Padded(AtomicUsize::new(0))
        }
        Self {
            limit: AtomicUsize::new(usize::MAX),
            others: AtomicUsize::new(0),
            reserve: AtomicUsize::new(0),
            most: AtomicUsize::new(usize::MAX),
            clients: zero(),
            servers: zero(),
            pipes: zero(),
            wanted_until: AtomicU64::new(0),
        }
    }

    const fn count(&self, of: Use) -> (&AtomicUsize, usize) {
        match of {
            Use::Client => (&self.clients.0, 1),
            Use::Server => (&self.servers.0, 1),
            Use::Pipe => (&self.pipes.0, 2),
        }
    }

    fn used(&self) -> [usize; 3] {
        [&self.clients, &self.servers, &self.pipes].map(|count| count.0.load(Relaxed))
    }

    /// Whether this many more clients fit, each with a connection to a server, and this many other descriptors.
    fn fits(&self, clients: usize, others: usize) -> bool {
        let [present, servers, pipes] = self.used();
        let clients = present + clients;
        clients + servers.max(clients) + pipes + others <= self.most.load(Relaxed)
    }

    /// Whether one more client fits.
    pub(crate) fn admits(&self) -> bool {
        self.fits(1, 0)
    }

    /// Whether a pipe fits; a pipe is only an optimization.
    pub(crate) fn has_room_for_pipe(&self) -> bool {
        self.fits(0, 2)
    }

    /// Whether a connection to a server fits. Several workers may accept a client for the last free descriptor at the
    /// same time; the connections of these clients use the reserve, so that no accepted client fails.
    pub(crate) fn has_room(&self) -> bool {
        let slack = reserve(self.limit.load(Relaxed)) / 2;
        self.used().iter().sum::<usize>() < self.most.load(Relaxed).saturating_add(slack)
    }

    /// Whether idle server connections reduce the number of clients.
    pub(crate) fn is_tight(&self) -> bool {
        let [clients, servers, pipes] = self.used();
        let most = self.most.load(Relaxed);
        servers > clients && clients + servers + pipes >= most - most / 8
    }

    /// Reads the current limit, which another process may have changed.
    pub(crate) fn refit(&self) {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        });
        self.limit.store(limit, Relaxed);
        let reserve = reserve(limit) + self.reserve.load(Relaxed).min(limit / RESERVE_SHARE);
        let most = limit
            .saturating_sub(self.others.load(Relaxed))
            .saturating_sub(reserve);
        self.most.store(most, Relaxed);
    }

    /// Counts what else is open, and takes the limit as it is now. `checked` servers may each have a health check under
    /// way.
    pub(crate) fn measure(&self, checked: usize) {
        // Workers open and close meanwhile: the middle of three counts.
        let mut counts: Vec<usize> = (0..3).filter_map(|_| self.count_others()).collect();
        counts.sort_unstable();
        let others = counts.get(counts.len() / 2).copied().unwrap_or(USUAL);
        self.others.store(others, Relaxed);
        self.reserve.store(checked, Relaxed);
        self.refit();
    }

    fn count_others(&self) -> Option<usize> {
        let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
        Some(open.saturating_sub(self.used().iter().sum()))
    }

    /// Requests idle clients of other workers to be closed.
    pub(crate) fn request_idle_close(&self, now_ms: u64) {
        self.wanted_until.store(now_ms + WANTED_MS, Relaxed);
    }

    /// Whether another worker has requested idle clients to be closed.
    pub(crate) fn is_wanted(&self, now_ms: u64) -> bool {
        now_ms < self.wanted_until.load(Relaxed) && !self.admits()
    }

    pub(crate) fn status(&self) -> Descriptors {
        let number = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
        let [clients, servers, _] = self.used();
        Descriptors {
            limit: number(self.limit.load(Relaxed)),
            clients: number(clients),
            servers: number(servers),
            clients_max: number(self.most.load(Relaxed) / 2),
        }
    }
}

fn reserve(limit: usize) -> usize {
    (limit / RESERVE_SHARE).clamp(RESERVE.0, RESERVE.1)
}

/// Services whose configured `limits.connections` exceeds the available descriptors. The default limit is reduced
/// without a warning.
pub(crate) fn problems(desired: &Desired) -> Vec<Problem> {
    let Some(limit) = getrlimit(Resource::Nofile).maximum else {
        return Vec::new();
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let fit = limit.saturating_sub(USUAL + reserve(limit)) / 2;
    exceeding(desired, limit, fit)
}

/// The same for the running process, whose limit and other descriptors are known.
pub(crate) fn exceeding_now(desired: &Desired) -> Vec<Problem> {
    let most = TABLE.most.load(Relaxed);
    exceeding(desired, TABLE.limit.load(Relaxed), most / 2)
}

fn exceeding(desired: &Desired, limit: usize, fit: usize) -> Vec<Problem> {
    let wish = |proxy: &weir_model::Proxy| {
        let connections = proxy.limits.connections;
        (connections != ProxyLimits::default().connections).then_some(connections as usize)
    };
    let problem = |source, message: String| {
        Problem {
        fatal: false,
        message,
        cause: format!(
            "{limit} open files (RLIMIT_NOFILE) are enough for {fit} clients at once, each with a connection \
             to a server; more wait to be accepted"
        ),
        fix: "raise the hard limit (`LimitNOFILE=` of the unit, `ulimit -Hn`), or lower `limits.connections`"
            .to_owned(),
        source,
    }
    };
    let mut problems = Vec::new();
    let (mut sum, mut wishes, mut last) = (0_usize, 0, weir_model::Source::default());
    for proxy in &desired.proxies {
        let Some(wanted) = wish(proxy) else { continue };
        if wanted > fit {
            problems.push(problem(
                proxy.source,
                format!(
                    "service {}: limits.connections = {wanted} is more than the open files allow",
                    proxy.name
                ),
            ));
        }
        (sum, wishes, last) = (sum.saturating_add(wanted), wishes + 1, proxy.source);
    }
    if problems.is_empty() && wishes > 1 && sum > fit {
        problems.push(problem(
            last,
            format!(
                "limits.connections of {wishes} services are {sum} in all, more than the open files allow"
            ),
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Proxy, ProxyProtocol};

    fn table(most: usize, clients: usize, servers: usize, pipes: usize) -> Table {
        let table = Table::new();
        table.limit.store(256, Relaxed);
        table.most.store(most, Relaxed);
        table.clients.0.store(clients, Relaxed);
        table.servers.0.store(servers, Relaxed);
        table.pipes.0.store(pipes, Relaxed);
        table
    }

    #[test]
    fn client_is_admitted_if_its_server_descriptor_fits() {
        assert!(table(100, 49, 0, 0).admits());
        assert!(!table(100, 50, 0, 0).admits(), "no server for the 51st");
        assert!(
            !table(100, 49, 51, 0).admits(),
            "idle servers are in the way"
        );
        assert!(!table(100, 49, 0, 2).admits(), "a pipe is");
        assert!(
            table(100, 50, 49, 0).has_room(),
            "a client that is in has its own"
        );
        assert!(
            table(100, 51, 51, 0).has_room(),
            "half of the reserve of 32 is for clients that came in at the same moment"
        );
        assert!(!table(100, 58, 58, 0).has_room());
        assert!(!table(100, 50, 10, 0).has_room_for_pipe());
        assert!(table(100, 40, 10, 0).has_room_for_pipe());
    }

    #[test]
    fn the_reserve_is_a_share_of_the_limit() {
        assert_eq!(
            [256, 1024, 20_000, 1_000_000].map(reserve),
            [32, 128, 1024, 1024]
        );
    }

    #[test]
    fn only_written_limits_are_compared() {
        let service = |name: &str, connections| {
            let mut proxy = Proxy::new(name, ProxyProtocol::Http, "p");
            proxy.limits.connections = connections;
            proxy
        };
        let messages = |connections: &[u32]| {
            let desired = Desired {
                proxies: connections.iter().map(|it| service("s", *it)).collect(),
                ..Desired::default()
            };
            let problems = exceeding(&desired, 1024, 400);
            problems
                .into_iter()
                .map(|it| it.message)
                .collect::<Vec<_>>()
        };
        let default = ProxyLimits::default().connections;
        assert!(messages(&[default, 400]).is_empty());
        assert_eq!(
            messages(&[401]),
            ["service s: limits.connections = 401 is more than the open files allow"]
        );
        assert_eq!(
            messages(&[300, 300]),
            ["limits.connections of 2 services are 600 in all, more than the open files allow"]
        );
    }
}
