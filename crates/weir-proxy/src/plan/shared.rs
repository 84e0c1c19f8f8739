//! Between control and workers: the plan in force, and what all of them are to do.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Plan;
use crate::handover::{Handed, Inbox};
use crate::idle_pool::IdlePool;

/// Between control and workers.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    plan: Mutex<Arc<Plan>>,
    /// Changes with every plan; what a worker compares when it wakes up.
    pub(crate) generation: AtomicU64,
    /// Changes when a server is withdrawn: connections to it that nobody uses are closed.
    pub(crate) withdrawals: AtomicU64,
    /// No new clients, no further requests.
    pub(crate) draining: AtomicBool,
    /// At once.
    pub(crate) stop: AtomicBool,
    /// Another process is to have the clients; by this way.
    pub(crate) handing: AtomicBool,
    outlet: Mutex<Option<Sender<Handed>>>,
    /// Connections of another process, and a number that changes with each.
    pub(crate) inbox: Inbox,
    pub(crate) arrivals: AtomicU64,
    /// Connections to servers that no worker needs at present.
    pub(crate) idle_pool: Arc<IdlePool>,
}

impl Shared {
    /// Has every worker hand its clients over.
    pub(crate) fn hand_over(&self, outlet: Sender<Handed>) {
        *held(&self.outlet) = Some(outlet);
        let _none_comes_in = self.inbox.lock();
        self.handing.store(true, Ordering::Release);
    }

    /// The way to the other process, for one worker.
    pub(crate) fn outlet(&self) -> Option<Sender<Handed>> {
        held(&self.outlet).clone()
    }

    /// No further worker needs the way.
    pub(crate) fn close_outlet(&self) {
        *held(&self.outlet) = None;
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&held(&self.plan))
    }

    pub(crate) fn publish(&self, plan: Plan) {
        let former = std::mem::replace(&mut *held(&self.plan), Arc::new(plan));
        // Behind the plan: a worker that sees the number finds it.
        self.generation.fetch_add(1, Ordering::Release);
        // Not under the lock, which the workers want now.
        drop(former);
    }
}

/// Nothing that holds one of these locks can fail half way.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
