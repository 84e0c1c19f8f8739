//! Queues a session for a pool while all servers of the pool are full.

use std::rc::Rc;
use std::sync::Arc;

use weir_select::Selection;

use super::state::{Phase, QueueEntry};
use super::{Outcome, Session, Step};
use crate::context::Context;
use crate::slab::Key;

impl Session {
    /// Returns whether the session is in a pool's queue.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queue(_))
    }

    /// Enters the queue: at its end, or at its previous position if the session was woken but found no free server.
    pub(super) fn enter_queue(&mut self, key: Key, cx: &mut Context) -> Step {
        let local = Rc::clone(&self.local);
        let pool = &local.service.pools[self.request.pool];
        let previous_number = match &self.phase {
            Phase::Queue(entry) => Some(entry.number),
            _ => None,
        };
        let number = pool.queue.enter(previous_number, key, &cx.inbox);
        self.phase = Phase::Queue(QueueEntry {
            number,
            queue: Arc::clone(&pool.queue),
        });
        if previous_number.is_none() {
            self.set_deadline(key, cx, pool.queue_ms);
        }
        // A slot may have become free before this session entered the queue, when there was no session to wake.
        if pool.view().has_usable_for_queue() {
            pool.queue.wake(1);
        }
        Step::Pending
    }

    /// Handles the session's turn in the queue.
    pub(crate) fn handle_queue_turn(&mut self, key: Key, cx: &mut Context) -> Outcome {
        let output = self.decide(cx, Selection::handle_queue_turn);
        let step = match output {
            Some(output) => self.execute(output, key, cx),
            None => Step::Pending,
        };
        self.run(step, key, cx)
    }

    /// Leaves the queue, if the session is in one.
    pub(super) fn leave_queue(&mut self) {
        if let Phase::Queue(entry) = &self.phase {
            entry.queue.leave(entry.number);
        }
    }
}
