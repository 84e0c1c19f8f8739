//! State shared by control and workers: the active plan, and requests to all workers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Plan;
use crate::handover::{Handed, Inbox};
use crate::idle_pool::IdlePool;

/// The state that control and workers share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    plan: Mutex<Arc<Plan>>,
    /// Changes with every plan; workers compare it when they wake up.
    pub(crate) generation: AtomicU64,
    /// Changes when a server is withdrawn: idle connections to it are closed.
    pub(crate) withdrawals: AtomicU64,
    /// No new clients, no further requests.
    pub(crate) draining: AtomicBool,
    /// Stop at once.
    pub(crate) stop: AtomicBool,
    /// Clients are handed over to another process, through the outlet.
    pub(crate) handing: AtomicBool,
    outlet: Mutex<Option<Sender<Handed>>>,
    /// Connections from another process, and a number that changes with each.
    pub(crate) inbox: Inbox,
    pub(crate) arrivals: AtomicU64,
    /// Connections to servers that no worker needs at present.
    pub(crate) idle_pool: Arc<IdlePool>,
}

impl Shared {
    /// Makes every worker hand its clients over.
    pub(crate) fn hand_over(&self, outlet: Sender<Handed>) {
        *lock(&self.outlet) = Some(outlet);
        let _none_comes_in = self.inbox.lock();
        self.handing.store(true, Ordering::Release);
    }

    /// The channel to the other process, for one worker.
    pub(crate) fn outlet(&self) -> Option<Sender<Handed>> {
        lock(&self.outlet).clone()
    }

    /// No further worker needs the channel.
    pub(crate) fn close_outlet(&self) {
        *lock(&self.outlet) = None;
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&lock(&self.plan))
    }

    pub(crate) fn publish(&self, plan: Plan) {
        let former = std::mem::replace(&mut *lock(&self.plan), Arc::new(plan));
        // After the plan: a worker that sees the number finds the plan.
        self.generation.fetch_add(1, Ordering::Release);
        // Outside the lock, for which the workers are waiting.
        drop(former);
    }
}

/// No code that holds one of these locks can fail half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
