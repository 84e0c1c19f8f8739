//! Waiting for a server that has as many connections as it may.

use std::sync::Arc;

use super::{Fate, Moved, Phase, Session};
use crate::context::Context;
use crate::plan::Targets;
use crate::slab::Key;

impl Session {
    /// Whether it waits in a pool's line.
    pub(crate) fn is_queued(&self) -> bool {
        self.phase == Phase::Queue
    }

    /// Goes to the end of the line; one who was called in vain, to where it stood.
    pub(super) fn queue_up(&mut self, targets: &Targets, key: Key, cx: &mut Context) -> Moved {
        let stood = self.line.take().map(|(number, _)| number);
        let number = targets.line.enter(stood, key, &cx.inbox);
        self.line = Some((number, Arc::clone(&targets.line)));
        self.phase = Phase::Queue;
        if stood.is_none() {
            self.wait(key, cx, targets.queue_ms);
        }
        // A place that became free before the entry has called nobody.
        if targets.list.iter().any(|target| target.load.is_usable()) {
            targets.line.call(1);
        }
        Moved::Waits
    }

    /// Its turn.
    pub(crate) fn called(&mut self, key: Key, cx: &mut Context) -> Fate {
        let moved = self.choose(key, cx, true);
        self.go_on(moved, key, cx)
    }

    /// Leaves the line, if it stands in one.
    pub(super) fn step_out(&mut self) {
        if let Some((number, line)) = self.line.take() {
            line.leave(number);
        }
    }
}
