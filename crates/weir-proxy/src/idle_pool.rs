//! Implements the pool of idle server connections that all workers share.
//!
//! An ordinary request accesses no shared state: a connection moves here only after it has been idle for [`UNUSED_MS`]
//! in its worker's stack, and a worker takes connections from here only if its own stack is empty.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::descriptor::DescriptorGuard;
use crate::plan::Target;
use crate::socket;
use crate::tls::Channel;

/// Idle time after which a worker offers a connection to other workers, in milliseconds.
pub(crate) const UNUSED_MS: u64 = 1_000;
/// Interval between searches for connections that servers have closed, in milliseconds. Connections in the pool are not
/// in any epoll set.
pub(crate) const SWEEP_MS: u64 = 1_000;

/// An idle connection that any worker may take.
#[derive(Debug)]
pub(crate) struct ParkedConnection {
    pub(crate) socket: OwnedFd,
    /// TLS over the socket, if any.
    pub(crate) channel: Option<Box<Channel>>,
    pub(crate) target: Arc<Target>,
    pub(crate) port: u16,
    /// Number of completed exchanges.
    pub(crate) served: u32,
    /// Time at which the connection expires, in milliseconds on the worker clock.
    pub(crate) until: u64,
    /// Counts the descriptor while the connection exists.
    pub(crate) _counts: DescriptorGuard,
}

/// Connections by target and port, most recently used last.
type Stacks = HashMap<(u32, u16), Vec<ParkedConnection>>;

/// The idle connections that all workers share.
#[derive(Debug, Default)]
pub(crate) struct IdlePool {
    stacks: Mutex<Stacks>,
    /// Number of connections. If it is 0, callers skip the lock.
    count: AtomicUsize,
    /// Time of the last sweep, in milliseconds on the worker clock.
    swept_at_ms: AtomicU64,
}

impl IdlePool {
    fn stacks(&self) -> MutexGuard<'_, Stacks> {
        self.stacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Adds a connection. Returns the connection if there are already `max` connections to its target and port.
    pub(crate) fn put(&self, parked: ParkedConnection, max: usize) -> Option<ParkedConnection> {
        let mut stacks = self.stacks();
        let stack = stacks.entry((parked.target.id, parked.port)).or_default();
        if stack.len() >= max {
            return Some(parked);
        }
        stack.push(parked);
        self.count.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Takes a connection to the target. Passes closed connections that it finds to `on_removed`.
    pub(crate) fn take(
        &self,
        target: u32,
        port: u16,
        mut on_removed: impl FnMut(ParkedConnection),
    ) -> Option<ParkedConnection> {
        if self.is_empty() {
            return None;
        }
        let mut stacks = self.stacks();
        let stack = stacks.get_mut(&(target, port))?;
        while let Some(parked) = stack.pop() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            if socket::is_silent(&parked.socket) {
                return Some(parked);
            }
            on_removed(parked);
        }
        None
    }

    /// Removes an arbitrary connection, and passes it to `on_removed`. Returns false if the pool is empty.
    pub(crate) fn drop_one(&self, on_removed: impl FnOnce(ParkedConnection)) -> bool {
        if self.is_empty() {
            return false;
        }
        let parked = self.stacks().values_mut().find_map(Vec::pop);
        if parked.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        parked.map(on_removed).is_some()
    }

    /// Removes the connections for which `is_kept` returns false, and passes them to `on_removed`.
    pub(crate) fn retain(
        &self,
        is_kept: impl Fn(&ParkedConnection) -> bool,
        on_removed: impl FnMut(ParkedConnection),
    ) {
        if self.is_empty() {
            return;
        }
        let mut stacks = self.stacks();
        let removed: Vec<ParkedConnection> = stacks
            .values_mut()
            .flat_map(|stack| stack.extract_if(.., |parked| !is_kept(parked)))
            .collect();
        stacks.retain(|_, stack| !stack.is_empty());
        self.count.fetch_sub(removed.len(), Ordering::Relaxed);
        drop(stacks);
        removed.into_iter().for_each(on_removed);
    }

    /// Removes connections that have expired or that the server has closed, at most once per [`SWEEP_MS`].
    pub(crate) fn sweep(&self, now: u64, on_removed: impl FnMut(ParkedConnection)) {
        let swept_at_ms = self.swept_at_ms.load(Ordering::Relaxed);
        let is_due = now >= swept_at_ms + SWEEP_MS
            && self
                .swept_at_ms
                .compare_exchange(swept_at_ms, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_due {
            let is_kept =
                |parked: &ParkedConnection| parked.until > now && socket::is_silent(&parked.socket);
            self.retain(is_kept, on_removed);
        }
    }
}
