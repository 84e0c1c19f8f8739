//! Waiting for a server that has as many connections as it may.

use std::rc::Rc;
use std::sync::Arc;

use weir_select::Selection;

use super::state::{Phase, Ticket};
use super::{Outcome, Session, Step};
use crate::context::Context;
use crate::slab::Key;

impl Session {
    /// Whether it waits in a pool's line.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queue(_))
    }

    /// Goes to the end of the line; one who was called in vain, to where it stood.
    pub(super) fn queue_up(&mut self, key: Key, cx: &mut Context) -> Step {
        let local = Rc::clone(&self.local);
        let targets = &local.service.pools[self.request.pool];
        let former = match &self.phase {
            Phase::Queue(ticket) => Some(ticket.number),
            _ => None,
        };
        let number = targets.line.enter(former, key, &cx.inbox);
        self.phase = Phase::Queue(Ticket {
            number,
            queue: Arc::clone(&targets.line),
        });
        if former.is_none() {
            self.wait(key, cx, targets.queue_ms);
        }
        // A place that became free before the entry has called nobody.
        if targets.view().has_usable() {
            targets.line.call(1);
        }
        Step::Pending
    }

    /// Its turn.
    pub(crate) fn called(&mut self, key: Key, cx: &mut Context) -> Outcome {
        let output = self.decide(cx, Selection::handle_queue_turn);
        let moved = match output {
            Some(output) => self.execute(output, key, cx),
            None => Step::Pending,
        };
        self.go_on(moved, key, cx)
    }

    /// Leaves the line, if it stands in one.
    pub(super) fn step_out(&mut self) {
        if let Phase::Queue(ticket) = &self.phase {
            ticket.queue.leave(ticket.number);
        }
    }
}
