//! The workers' counters. Each has one writing worker, so that adding is a plain store.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_select::Fault;

/// Counters on cache lines that one thread writes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    /// Connections of clients, or to a server.
    pub(crate) connections: Count,
    /// Requests; none for a TCP service.
    pub(crate) requests: Count,
    /// Bytes from clients.
    pub(crate) bytes_in: Count,
    /// Bytes to clients.
    pub(crate) bytes_out: Count,
    /// Final responses to clients, by the first digit of the status.
    pub(crate) responses: [Count; 5],
    /// Responses by Weir in place of a server's.
    pub(crate) errors: Count,
    /// Retries at another server.
    pub(crate) retries: Count,
    /// HTTP/2 streams that clients reset, or made Weir reset, before their response; and new streams that were refused
    /// because of it.
    pub(crate) resets: Count,
    pub(crate) refused: Count,
    /// TLS handshakes with clients: completed, those of them that resumed a session, and failed.
    pub(crate) tls_done: Count,
    pub(crate) tls_resumed: Count,
    pub(crate) tls_failed: Count,
    /// Idle clients that were closed to make room for others.
    pub(crate) shed: Count,
    /// Number of times clients were left in the backlog because descriptors were scarce.
    pub(crate) pauses: Count,
    /// Current connections of clients, or idle connections to a server.
    pub(crate) present: Count,
    /// Of a server: successes, and faults by [`Fault`].
    pub(crate) well: Count,
    pub(crate) faults: [Count; Fault::COUNT],
}

/// Written by one thread, read by any.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Only the writing thread may call this: no other store can come between.
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

    /// Keeps the higher value; only the writing thread may call this.
    pub(crate) fn raise(&self, value: u64) {
        if value > self.0.load(Ordering::Relaxed) {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One set of counters per worker, and one for the counts of former processes.
#[derive(Debug)]
pub(crate) struct Sharded(Box<[Counters]>);

impl Sharded {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..=workers).map(|_| Counters::default()).collect())
    }

    /// The counts of former processes; written by the control thread only.
    pub(crate) fn former(&self) -> &Counters {
        &self.0[self.0.len() - 1]
    }

    /// A worker's own counters.
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
