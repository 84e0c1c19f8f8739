//! Defines a pool in the form that server selection uses.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use weir_model::{NoServer, Scheduler};

use crate::Load;

/// A server in a pool.
pub trait Server {
    /// Returns the server's shared state.
    fn load(&self) -> &Load;
    /// Returns the number that identifies the server for the `hash` scheduler. It depends only on the server's name.
    fn hash_seed(&self) -> u64;
    /// Returns the server's address, which the `mh` scheduler hashes.
    fn address(&self) -> IpAddr;
    /// Returns the server's port; `None` = the listener's port.
    fn port(&self) -> Option<u16>;
}

impl<S: Server> Server for Arc<S> {
    fn load(&self) -> &Load {
        (**self).load()
    }

    fn hash_seed(&self) -> u64 {
        (**self).hash_seed()
    }

    fn address(&self) -> IpAddr {
        (**self).address()
    }

    fn port(&self) -> Option<u16> {
        (**self).port()
    }
}

/// A pool at the time of a decision.
#[derive(Debug)]
pub struct Pool<'a, S> {
    /// The pool's scheduler. Backups and the sorry server use `p2c`.
    pub scheduler: Scheduler,
    /// The pool's servers in file order, then the backups, then the sorry server.
    pub servers: &'a [S],
    /// Indices of the first backup and of the sorry server.
    pub tier_starts: [usize; 2],
    /// Changes whenever a weight changes.
    pub version: u32,
    /// Number of requests in the queue.
    pub queued: u32,
    /// Maximum time that a request is queued; 0 = requests are not queued.
    pub queue_timeout_ms: u64,
    /// Action if no server is usable.
    pub no_server: NoServer,
}

impl<'a, S: Server> Pool<'a, S> {
    /// Returns the servers that are neither backups nor the sorry server.
    pub fn primary(&self) -> &'a [S] {
        &self.servers[..self.tier_starts[0]]
    }

    /// Returns whether any server that has not been tried is usable.
    pub(crate) fn has_untried(&self, tried: TriedServers) -> bool {
        let mut untried = (0..self.servers.len()).filter(|index| !tried.contains(*index));
        untried.any(|index| self.servers[index].load().is_usable())
    }

    /// Returns the indices of the regular servers, of the backups, and of the sorry server.
    pub(crate) fn ranges(&self) -> [Range<usize>; 3] {
        let [backups, sorry] = self.tier_starts;
        [0..backups, backups..sorry, sorry..self.servers.len()]
    }

    /// Returns whether any server is unusable only because it is full.
    pub(crate) fn has_full_server(&self) -> bool {
        self.has_full(0..self.servers.len())
    }

    /// Returns whether any of these servers is unusable only because it is full.
    pub(crate) fn has_full(&self, range: Range<usize>) -> bool {
        let mut loads = self.servers[range].iter().map(Server::load);
        loads.any(|load| load.weight() > 0 && load.is_full())
    }

    /// Returns whether a waiting request would find a server. A request that can wait for a full server does not use a
    /// backup or the sorry server instead.
    pub fn has_usable_for_queue(&self) -> bool {
        for range in self.ranges() {
            let mut loads = self.servers[range.clone()].iter().map(Server::load);
            if loads.any(Load::is_usable) {
                return true;
            }
            if self.has_full(range) {
                return false;
            }
        }
        false
    }
}

/// The servers that have already failed for a request, by index. Servers with an index of 64 or more are never
/// excluded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TriedServers(pub(crate) u64);

impl TriedServers {
    /// Adds a server.
    pub const fn add(&mut self, index: usize) {
        if index < u64::BITS as usize {
            self.0 |= 1 << index;
        }
    }

    /// Returns whether a server was tried.
    pub const fn contains(self, index: usize) -> bool {
        index < u64::BITS as usize && self.0 & (1 << index) != 0
    }

    /// Returns whether no server was tried.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::TestServer;
    use weir_model::{SchedulerKind, finalize_64};

    #[test]
    fn tried_servers_with_index_below_64_are_remembered() {
        let mut tried = TriedServers::default();
        assert!(tried.is_empty());
        for index in [0, 5, 63, 64, 1000] {
            assert!(!tried.contains(index));
            tried.add(index);
        }
        let found: Vec<usize> = (0..2000).filter(|index| tried.contains(*index)).collect();
        assert_eq!(found, [0, 5, 63]);
    }

    /// Returns a server with this weight, limit, and number of requests in progress.
    fn server((weight, limit, active): (u32, u32, u32)) -> Arc<TestServer> {
        let load = Load::new(weight, limit);
        load.active
            .store(active, std::sync::atomic::Ordering::Relaxed);
        Arc::new(TestServer { number: 1, load })
    }

    #[test]
    fn pool_reports_usable_untried_and_full_servers() {
        // Servers; whether any is usable, whether any except the first is usable, and whether any is full.
        for (servers, expected) in [
            (&[][..], (false, false, false)),
            (&[(1, 0, 9)], (true, false, false)),
            (&[(1, 0, 0), (1, 0, 0)], (true, true, false)),
            (&[(1, 0, 0), (0, 0, 0)], (true, false, false)),
            (&[(1, 5, 5)], (false, false, true)),
            (&[(0, 5, 5)], (false, false, false)),
            (&[(1, 5, 5), (1, 5, 4)], (true, true, true)),
        ] {
            let list: Vec<_> = servers.iter().copied().map(server).collect();
            let pool = Pool {
                scheduler: Scheduler::new(SchedulerKind::Rr),
                servers: &list,
                tier_starts: [list.len(); 2],
                version: 0,
                queued: 0,
                queue_timeout_ms: 0,
                no_server: NoServer::Reject,
            };
            let mut first = TriedServers::default();
            first.add(0);
            let found = (
                pool.has_usable_for_queue(),
                pool.has_untried(first),
                pool.has_full_server(),
            );
            assert_eq!(found, expected, "{servers:?}");
        }
    }

    #[test]
    fn waiting_requests_use_a_backup_only_if_no_regular_server_is_full() {
        let (idle, full, down) = ((1, 0, 0), (1, 5, 5), (0, 0, 0));
        // A regular server, a backup and the sorry server; whether a waiting request would find a server.
        for (servers, expected) in [
            ([idle, idle, idle], true),
            ([full, idle, idle], false),
            ([down, idle, idle], true),
            ([down, full, idle], false),
            ([down, down, idle], true),
            ([down, down, full], false),
            ([down, down, down], false),
        ] {
            let list: Vec<_> = servers.into_iter().map(server).collect();
            let pool = Pool {
                scheduler: Scheduler::new(SchedulerKind::Rr),
                servers: &list,
                tier_starts: [1, 2],
                version: 0,
                queued: 0,
                queue_timeout_ms: 0,
                no_server: NoServer::Reject,
            };
            assert_eq!(pool.has_usable_for_queue(), expected, "{servers:?}");
        }
    }

    #[test]
    fn arc_delegates_to_the_server() {
        let shared = server((3, 0, 0));
        assert_eq!(shared.load().weight(), 3);
        assert_eq!(Server::hash_seed(&shared), finalize_64(1));
        assert_eq!(Server::address(&shared), IpAddr::from([10, 0, 0, 1]));
        assert_eq!(Server::port(&shared), Some(80));
    }
}
