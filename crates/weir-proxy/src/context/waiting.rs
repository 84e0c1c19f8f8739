//! Connections to servers between two requests: in their worker's pile, in the idle_pool of all workers, ended.

use std::sync::Arc;

use super::{Context, Ready, Stay, Upstream, token};
use crate::descriptor::{Held, TABLE, Use};
use crate::idle_pool::{Parked, UNUSED_MS};
use crate::plan::Target;
use crate::slab::Key;
use crate::transport::Transport;
use crate::wheel::Deadline;

/// How long connections wait of which there are more than a service keeps: clients that come in bursts would else have
/// most of their requests wait for new ones.
const SURPLUS_MS: u64 = 1_000;

impl Context {
    /// A waiting connection for `session`, which has a place at the server; `checked` asks the kernel whether it still
    /// stands.
    pub(crate) fn reuse(
        &mut self,
        target: &Target,
        port: u16,
        session: Key,
        checked: bool,
    ) -> Option<Key> {
        self.reuse_own(target, port, session, checked)
            .or_else(|| self.reuse_parked(target, port, session))
    }

    fn reuse_own(
        &mut self,
        target: &Target,
        port: u16,
        session: Key,
        checked: bool,
    ) -> Option<Key> {
        loop {
            let waiting = self.idle.get_mut(target.id as usize)?;
            let at = waiting.iter().rposition(|key| {
                self.upstreams
                    .get(*key)
                    .is_some_and(|upstream| upstream.port == port)
            })?;
            let key = waiting.remove(at);
            leave(target, self.worker);
            let upstream = self.upstreams.get_mut(key)?;
            if upstream.ready.ended
                || upstream.ready.readable
                || (checked && !upstream.transport.is_silent())
            {
                self.upstreams.remove(key);
                continue;
            }
            upstream.session = session;
            upstream.served = upstream.served.saturating_add(1);
            return Some(key);
        }
    }

    /// The exchange over it is over; `stays` = it can serve another, of which `most` wait for long.
    pub(crate) fn release(&mut self, key: Key, stays: bool, most: usize, idle_ms: u64) {
        let Some(upstream) = self.upstreams.get_mut(key) else {
            return;
        };
        let target = Arc::clone(&upstream.target);
        upstream.session = Key::NONE;
        let id = upstream.target.id as usize;
        let waits = stays
            && !upstream.transport.is_stream()
            && !self.draining
            && !target.load.is_withdrawn()
            && !TABLE.is_tight()
            && !upstream.ready.ended
            && !upstream.ready.readable;
        match self.idle.get_mut(id).filter(|_| waits && most > 0) {
            Some(waiting) => {
                let ms = if waiting.len() < most {
                    idle_ms
                } else {
                    idle_ms.min(SURPLUS_MS)
                };
                waiting.push(key);
                upstream.target.counters.of(self.worker).present.add(1);
                let until = self.now + ms;
                upstream.stay = Stay { until, most };
                let alone = if self.idle_pool.is_some() {
                    UNUSED_MS
                } else {
                    ms
                };
                self.idle_wheel
                    .set(&mut upstream.deadline, key, until.min(self.now + alone));
            }
            None => drop(self.upstreams.remove(key)),
        }
        target.give_back();
    }

    /// Ends a connection that nobody uses.
    pub(crate) fn end_idle(&mut self, key: Key) {
        if let Some(upstream) = self.take_idle(key) {
            leave(&upstream.target, self.worker);
        }
    }

    /// What becomes of a connection that waited in vain: others may have it, until its time is over.
    pub(crate) fn leave_idle(&mut self, key: Key) {
        let Some(upstream) = self.take_idle(key) else {
            return;
        };
        let target = Arc::clone(&upstream.target);
        if !self.park(upstream) {
            leave(&target, self.worker);
        }
    }

    /// Takes a waiting connection out of its pile; it counts as waiting still.
    fn take_idle(&mut self, key: Key) -> Option<Upstream> {
        let upstream = self.upstreams.get(key)?;
        if !upstream.session.is_none() {
            return None;
        }
        if let Some(waiting) = self.idle.get_mut(upstream.target.id as usize) {
            waiting.retain(|other| *other != key);
        }
        self.upstreams.remove(key)
    }

    /// Whether it found a place where other workers see it.
    fn park(&self, upstream: Upstream) -> bool {
        let Some(idle_pool) = self.idle_pool.as_ref().filter(|_| !self.draining) else {
            return false;
        };
        let Stay { until, most } = upstream.stay;
        if until <= self.now {
            return false;
        }
        upstream.transport.unwatch(&self.epoll);
        let Some((socket, channel)) = upstream.transport.into_own() else {
            return false;
        };
        let parked = Parked {
            socket,
            channel,
            target: upstream.target,
            port: upstream.port,
            served: upstream.served,
            until,
            _counts: Held::new(Use::Server),
        };
        idle_pool.put(parked, most).is_none()
    }

    /// A connection that another worker, or this one, had no use for.
    fn reuse_parked(&mut self, target: &Target, port: u16, session: Key) -> Option<Key> {
        let worker = self.worker;
        let idle_pool = self.idle_pool.as_ref()?;
        let parked = idle_pool.take(target.id, port, |ended| leave(&ended.target, worker))?;
        leave(target, worker);
        let key = self.upstreams.insert(Upstream {
            transport: Transport::own(parked.socket, parked.channel).counted(Use::Server),
            target: parked.target,
            port,
            session,
            ready: Ready {
                writable: true,
                ..Ready::default()
            },
            input: Vec::new(),
            introduced: false,
            served: parked.served.saturating_add(1),
            deadline: Deadline::default(),
            stay: Stay::default(),
        });
        let upstream = self.upstreams.get(key)?;
        let token = token::of(token::SERVER, key);
        if upstream.transport.watch(&self.epoll, token).is_err() {
            self.upstreams.remove(key);
            return None;
        }
        Some(key)
    }

    /// Closes connections that wait until `enough` says so, and pipes that nothing uses.
    pub(crate) fn free_descriptors(&mut self, enough: impl Fn() -> bool) -> bool {
        if enough() {
            return true;
        }
        self.pipes.clear();
        for pile in 0..self.idle.len() {
            while let Some(key) = self.idle.get(pile).and_then(|waiting| waiting.first()) {
                if enough() {
                    return true;
                }
                self.end_idle(*key);
            }
        }
        if let Some(idle_pool) = &self.idle_pool {
            while !enough() && idle_pool.drop_one(|ended| leave(&ended.target, self.worker)) {}
        }
        enough()
    }

    /// Whether there are connections that somebody must look after.
    pub(crate) fn has_parked(&self) -> bool {
        self.idle_pool
            .as_ref()
            .is_some_and(|idle_pool| !idle_pool.is_empty())
    }

    /// Looks after them.
    pub(crate) fn sweep(&self) {
        if let Some(idle_pool) = self
            .idle_pool
            .as_ref()
            .filter(|idle_pool| !idle_pool.is_empty())
        {
            idle_pool.sweep(self.now, |ended| leave(&ended.target, self.worker));
        }
    }

    /// Ends every connection that waits for a target that `stays` does not name.
    pub(crate) fn end_idle_of(&mut self, stays: impl Fn(&Target) -> bool) {
        let ends = |key: &Key| {
            let upstream = self.upstreams.get(*key);
            upstream.is_some_and(|upstream| upstream.session.is_none() && !stays(&upstream.target))
        };
        let keys: Vec<Key> = self.upstreams.keys().into_iter().filter(ends).collect();
        for key in keys {
            self.end_idle(key);
        }
        if let Some(idle_pool) = &self.idle_pool {
            idle_pool.retain(
                |parked| stays(&parked.target),
                |ended| leave(&ended.target, self.worker),
            );
        }
    }
}

/// One waits no more for the target. Every worker may say so of any: the numbers of all are added up.
fn leave(target: &Target, worker: usize) {
    target.counters.of(worker).present.sub(1);
}
