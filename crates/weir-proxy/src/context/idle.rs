//! Manages idle connections to servers, in each worker's stacks and in the idle pool of all workers.

use std::sync::Arc;

use super::{Context, IdleLimits, Readiness, Upstream, token};
use crate::descriptor::{DescriptorGuard, DescriptorUse, TABLE};
use crate::idle_pool::{ParkedConnection, UNUSED_MS};
use crate::plan::Target;
use crate::slab::Key;
use crate::socket;
use crate::transport::Transport;
use crate::wheel::Deadline;

/// How long surplus connections stay idle, in milliseconds. Without them, bursts of clients would need new connections
/// for most of their requests.
const SURPLUS_MS: u64 = 1_000;

impl Context {
    /// Takes an idle connection for `session`, which holds a slot on the server. If `verify` is true, first checks with
    /// a system call that a connection of this worker is still open.
    pub(crate) fn reuse(
        &mut self,
        target: &Target,
        port: u16,
        session: Key,
        verify: bool,
    ) -> Option<Key> {
        self.reuse_local(target, port, session, verify)
            .or_else(|| self.reuse_parked(target, port, session))
    }

    fn reuse_local(
        &mut self,
        target: &Target,
        port: u16,
        session: Key,
        verify: bool,
    ) -> Option<Key> {
        loop {
            let stack = self.idle.get_mut(target.id as usize)?;
            let index = stack.iter().rposition(|key| {
                self.upstreams
                    .get(*key)
                    .is_some_and(|upstream| upstream.port == port)
            })?;
            let key = stack.remove(index);
            decrement_idle_count(target, self.worker);
            let upstream = self.upstreams.get_mut(key)?;
            if upstream.ready.read_closed
                || upstream.ready.readable
                || (verify && !upstream.transport.is_silent())
            {
                self.upstreams.remove(key);
                continue;
            }
            upstream.session = session;
            upstream.served = upstream.served.saturating_add(1);
            return Some(key);
        }
    }

    /// Releases a connection and its slot after an exchange. If `is_reusable` is true, the connection can serve another
    /// exchange. Up to `idle_max` idle connections are kept for `idle_ms`; further ones for at most [`SURPLUS_MS`].
    pub(crate) fn release(&mut self, key: Key, is_reusable: bool, idle_max: usize, idle_ms: u64) {
        let Some(upstream) = self.upstreams.get_mut(key) else {
            return;
        };
        let target = Arc::clone(&upstream.target);
        upstream.session = Key::NONE;
        let id = upstream.target.id as usize;
        let becomes_idle = is_reusable
            && !upstream.transport.is_stream()
            && !self.draining
            && !target.load.is_withdrawn()
            && !TABLE.is_scarce()
            && !upstream.ready.read_closed
            && !upstream.ready.readable;
        match self
            .idle
            .get_mut(id)
            .filter(|_| becomes_idle && idle_max > 0)
        {
            Some(stack) => {
                let limit_ms = if stack.len() < idle_max {
                    idle_ms
                } else {
                    idle_ms.min(SURPLUS_MS)
                };
                stack.push(key);
                upstream.target.counters.of(self.worker).current.add(1);
                let until = self.now + limit_ms;
                upstream.idle_limits = IdleLimits { until, idle_max };
                let unused_ms = if self.idle_pool.is_some() {
                    UNUSED_MS
                } else {
                    limit_ms
                };
                self.idle_wheel
                    .set(&mut upstream.deadline, key, until.min(self.now + unused_ms));
            }
            None => drop(self.upstreams.remove(key)),
        }
        target.release_slot();
    }

    /// Closes an idle connection.
    pub(crate) fn close_idle(&mut self, key: Key) {
        if let Some(upstream) = self.take_idle(key) {
            decrement_idle_count(&upstream.target, self.worker);
        }
    }

    /// Moves an unused connection to the idle pool, or closes it if its idle time is over.
    pub(crate) fn park_or_close(&mut self, key: Key) {
        let Some(upstream) = self.take_idle(key) else {
            return;
        };
        let target = Arc::clone(&upstream.target);
        if !self.park(upstream) {
            decrement_idle_count(&target, self.worker);
        }
    }

    /// Removes an idle connection from its stack. It still counts as idle.
    fn take_idle(&mut self, key: Key) -> Option<Upstream> {
        let upstream = self.upstreams.get(key)?;
        if !upstream.session.is_none() {
            return None;
        }
        if let Some(stack) = self.idle.get_mut(upstream.target.id as usize) {
            stack.retain(|other| *other != key);
        }
        self.upstreams.remove(key)
    }

    /// Offers a connection to other workers. If that is not possible, closes it and returns false.
    fn park(&self, upstream: Upstream) -> bool {
        let Some(idle_pool) = self.idle_pool.as_ref().filter(|_| !self.draining) else {
            return false;
        };
        let IdleLimits { until, idle_max } = upstream.idle_limits;
        if until <= self.now {
            return false;
        }
        upstream.transport.unwatch(&self.epoll);
        let Some((socket, channel)) = upstream.transport.into_parts() else {
            return false;
        };
        let parked = ParkedConnection {
            socket,
            channel,
            target: upstream.target,
            port: upstream.port,
            served: upstream.served,
            until,
            _counts: DescriptorGuard::new(DescriptorUse::Server),
        };
        idle_pool.put(parked, idle_max).is_none()
    }

    /// Takes a connection from the idle pool, which all workers share.
    fn reuse_parked(&mut self, target: &Target, port: u16, session: Key) -> Option<Key> {
        let worker = self.worker;
        let idle_pool = self.idle_pool.as_ref()?;
        let parked = idle_pool.take(target.id, port, |closed| {
            decrement_idle_count(&closed.target, worker)
        })?;
        decrement_idle_count(target, worker);
        let key = self.upstreams.insert(Upstream {
            transport: Transport::from_parts(parked.socket, parked.channel)
                .with_descriptor_count(DescriptorUse::Server),
            target: parked.target,
            port,
            session,
            ready: Readiness {
                writable: true,
                ..Readiness::default()
            },
            input: Vec::new(),
            dedicated: false,
            served: parked.served.saturating_add(1),
            deadline: Deadline::default(),
            idle_limits: IdleLimits::default(),
        });
        let upstream = self.upstreams.get(key)?;
        let token = token::pack(token::SERVER, key);
        if upstream.transport.watch(&self.epoll, token).is_err() {
            self.upstreams.remove(key);
            return None;
        }
        Some(key)
    }

    /// Closes unused pipes and idle connections until `is_enough` returns true. Returns the last result of `is_enough`.
    pub(crate) fn free_descriptors(&mut self, is_enough: impl Fn() -> bool) -> bool {
        if is_enough() {
            return true;
        }
        self.pipes.clear();
        for target in 0..self.idle.len() {
            while let Some(key) = self.idle.get(target).and_then(|stack| stack.first()) {
                if is_enough() {
                    return true;
                }
                self.close_idle(*key);
            }
        }
        if let Some(idle_pool) = &self.idle_pool {
            while !is_enough()
                && idle_pool.drop_one(|closed| decrement_idle_count(&closed.target, self.worker))
            {
            }
        }
        is_enough()
    }

    /// Returns whether the idle pool needs to be swept.
    pub(crate) fn has_parked(&self) -> bool {
        self.idle_pool
            .as_ref()
            .is_some_and(|idle_pool| !idle_pool.is_empty())
    }

    /// Closes the connections in the idle pool that have expired or that their servers have closed.
    pub(crate) fn sweep(&self) {
        if let Some(idle_pool) = self
            .idle_pool
            .as_ref()
            .filter(|idle_pool| !idle_pool.is_empty())
        {
            idle_pool.sweep(self.now, |closed| {
                decrement_idle_count(&closed.target, self.worker)
            });
        }
    }

    /// Closes the connections to servers that were removed with `on_remove = "reset"`. The connections' sessions
    /// continue as if the servers had closed them.
    pub(crate) fn close_removed_connections(&self) {
        for key in self.upstreams.keys() {
            if let Some(upstream) = self.upstreams.get(key)
                && upstream.target.load.closes_connections()
                && let Some(socket) = upstream.transport.socket()
            {
                socket::shut_down(socket);
            }
        }
        for key in self.h2_clients.keys() {
            if let Some(Some(connection)) = self.h2_clients.get(key) {
                connection.close_if_removed();
            }
        }
    }

    /// Closes every idle connection to a target for which `is_kept` returns false.
    pub(crate) fn close_idle_unless(&mut self, is_kept: impl Fn(&Target) -> bool) {
        let is_idle_target = |key: &Key| {
            let upstream = self.upstreams.get(*key);
            upstream
                .is_some_and(|upstream| upstream.session.is_none() && !is_kept(&upstream.target))
        };
        let keys: Vec<Key> = self
            .upstreams
            .keys()
            .into_iter()
            .filter(is_idle_target)
            .collect();
        for key in keys {
            self.close_idle(key);
        }
        if let Some(idle_pool) = &self.idle_pool {
            idle_pool.retain(
                |parked| is_kept(&parked.target),
                |closed| decrement_idle_count(&closed.target, self.worker),
            );
        }
    }
}

/// Decrements the number of idle connections. Any worker may call this, because only the sum over all workers is used.
fn decrement_idle_count(target: &Target, worker: usize) {
    target.counters.of(worker).current.sub(1);
}
