//! Idle server connections that all workers share.
//!
//! An ordinary request touches no shared state: a connection is moved here only after it was idle for [`UNUSED_MS`] in
//! its worker's own stack, and a worker looks here only when its own stack is empty.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::descriptor::Held;
use crate::plan::Target;
use crate::socket;
use crate::tls::Channel;

/// Idle time with the last worker before other workers may use a connection.
pub(crate) const UNUSED_MS: u64 = 1_000;
/// Interval of the search for connections that servers have closed: they are in no epoll set.
pub(crate) const SWEEP_MS: u64 = 1_000;

/// An idle connection that belongs to no worker.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) socket: OwnedFd,
    /// TLS over the socket.
    pub(crate) channel: Option<Box<Channel>>,
    pub(crate) target: Arc<Target>,
    pub(crate) port: u16,
    /// Exchanges over it so far.
    pub(crate) served: u32,
    /// When it is closed, by the workers' clock in milliseconds.
    pub(crate) until: u64,
    /// Counts its descriptor.
    pub(crate) _counts: Held,
}

/// By target and port, the most recent last.
type Piles = HashMap<(u32, u16), Vec<Parked>>;

/// The idle connections that all workers share.
#[derive(Debug, Default)]
pub(crate) struct IdlePool {
    piles: Mutex<Piles>,
    /// Number of connections, so that an empty pool is not locked.
    count: AtomicUsize,
    /// Time of the last sweep.
    swept: AtomicU64,
}

impl IdlePool {
    fn piles(&self) -> MutexGuard<'_, Piles> {
        self.piles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Adds a connection. Returns it if its target has `most` already.
    pub(crate) fn put(&self, parked: Parked, most: usize) -> Option<Parked> {
        let mut piles = self.piles();
        let pile = piles.entry((parked.target.id, parked.port)).or_default();
        if pile.len() >= most {
            return Some(parked);
        }
        pile.push(parked);
        self.count.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Takes a connection to the target. Passes closed ones that it finds to `ended`.
    pub(crate) fn take(
        &self,
        target: u32,
        port: u16,
        mut ended: impl FnMut(Parked),
    ) -> Option<Parked> {
        if self.is_empty() {
            return None;
        }
        let mut piles = self.piles();
        let pile = piles.get_mut(&(target, port))?;
        while let Some(parked) = pile.pop() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            if socket::is_silent(&parked.socket) {
                return Some(parked);
            }
            ended(parked);
        }
        None
    }

    /// Removes any one connection. Returns whether there was one.
    pub(crate) fn drop_one(&self, ended: impl FnOnce(Parked)) -> bool {
        if self.is_empty() {
            return false;
        }
        let parked = self.piles().values_mut().find_map(Vec::pop);
        if parked.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        parked.map(ended).is_some()
    }

    /// Removes the connections that `stays` rejects, and passes them to `ended`.
    pub(crate) fn retain(&self, stays: impl Fn(&Parked) -> bool, ended: impl FnMut(Parked)) {
        if self.is_empty() {
            return;
        }
        let mut piles = self.piles();
        let out: Vec<Parked> = piles
            .values_mut()
            .flat_map(|pile| pile.extract_if(.., |parked| !stays(parked)))
            .collect();
        piles.retain(|_, pile| !pile.is_empty());
        self.count.fetch_sub(out.len(), Ordering::Relaxed);
        drop(piles);
        out.into_iter().for_each(ended);
    }

    /// Removes expired connections and those that the server has closed, at most once per [`SWEEP_MS`].
    pub(crate) fn sweep(&self, now: u64, ended: impl FnMut(Parked)) {
        let swept = self.swept.load(Ordering::Relaxed);
        let mine = now >= swept + SWEEP_MS
            && self
                .swept
                .compare_exchange(swept, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine {
            let stays = |parked: &Parked| parked.until > now && socket::is_silent(&parked.socket);
            self.retain(stays, ended);
        }
    }
}
