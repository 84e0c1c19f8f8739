//! Counts the proxy's file descriptors, and limits the number of clients accordingly.
//!
//! RLIMIT_NOFILE applies to the whole process, so the counts do too. Part of the limit is reserved for other uses: the
//! API, health checks, log files, reloads. A client is accepted only if a descriptor for its connection to a server is
//! also available, so an accepted client never fails for lack of descriptors.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use rustix::process::{Resource, getrlimit};
use weir_model::{Desired, ProxyLimits};

use crate::tls::Problem;

/// Minimum and maximum number of reserved descriptors.
const RESERVE: (usize, usize) = (32, 1024);
/// Between these bounds, the reserve is the descriptor limit divided by this number.
const RESERVE_SHARE: usize = 8;
/// Assumed number of descriptors that a process without clients uses, if they cannot be counted.
const DEFAULT_OTHERS: usize = 64;
/// How long workers close idle clients for a worker that has no idle clients itself, in milliseconds.
const IDLE_CLOSE_MS: u64 = 500;

/// The process's descriptors.
pub(crate) static TABLE: DescriptorTable = DescriptorTable::new();

/// The descriptor counts and limits of all workers.
#[derive(Debug)]
pub(crate) struct DescriptorTable {
    /// RLIMIT_NOFILE.
    limit: AtomicUsize,
    /// Number of open descriptors that are not counted in `clients`, `servers` and `pipes`.
    others: AtomicUsize,
    /// Number of descriptors to reserve for health checks, before it is limited to a share of `limit`.
    reserve: AtomicUsize,
    /// Number of descriptors that the proxy may use.
    usable: AtomicUsize,
    clients: PaddedCounter,
    servers: PaddedCounter,
    pipes: PaddedCounter,
    /// Time until which workers close idle clients for each other, in milliseconds on the worker clock.
    idle_close_until: AtomicU64,
}

/// A counter on its own cache line, because all workers update it.
#[derive(Debug)]
#[repr(align(64))]
struct PaddedCounter(AtomicUsize);

/// The use of a counted descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DescriptorUse {
    Client,
    Server,
    /// Both ends of a pipe.
    Pipe,
}

/// Counts a descriptor until it is dropped.
#[derive(Debug)]
pub(crate) struct DescriptorGuard(DescriptorUse);

impl DescriptorGuard {
    pub(crate) fn new(kind: DescriptorUse) -> Self {
        let (count, descriptors) = TABLE.count(kind);
        count.fetch_add(descriptors, Relaxed);
        Self(kind)
    }
}

impl Drop for DescriptorGuard {
    fn drop(&mut self) {
        let (count, descriptors) = TABLE.count(self.0);
        count.fetch_sub(descriptors, Relaxed);
    }
}

/// Descriptor counts, as `weir status` shows them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// The limit: RLIMIT_NOFILE.
    pub limit: u64,
    /// Number of open connections from clients.
    pub clients: u64,
    /// Number of open connections to servers.
    pub servers: u64,
    /// Maximum number of clients, each with a connection to a server.
    pub clients_max: u64,
}

impl DescriptorTable {
    const fn new() -> Self {
        const fn zero() -> PaddedCounter {
            PaddedCounter(AtomicUsize::new(0))
        }
        Self {
            limit: AtomicUsize::new(usize::MAX),
            others: AtomicUsize::new(0),
            reserve: AtomicUsize::new(0),
            usable: AtomicUsize::new(usize::MAX),
            clients: zero(),
            servers: zero(),
            pipes: zero(),
            idle_close_until: AtomicU64::new(0),
        }
    }

    const fn count(&self, kind: DescriptorUse) -> (&AtomicUsize, usize) {
        match kind {
            DescriptorUse::Client => (&self.clients.0, 1),
            DescriptorUse::Server => (&self.servers.0, 1),
            DescriptorUse::Pipe => (&self.pipes.0, 2),
        }
    }

    fn used_counts(&self) -> [usize; 3] {
        [&self.clients, &self.servers, &self.pipes].map(|count| count.0.load(Relaxed))
    }

    /// Returns whether `clients` more clients, each with a connection to a server, and `others` more descriptors fit.
    fn has_room_for(&self, clients: usize, others: usize) -> bool {
        let [present, servers, pipes] = self.used_counts();
        let clients = present + clients;
        clients + servers.max(clients) + pipes + others <= self.usable.load(Relaxed)
    }

    /// Returns whether one more client fits.
    pub(crate) fn has_room_for_client(&self) -> bool {
        self.has_room_for(1, 0)
    }

    /// Returns whether a pipe fits. Pipes are only an optimization, so they do not use the reserve.
    pub(crate) fn has_room_for_pipe(&self) -> bool {
        self.has_room_for(0, 2)
    }

    /// Returns whether a connection to a server fits. Several workers can each accept a client at the same time,
    /// although there is room for only one. The server connections of these clients use the reserve, so no accepted
    /// client fails.
    pub(crate) fn has_room_for_server(&self) -> bool {
        let slack = reserve(self.limit.load(Relaxed)) / 2;
        self.used_counts().iter().sum::<usize>() < self.usable.load(Relaxed).saturating_add(slack)
    }

    /// Returns whether descriptors are scarce because of idle server connections: at least 7/8 of the usable
    /// descriptors are in use, and there are more server connections than clients.
    pub(crate) fn is_scarce(&self) -> bool {
        let [clients, servers, pipes] = self.used_counts();
        let usable = self.usable.load(Relaxed);
        servers > clients && clients + servers + pipes >= usable - usable / 8
    }

    /// Reads the current limit, which another process may have changed, and recomputes the number of usable
    /// descriptors.
    pub(crate) fn update_limit(&self) {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        });
        self.limit.store(limit, Relaxed);
        let reserve = reserve(limit) + self.reserve.load(Relaxed).min(limit / RESERVE_SHARE);
        let usable = limit
            .saturating_sub(self.others.load(Relaxed))
            .saturating_sub(reserve);
        self.usable.store(usable, Relaxed);
    }

    /// Counts the other open descriptors, and reads the current limit. Reserves one descriptor for the health checks of
    /// each checked server, up to an eighth of the limit.
    pub(crate) fn count_open(&self, checked_server_count: usize) {
        // Workers open and close descriptors during the count, so the median of three counts is used.
        let mut counts: Vec<usize> = (0..3).filter_map(|_| self.count_others()).collect();
        counts.sort_unstable();
        let others = counts
            .get(counts.len() / 2)
            .copied()
            .unwrap_or(DEFAULT_OTHERS);
        self.others.store(others, Relaxed);
        self.reserve.store(checked_server_count, Relaxed);
        self.update_limit();
    }

    fn count_others(&self) -> Option<usize> {
        let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
        Some(open.saturating_sub(self.used_counts().iter().sum()))
    }

    /// Makes other workers close idle clients.
    pub(crate) fn request_idle_close(&self, now_ms: u64) {
        self.idle_close_until.store(now_ms + IDLE_CLOSE_MS, Relaxed);
    }

    /// Returns whether a worker has recently requested that idle clients be closed, and there is still no room for a
    /// client.
    pub(crate) fn is_idle_close_requested(&self, now_ms: u64) -> bool {
        now_ms < self.idle_close_until.load(Relaxed) && !self.has_room_for_client()
    }

    pub(crate) fn status(&self) -> Descriptors {
        let number = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
        let [clients, servers, _] = self.used_counts();
        Descriptors {
            limit: number(self.limit.load(Relaxed)),
            clients: number(clients),
            servers: number(servers),
            clients_max: number(self.usable.load(Relaxed) / 2),
        }
    }
}

fn reserve(limit: usize) -> usize {
    (limit / RESERVE_SHARE).clamp(RESERVE.0, RESERVE.1)
}

/// Returns a problem for each service whose configured `limits.connections` exceeds the available descriptors, or one
/// problem if only the sum over several services does. The default limit causes no problem.
pub(crate) fn problems(desired: &Desired) -> Vec<Problem> {
    let Some(limit) = getrlimit(Resource::Nofile).maximum else {
        return Vec::new();
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let clients_max = limit.saturating_sub(DEFAULT_OTHERS + reserve(limit)) / 2;
    excessive_limits(desired, limit, clients_max)
}

/// Like [`problems`], but with the running process's limit and descriptor counts.
pub(crate) fn excessive_limits_now(desired: &Desired) -> Vec<Problem> {
    let usable = TABLE.usable.load(Relaxed);
    excessive_limits(desired, TABLE.limit.load(Relaxed), usable / 2)
}

fn excessive_limits(desired: &Desired, limit: usize, clients_max: usize) -> Vec<Problem> {
    let configured_limit = |proxy: &weir_model::Proxy| {
        let connections = proxy.limits.connections;
        (connections != ProxyLimits::default().connections).then_some(connections as usize)
    };
    let problem = |source, message: String| {
        Problem {
        fatal: false,
        message,
        cause: format!(
            "{limit} open files (RLIMIT_NOFILE) are enough for {clients_max} concurrent clients, each with a \
             connection to a server; further clients wait to be accepted"
        ),
        fix: "raise the hard limit (`LimitNOFILE=` in the unit, `ulimit -Hn`), or lower `limits.connections`"
            .to_owned(),
        source,
    }
    };
    let mut problems = Vec::new();
    let (mut sum, mut configured_count, mut last) = (0_usize, 0, weir_model::Source::default());
    for proxy in &desired.proxies {
        let Some(connections) = configured_limit(proxy) else {
            continue;
        };
        if connections > clients_max {
            problems.push(problem(
                proxy.source,
                format!(
                    "service {}: limits.connections = {connections} is more than the open-file limit allows",
                    proxy.name
                ),
            ));
        }
        (sum, configured_count, last) = (
            sum.saturating_add(connections),
            configured_count + 1,
            proxy.source,
        );
    }
    if problems.is_empty() && configured_count > 1 && sum > clients_max {
        problems.push(problem(
            last,
            format!(
                "the sum of limits.connections of {configured_count} services is {sum}, more than the open-file limit \
                 allows"
            ),
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Proxy, ProxyProtocol};

    fn table(usable: usize, clients: usize, servers: usize, pipes: usize) -> DescriptorTable {
        let table = DescriptorTable::new();
        table.limit.store(256, Relaxed);
        table.usable.store(usable, Relaxed);
        table.clients.0.store(clients, Relaxed);
        table.servers.0.store(servers, Relaxed);
        table.pipes.0.store(pipes, Relaxed);
        table
    }

    #[test]
    fn client_is_admitted_only_if_server_connection_fits() {
        assert!(table(100, 49, 0, 0).has_room_for_client());
        assert!(
            !table(100, 50, 0, 0).has_room_for_client(),
            "no descriptor for the server of client 51"
        );
        assert!(
            !table(100, 49, 51, 0).has_room_for_client(),
            "idle server connections use the descriptors"
        );
        assert!(
            !table(100, 49, 0, 2).has_room_for_client(),
            "a pipe uses the descriptors"
        );
        assert!(
            table(100, 50, 49, 0).has_room_for_server(),
            "an admitted client's server connection fits"
        );
        assert!(
            table(100, 51, 51, 0).has_room_for_server(),
            "half of the reserve of 32 is for clients that are accepted at the same time"
        );
        assert!(!table(100, 58, 58, 0).has_room_for_server());
        assert!(!table(100, 50, 10, 0).has_room_for_pipe());
        assert!(table(100, 40, 10, 0).has_room_for_pipe());
    }

    #[test]
    fn reserve_is_bounded_share_of_limit() {
        assert_eq!(
            [256, 1024, 20_000, 1_000_000].map(reserve),
            [32, 128, 1024, 1024]
        );
    }

    #[test]
    fn only_configured_excessive_limits_are_reported() {
        let service = |name: &str, connections| {
            let mut proxy = Proxy::new(name, ProxyProtocol::Http, "p");
            proxy.limits.connections = connections;
            proxy
        };
        let messages = |connections: &[u32]| {
            let desired = Desired {
                proxies: connections
                    .iter()
                    .map(|limit| service("s", *limit))
                    .collect(),
                ..Desired::default()
            };
            let problems = excessive_limits(&desired, 1024, 400);
            problems
                .into_iter()
                .map(|problem| problem.message)
                .collect::<Vec<_>>()
        };
        let default = ProxyLimits::default().connections;
        assert!(messages(&[default, 400]).is_empty());
        assert_eq!(
            messages(&[401]),
            ["service s: limits.connections = 401 is more than the open-file limit allows"]
        );
        assert_eq!(
            messages(&[300, 300]),
            [
                "the sum of limits.connections of 2 services is 600, more than the open-file limit allows"
            ]
        );
    }
}
