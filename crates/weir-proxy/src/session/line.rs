//! Waiting for a server that has as many connections as it may.

use std::rc::Rc;
use std::sync::Arc;

use weir_select::Selection;

use super::{Fate, Moved, Phase, Session};
use crate::context::Context;
use crate::slab::Key;

impl Session {
    /// Whether it waits in a pool's line.
    pub(crate) fn is_queued(&self) -> bool {
        self.phase == Phase::Queue
    }

    /// Goes to the end of the line; one who was called in vain, to where it stood.
    pub(super) fn queue_up(&mut self, key: Key, cx: &mut Context) -> Moved {
        let local = Rc::clone(&self.local);
        let targets = &local.service.pools[self.pool];
        let stood = self.line.take().map(|(number, _)| number);
        let number = targets.line.enter(stood, key, &cx.inbox);
        self.line = Some((number, Arc::clone(&targets.line)));
        self.phase = Phase::Queue;
        if stood.is_none() {
            self.wait(key, cx, targets.queue_ms);
        }
        // A place that became free before the entry has called nobody.
        if targets.view().has_usable() {
            targets.line.call(1);
        }
        Moved::Waits
    }

    /// Its turn.
    pub(crate) fn called(&mut self, key: Key, cx: &mut Context) -> Fate {
        let output = self.decide(cx, Selection::handle_queue_turn);
        let moved = match output {
            Some(output) => self.execute(output, key, cx),
            None => Moved::Waits,
        };
        self.go_on(moved, key, cx)
    }

    /// Leaves the line, if it stands in one.
    pub(super) fn step_out(&mut self) {
        if let Some((number, line)) = self.line.take() {
            line.leave(number);
        }
    }
}
