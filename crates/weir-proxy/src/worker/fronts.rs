//! HTTP/2 connections in the worker's loop: what their streams want done, and whose turn it is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use super::Worker;
use crate::context::{Context, Ready, token};
use crate::h2::{Back, Errand, Errands, Front, Owner, StrandEnd, StrandState};
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

    /// Reads on from clients whose pauses are over.
    pub(super) fn resume_fronts(&mut self) {
        let now = self.cx.now;
        let mut over = Vec::new();
        let fronts = &mut self.fronts;
        self.cx.pace_wheel.advance(now, |wheel, key, slot| {
            if let Some(front) = fronts.get_mut(key)
                && wheel.is_over(&mut front.resumption, key, slot, now)
            {
                over.push(key);
            }
        });
        for key in over {
            self.drive_front(key, Front::drive);
        }
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
        let failed = worked.is_err();
        if !self.goes_on(worked)
            && let Some(mut front) = self.fronts.remove(key)
        {
            // After a defect its streams have sessions still.
            let end = || front.end(&mut errands);
            if failed && catch_unwind(AssertUnwindSafe(end)).is_err() {
                tracing::error!("an HTTP/2 connection's end failed");
            }
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
        let failed = worked.is_err();
        let goes_on = self.goes_on(worked);
        let end = || back.end(&mut errands);
        if failed && catch_unwind(AssertUnwindSafe(end)).is_err() {
            tracing::error!("the end of an HTTP/2 connection to a server failed");
        }
        match self.cx.backs.get_mut(key) {
            Some(place) if goes_on => *place = Some(back),
            _ => drop(self.cx.backs.remove(key)),
        }
        for errand in errands.drain(..) {
            self.perform(errand);
        }
        self.errands = errands;
    }

    /// Gives servers' HTTP/2 connections a turn: those that are of no use any more end.
    pub(super) fn drive_backs(&mut self) {
        for key in self.cx.backs.keys() {
            self.drive_back(key, Back::drive);
        }
    }

    fn perform(&mut self, errand: Errand) {
        let (owner, over) = match errand {
            Errand::Serve(begun) if begun.strand.borrow().state == StrandState::Over => return,
            Errand::Serve(begun) => {
                let transport = Transport::strand(StrandEnd(Rc::clone(&begun.strand)));
                let mut session = Session::new(transport, begun.peer, begun.port, begun.local);
                session.spoken_to = begun.spoken_to;
                session.asked_host = begun.asked;
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
            // Its session begins with this turn's errands, and looks at everything that came until then.
            Owner::Pending => return,
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
