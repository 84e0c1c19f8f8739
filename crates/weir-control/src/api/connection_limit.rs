//! Limits the connections of the API, in total and per client.
//!
//! At a limit, a waiting connection (for a request, a body or a slow reader) is closed for the new one: of the client
//! with the most connections, the one that has waited longest. A connection with a request in progress is never closed.
//! So silent clients cannot block others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::Caller;

/// Maximum numbers of connections of a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In all.
    pub(super) all: usize,
    /// Per client: a user on the unix socket, an IPv4 address or an IPv6 /64 over TCP.
    pub(super) client: usize,
}

impl Limits {
    /// Limits of the unix socket, whose mode restricts clients.
    pub(super) const UNIX: Self = Self {
        all: 64,
        client: 48,
    };
    /// Limits of a TCP listener.
    pub(super) const TCP: Self = Self {
        all: 128,
        client: 16,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    User(u32),
    Network(IpAddr),
}

impl Client {
    fn of(caller: &Caller) -> Self {
        match caller {
            Caller::Unix { uid, .. } => Self::User(*uid),
            Caller::Tcp { peer, .. } => Self::Network(match peer.ip().to_canonical() {
                IpAddr::V6(v6) => {
                    let network = v6.to_bits() >> 64 << 64;
                    IpAddr::V6(network.into())
                }
                v4 => v4,
            }),
        }
    }
}

/// The activity of a connection.
#[derive(Debug)]
pub(super) struct Progress {
    phase: Mutex<Phase>,
    closed: Notify,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// It waits for its client.
    Waits(Instant),
    /// Its request is being executed.
    Works,
}

impl Progress {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request is complete.
    pub(super) fn works(&self) {
        *self.phase() = Phase::Works;
    }

    /// The client must read the response or send another request.
    pub(super) fn waits(&self) {
        *self.phase() = Phase::Waits(Instant::now());
    }

    /// Returns when the connection must end.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }

    fn waits_since(&self) -> Option<Instant> {
        match *self.phase() {
            Phase::Waits(since) => Some(since),
            Phase::Works => None,
        }
    }
}

#[derive(Debug)]
struct Held {
    number: u64,
    client: Client,
    progress: Arc<Progress>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    held: Vec<Held>,
}

impl Table {
    /// Makes room for a connection of `client`; `false` = there is none.
    fn make_room(&mut self, client: Client, limits: Limits) -> bool {
        let mut counts: HashMap<Client, usize> = HashMap::new();
        for held in &self.held {
            *counts.entry(held.client).or_default() += 1;
        }
        let own = counts.get(&client).copied().unwrap_or(0);
        let only = match (own >= limits.client, self.held.len() >= limits.all) {
            (true, _) => Some(client),
            (false, true) => None,
            (false, false) => return true,
        };
        let waiting = self.held.iter().enumerate().filter_map(|(at, held)| {
            let fits = only.is_none_or(|only| held.client == only);
            let since = held.progress.waits_since().filter(|_| fits)?;
            let count = counts.get(&held.client).copied().unwrap_or(0);
            Some((std::cmp::Reverse(count), since, at))
        });
        let Some((_, _, at)) = waiting.min() else {
            return false;
        };
        self.held.swap_remove(at).progress.closed.notify_one();
        true
    }
}

/// The connections of a listener.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimit {
    limits: Limits,
    table: Arc<Mutex<Table>>,
}

impl ConnectionLimit {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            table: Arc::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot for a connection of `caller`, valid until dropped; `None` = no connection can be closed.
    pub(super) fn take(&self, caller: &Caller) -> Option<Slot> {
        let client = Client::of(caller);
        let mut table = self.table();
        if !table.make_room(client, self.limits) {
            return None;
        }
        let progress = Arc::new(Progress {
            phase: Mutex::new(Phase::Waits(Instant::now())),
            closed: Notify::new(),
        });
        let number = table.next;
        table.next += 1;
        table.held.push(Held {
            number,
            client,
            progress: Arc::clone(&progress),
        });
        Some(Slot {
            number,
            progress,
            limit: self.clone(),
        })
    }
}

/// See [`ConnectionLimit::take`].
#[derive(Debug)]
pub(super) struct Slot {
    number: u64,
    pub(super) progress: Arc<Progress>,
    limit: ConnectionLimit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.limit.table();
        table.held.retain(|held| held.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::api::Role;

    const LIMITS: Limits = Limits { all: 6, client: 3 };

    fn tcp(address: &str) -> Caller {
        Caller::Tcp {
            peer: SocketAddr::new(address.parse().unwrap(), 1),
            role: Role::Read,
        }
    }

    fn is_closed(slot: &Slot) -> bool {
        let table = slot.limit.table();
        !table.held.iter().any(|held| held.number == slot.number)
    }

    #[test]
    fn oldest_idle_connection_of_the_same_client_is_closed() {
        let limit = ConnectionLimit::new(LIMITS);
        let held: Vec<Slot> = (0..3)
            .map(|_| limit.take(&tcp("10.0.0.1")).unwrap())
            .collect();
        held[0].progress.works();
        let other = limit.take(&tcp("10.0.0.2")).unwrap();
        let _new = limit.take(&tcp("10.0.0.1")).unwrap();
        let closed: Vec<bool> = held.iter().map(is_closed).collect();
        assert_eq!(closed, [false, true, false]);
        assert!(!is_closed(&other));
    }

    #[test]
    fn client_with_most_connections_is_limited_and_requests_are_not_aborted() {
        let limit = ConnectionLimit::new(LIMITS);
        let lonely = limit.take(&tcp("10.0.0.9")).unwrap();
        let many: Vec<Slot> = (0..5)
            .map(|n| limit.take(&tcp(&format!("10.0.0.{}", 1 + n % 2))).unwrap())
            .collect();
        let new = limit.take(&tcp("10.0.0.3")).unwrap();
        assert!(is_closed(&many[0]), "10.0.0.1 has three");
        assert!(!is_closed(&lonely));
        for slot in many.iter().chain([&lonely, &new]) {
            slot.progress.works();
        }
        assert!(limit.take(&tcp("10.0.0.4")).is_none());
        drop(lonely);
        assert!(limit.take(&tcp("10.0.0.4")).is_some());
    }

    #[test]
    fn ipv6_clients_are_counted_by_prefix() {
        let same = |a: &str, b: &str| Client::of(&tcp(a)) == Client::of(&tcp(b));
        assert!(same("2001:db8::1", "2001:db8::2:3"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
        assert!(same("10.0.0.1", "::ffff:10.0.0.1"));
    }
}
