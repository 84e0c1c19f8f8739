//! Connections to servers that a worker did not need for a while, for any worker to take before it connects anew.
//!
//! Workers share nothing for an ordinary request: a connection comes here only after [`UNUSED_MS`] at the bottom of its
//! worker's pile, and a worker looks here only when its own pile has none.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::descriptor::Held;
use crate::plan::Target;
use crate::socket;
use crate::tls::Channel;

/// How long a connection waits for the worker that used it last, before others may have it.
pub(crate) const UNUSED_MS: u64 = 1_000;
/// How often those that ended meanwhile are looked for: no epoll set has them.
pub(crate) const SWEEP_MS: u64 = 1_000;

/// A connection between two requests, and two workers.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) socket: OwnedFd,
    /// TLS over it.
    pub(crate) channel: Option<Box<Channel>>,
    pub(crate) target: Arc<Target>,
    pub(crate) port: u16,
    /// Exchanges that it had.
    pub(crate) served: u32,
    /// When it is closed, by the workers' clock in milliseconds.
    pub(crate) until: u64,
    /// Its descriptor counts.
    pub(crate) _counts: Held,
}

/// By target and port, the last that came on top.
type Piles = HashMap<(u32, u16), Vec<Parked>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct IdlePool {
    piles: Mutex<Piles>,
    /// How many there are, so that nobody locks an empty one.
    count: AtomicUsize,
    /// When a worker last swept it.
    swept: AtomicU64,
}

impl IdlePool {
    fn piles(&self) -> MutexGuard<'_, Piles> {
        self.piles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Leaves one here; back again where its target has `most` already.
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

    /// One to the target; those found ended on the way are given to `ended`.
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

    /// Takes out any one of them; whether there was one.
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

    /// Takes out what `stays` does not name, for `ended`.
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

    /// Takes out those whose time is over and those that the server ended, if nobody did so within [`SWEEP_MS`].
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
