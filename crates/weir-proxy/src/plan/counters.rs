//! What workers count. Each counter has one writing worker, so that adding is a plain store.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_select::Fault;

/// A number on a cache line that one thread writes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    /// Connections of clients, or to a server.
    pub(crate) connections: Count,
    /// Requests; of a TCP service none.
    pub(crate) requests: Count,
    /// Octets from clients.
    pub(crate) bytes_in: Count,
    /// Octets to clients.
    pub(crate) bytes_out: Count,
    /// Final responses of clients, by the status's first digit.
    pub(crate) responses: [Count; 5],
    /// Answers of Weir's own, in place of a server's.
    pub(crate) errors: Count,
    /// Attempts at another server.
    pub(crate) retries: Count,
    /// HTTP/2 streams that clients reset, or made this side reset, before their response; and new ones that were
    /// refused for it.
    pub(crate) resets: Count,
    pub(crate) refused: Count,
    /// Idle clients that were closed to make room for others.
    pub(crate) shed: Count,
    /// How often clients were left in the backlog because descriptors were short.
    pub(crate) pauses: Count,
    /// Connections of clients now, or of a server that wait.
    pub(crate) present: Count,
    /// Of a server: what it did as it should, and what it did not, by [`Fault`].
    pub(crate) well: Count,
    pub(crate) faults: [Count; Fault::COUNT],
}

/// Written by one thread, read by any.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// By the one thread that writes: no other store can come between.
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

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One set of counters for each worker, and one for what former processes counted.
#[derive(Debug)]
pub(crate) struct Sharded(Box<[Counters]>);

impl Sharded {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..=workers).map(|_| Counters::default()).collect())
    }

    /// What former processes counted; written by whoever takes their word.
    pub(crate) fn former(&self) -> &Counters {
        &self.0[self.0.len() - 1]
    }

    /// The worker's own.
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
