//! Defines the workers' counters. Each counter has only one writer, so adding needs no atomic read-modify-write.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_select::Fault;

/// Counters on cache lines that only one thread writes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    /// Connections from clients, or to a server.
    pub(crate) connections: Count,
    /// Requests; 0 for a TCP service.
    pub(crate) requests: Count,
    /// Bytes from clients.
    pub(crate) bytes_in: Count,
    /// Bytes to clients.
    pub(crate) bytes_out: Count,
    /// Final responses to clients by status class, 1xx to 5xx.
    pub(crate) responses: [Count; 5],
    /// Responses that Weir generated instead of a server.
    pub(crate) errors: Count,
    /// Retries on another server.
    pub(crate) retries: Count,
    /// HTTP/2 streams that clients reset before the response, or that were reset because of client errors.
    pub(crate) resets: Count,
    /// HTTP/2 streams that were refused because the client had reset too many.
    pub(crate) refused: Count,
    /// TLS handshakes with clients: completed, resumed (a subset of completed), and failed.
    pub(crate) tls_done: Count,
    pub(crate) tls_resumed: Count,
    pub(crate) tls_failed: Count,
    /// Idle clients that were closed to free descriptors.
    pub(crate) shed: Count,
    /// Number of times accepting was paused because too few descriptors were free.
    pub(crate) pauses: Count,
    /// Current connections from clients, or idle connections to a server.
    pub(crate) current: Count,
    /// Successful outcomes for a server.
    pub(crate) successes: Count,
    /// Server faults, by [`Fault`].
    pub(crate) faults: [Count; Fault::COUNT],
}

/// A counter that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds `amount`. Only the writing thread may call this: a concurrent store would be lost.
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    /// Subtracts `amount`; see [`Self::add`].
    pub(crate) fn sub(&self, amount: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_sub(amount),
            Ordering::Relaxed,
        );
    }

    /// Raises the value to `value` if it is lower. Only the writing thread may call this.
    pub(crate) fn raise(&self, value: u64) {
        if value > self.0.load(Ordering::Relaxed) {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A set of counters for each worker, and one for the counts of previous processes.
#[derive(Debug)]
pub(crate) struct ShardedCounters(Box<[Counters]>);

impl ShardedCounters {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..=workers).map(|_| Counters::default()).collect())
    }

    /// Returns the counters of previous processes; only the control thread writes them.
    pub(crate) fn previous_processes(&self) -> &Counters {
        &self.0[self.0.len() - 1]
    }

    /// Returns a worker's counters.
    pub(crate) fn of(&self, worker: usize) -> &Counters {
        &self.0[worker]
    }

    /// Returns the sum of one counter over all workers and previous processes.
    pub(crate) fn sum(&self, counter: impl Fn(&Counters) -> &Count) -> u64 {
        self.0
            .iter()
            .map(|counters| counter(counters).get())
            .fold(0, u64::wrapping_add)
    }
}
