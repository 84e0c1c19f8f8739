//! HTTP/2 connections in the worker's loop: what their streams want done, and whose turn it is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use super::Worker;
use crate::context::{Context, Ready, token};
use crate::h2::{Back, Errand, Errands, Front, Owner, StrandEnd};
use crate::session::Session;
use crate::slab::Key;
use crate::transport::Transport;

/// Rounds between connections and sessions before the kernel is asked again.
const ROUNDS: usize = 8;

impl Worker {
    /// A client turned out to speak HTTP/2.
    pub(super) fn promote(&mut self, key: Key) {
        let Some(session) = self.sessions.remove(key) else {
            return;
        };
        let front = self.fronts.insert(Front::new(session.into_former()));
        self.drive_front(front, Front::begin);
    }

    /// Connections whose streams did something, in rounds: what sessions answer in one of them goes out together.
    pub(super) fn answer_bells(&mut self) {
        for _ in 0..ROUNDS {
            let mut rung = std::mem::take(&mut *self.cx.bell.borrow_mut());
            if rung.is_empty() {
                return;
            }
            rung.sort_unstable();
            rung.dedup();
            for token in rung {
                match token::kind(token) {
                    token::BACK => self.drive_back(token::key(token), Back::drive),
                    _ => self.drive_front(token::key(token), Front::drive),
                }
            }
        }
    }

    /// All of them shall look whether they may go on.
    pub(super) fn ring_fronts(&self) {
        let keys = self.fronts.keys().into_iter();
        let tokens = keys.map(|key| token::of(token::FRONT, key));
        self.cx.bell.borrow_mut().extend(tokens);
    }

    pub(super) fn drive_front(
        &mut self,
        key: Key,
        work: impl FnOnce(&mut Front, Key, &mut Context, &mut Errands) -> bool,
    ) {
        let Some(front) = self.fronts.get_mut(key) else {
            return;
        };
        let mut errands = std::mem::take(&mut self.errands);
        let cx = &mut self.cx;
        // As with sessions: a defect costs the connection that met it.
        let worked = catch_unwind(AssertUnwindSafe(|| work(front, key, cx, &mut errands)));
        if !self.goes_on(worked)
            && let Some(front) = self.fronts.remove(key)
        {
            let service = &front.local.service;
            service.clients.fetch_sub(1, Relaxed);
            service.counters.of(self.cx.worker).present.sub(1);
        }
        for errand in errands.drain(..) {
            self.perform(errand);
        }
        self.errands = errands;
    }

    fn goes_on(&mut self, worked: std::thread::Result<bool>) -> bool {
        worked.unwrap_or_else(|_| {
            tracing::error!("an HTTP/2 connection's handling failed");
            self.cx.mend();
            false
        })
    }

    pub(super) fn drive_back(
        &mut self,
        key: Key,
        work: impl FnOnce(&mut Back, Key, &mut Context, &mut Errands) -> bool,
    ) {
        // It stands beside the worker's other things for its turn.
        let Some(mut back) = self.cx.backs.get_mut(key).and_then(Option::take) else {
            return;
        };
        let mut errands = std::mem::take(&mut self.errands);
        let cx = &mut self.cx;
        let worked = catch_unwind(AssertUnwindSafe(|| work(&mut back, key, cx, &mut errands)));
        let goes_on = self.goes_on(worked);
        match self.cx.backs.get_mut(key) {
            Some(place) if goes_on => *place = Some(back),
            _ => drop(self.cx.backs.remove(key)),
        }
        for errand in errands.drain(..) {
            self.perform(errand);
        }
        self.errands = errands;
    }

    fn perform(&mut self, errand: Errand) {
        let (owner, over) = match errand {
            Errand::Serve(begun) => {
                let transport = Transport::strand(StrandEnd(Rc::clone(&begun.strand)));
                let mut session = Session::new(transport, begun.peer, begun.port, begun.local);
                session.spoken_to = begun.spoken_to;
                let key = self.sessions.insert(session);
                begun.strand.borrow_mut().owner = Owner::Session(key);
                return self.turn(key, Session::begin);
            }
            Errand::Go(owner) => (owner, false),
            Errand::Over(owner) => (owner, true),
        };
        let go = |ready: &mut Ready| {
            ready.readable = true;
            ready.writable = true;
            ready.ended |= over;
            ready.broken |= over;
        };
        let key = match owner {
            Owner::Session(key) => {
                let Some(session) = self.sessions.get_mut(key) else {
                    return;
                };
                go(&mut session.ready);
                key
            }
            Owner::Server(key) => {
                let Some(upstream) = self.cx.upstreams.get_mut(key) else {
                    return;
                };
                go(&mut upstream.ready);
                upstream.session
            }
        };
        self.turn(key, Session::drive);
    }
}
