//! Limits the number of API connections, in total and per client.
//!
//! At a limit, the listener admits a new connection by closing one that is waiting for its client to send a request or
//! a body, or to read a response. At a client's limit, it closes the client's connection that has waited longest; at
//! the total limit, a connection of the client with the most connections. A connection whose request is being executed
//! is never closed. Idle clients therefore cannot block others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::Caller;

/// Connection limits for a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number in total.
    pub(super) total: usize,
    /// Maximum number per client: a user on the Unix socket, or an IPv4 address or IPv6 /64 over TCP.
    pub(super) per_client: usize,
}

impl Limits {
    /// Limits for the Unix socket, whose mode already restricts clients.
    pub(super) const UNIX: Self = Self {
        total: 64,
        per_client: 48,
    };
    /// Limits for a TCP listener.
    pub(super) const TCP: Self = Self {
        total: 128,
        per_client: 16,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    User(u32),
    Network(IpAddr),
}

impl Client {
    fn from_caller(caller: &Caller) -> Self {
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

/// A connection's activity.
#[derive(Debug)]
pub(super) struct Progress {
    phase: Mutex<Phase>,
    closed: Notify,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The connection has been waiting for its client since this time.
    Waiting(Instant),
    /// The connection's request is being executed.
    Executing,
}

impl Progress {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a complete request was received.
    pub(super) fn set_executing(&self) {
        *self.phase() = Phase::Executing;
    }

    /// Records that the connection is waiting for the client to read the response or send another request.
    pub(super) fn set_waiting(&self) {
        *self.phase() = Phase::Waiting(Instant::now());
    }

    /// Waits until the connection must be closed.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }

    fn waiting_since(&self) -> Option<Instant> {
        match *self.phase() {
            Phase::Waiting(since) => Some(since),
            Phase::Executing => None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    number: u64,
    client: Client,
    progress: Arc<Progress>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    connections: Vec<Entry>,
}

impl Table {
    /// Closes a waiting connection if a new connection from `client` would exceed a limit. Returns `false` if no
    /// connection can be closed.
    fn make_room(&mut self, client: Client, limits: Limits) -> bool {
        let mut counts: HashMap<Client, usize> = HashMap::new();
        for entry in &self.connections {
            *counts.entry(entry.client).or_default() += 1;
        }
        let client_count = counts.get(&client).copied().unwrap_or(0);
        let required_client = match (
            client_count >= limits.per_client,
            self.connections.len() >= limits.total,
        ) {
            (true, _) => Some(client),
            (false, true) => None,
            (false, false) => return true,
        };
        let waiting = self
            .connections
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| {
                let is_candidate = required_client.is_none_or(|client| entry.client == client);
                let since = entry.progress.waiting_since().filter(|_| is_candidate)?;
                let count = counts.get(&entry.client).copied().unwrap_or(0);
                Some((std::cmp::Reverse(count), since, index))
            });
        let Some((_, _, index)) = waiting.min() else {
            return false;
        };
        self.connections
            .swap_remove(index)
            .progress
            .closed
            .notify_one();
        true
    }
}

/// A listener's connection limits, and its current connections.
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

    /// Returns a slot for a connection from `caller`; `None` = a limit is reached and no connection can be closed.
    pub(super) fn acquire(&self, caller: &Caller) -> Option<Slot> {
        let client = Client::from_caller(caller);
        let mut table = self.table();
        if !table.make_room(client, self.limits) {
            return None;
        }
        let progress = Arc::new(Progress {
            phase: Mutex::new(Phase::Waiting(Instant::now())),
            closed: Notify::new(),
        });
        let number = table.next;
        table.next += 1;
        table.connections.push(Entry {
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

/// A connection's slot, which is released when this value is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    number: u64,
    pub(super) progress: Arc<Progress>,
    limit: ConnectionLimit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.limit.table();
        table
            .connections
            .retain(|entry| entry.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::api::Role;

    const LIMITS: Limits = Limits {
        total: 6,
        per_client: 3,
    };

    fn tcp(address: &str) -> Caller {
        Caller::Tcp {
            peer: SocketAddr::new(address.parse().unwrap(), 1),
            role: Role::Read,
        }
    }

    fn is_closed(slot: &Slot) -> bool {
        let table = slot.limit.table();
        !table
            .connections
            .iter()
            .any(|entry| entry.number == slot.number)
    }

    #[test]
    fn oldest_idle_connection_of_the_same_client_is_closed() {
        let limit = ConnectionLimit::new(LIMITS);
        let slots: Vec<Slot> = (0..3)
            .map(|_| limit.acquire(&tcp("10.0.0.1")).unwrap())
            .collect();
        slots[0].progress.set_executing();
        let other = limit.acquire(&tcp("10.0.0.2")).unwrap();
        let _new = limit.acquire(&tcp("10.0.0.1")).unwrap();
        let closed: Vec<bool> = slots.iter().map(is_closed).collect();
        assert_eq!(closed, [false, true, false]);
        assert!(!is_closed(&other));
    }

    #[test]
    fn connection_of_client_with_most_connections_is_closed_and_requests_are_not_aborted() {
        let limit = ConnectionLimit::new(LIMITS);
        let single = limit.acquire(&tcp("10.0.0.9")).unwrap();
        let many: Vec<Slot> = (0..5)
            .map(|n| {
                limit
                    .acquire(&tcp(&format!("10.0.0.{}", 1 + n % 2)))
                    .unwrap()
            })
            .collect();
        let new = limit.acquire(&tcp("10.0.0.3")).unwrap();
        assert!(is_closed(&many[0]), "10.0.0.1 has the most connections");
        assert!(!is_closed(&single));
        for slot in many.iter().chain([&single, &new]) {
            slot.progress.set_executing();
        }
        assert!(limit.acquire(&tcp("10.0.0.4")).is_none());
        drop(single);
        assert!(limit.acquire(&tcp("10.0.0.4")).is_some());
    }

    #[test]
    fn ipv6_clients_are_counted_by_prefix() {
        let are_same =
            |a: &str, b: &str| Client::from_caller(&tcp(a)) == Client::from_caller(&tcp(b));
        assert!(are_same("2001:db8::1", "2001:db8::2:3"));
        assert!(!are_same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(!are_same("10.0.0.1", "10.0.0.2"));
        assert!(are_same("10.0.0.1", "::ffff:10.0.0.1"));
    }
}
