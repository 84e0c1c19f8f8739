//! Defines the state that the control thread shares with the workers: the active plan, and requests to all workers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Plan;
use crate::handover::{HandedOverConnection, Inbox};
use crate::idle_pool::IdlePool;

/// The state that the control thread and the workers share.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    plan: Mutex<Arc<Plan>>,
    /// Incremented with every plan; workers compare it when they wake up.
    pub(crate) generation: AtomicU64,
    /// Incremented when a server is withdrawn, or its connections must be closed. Workers then close idle connections
    /// to withdrawn servers, and all connections that must be closed.
    pub(crate) withdrawals: AtomicU64,
    /// Whether workers accept no new clients and no further requests.
    pub(crate) draining: AtomicBool,
    /// Whether workers stop immediately.
    pub(crate) stop: AtomicBool,
    /// Whether clients are handed over to another process, through `handover_sender`.
    pub(crate) handing_over: AtomicBool,
    handover_sender: Mutex<Option<Sender<HandedOverConnection>>>,
    /// Connections from another process.
    pub(crate) inbox: Inbox,
    /// Incremented with every connection that is added to `inbox`.
    pub(crate) arrivals: AtomicU64,
    /// Idle connections to servers that any worker may take.
    pub(crate) idle_pool: Arc<IdlePool>,
}

impl SharedState {
    /// Makes every worker hand over its clients through `sender`.
    pub(crate) fn hand_over(&self, sender: Sender<HandedOverConnection>) {
        *lock(&self.handover_sender) = Some(sender);
        let _no_arrivals = self.inbox.lock();
        self.handing_over.store(true, Ordering::Release);
    }

    /// Returns the sender of the channel to the other process; `None` = there is no handover.
    pub(crate) fn handover_sender(&self) -> Option<Sender<HandedOverConnection>> {
        lock(&self.handover_sender).clone()
    }

    /// Closes the channel to the other process. No worker may still need it.
    pub(crate) fn close_handover_sender(&self) {
        *lock(&self.handover_sender) = None;
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&lock(&self.plan))
    }

    /// Replaces the plan.
    pub(crate) fn publish(&self, plan: Plan) {
        let old = std::mem::replace(&mut *lock(&self.plan), Arc::new(plan));
        // Incremented after the plan is replaced, so that a worker that sees the new value finds the new plan.
        self.generation.fetch_add(1, Ordering::Release);
        // Dropped outside the lock, because workers wait for the lock.
        drop(old);
    }
}

/// Locks a mutex, ignoring poison: no code that runs under one of these locks can leave the state inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
