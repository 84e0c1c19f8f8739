//! Implements the queue for a pool whose servers are full: a FIFO that all workers share.
//!
//! When a slot becomes free, the first session is woken. New requests must not overtake waiting sessions, so they
//! enter the queue whenever it is not empty.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::job_result::{JobResult, Ticket};
use crate::slab::Key;

/// Notifications from other threads for a worker's sessions.
#[derive(Debug)]
pub(crate) struct Inbox {
    has_notifications: AtomicBool,
    notifications: Mutex<Vec<(Key, Notification)>>,
    wake: Arc<OwnedFd>,
}

/// Why a session is notified.
#[derive(Debug)]
pub(crate) enum Notification {
    /// It is the session's turn in a queue.
    Turn(Arc<Queue>),
    /// A job is done.
    Done(Ticket, JobResult),
}

impl Inbox {
    pub(crate) const fn new(wake: Arc<OwnedFd>) -> Self {
        Self {
            has_notifications: AtomicBool::new(false),
            notifications: Mutex::new(Vec::new()),
            wake,
        }
    }

    /// Takes the notifications.
    pub(crate) fn take(&self) -> Vec<(Key, Notification)> {
        // The flag is cleared first, so a notification that arrives after the swap sets it again.
        if self.has_notifications.swap(false, Ordering::Acquire) {
            std::mem::take(&mut *lock(&self.notifications))
        } else {
            Vec::new()
        }
    }

    pub(crate) fn put(&self, key: Key, notification: Notification) {
        lock(&self.notifications).push((key, notification));
        self.has_notifications.store(true, Ordering::Release);
        // A full counter wakes the worker as well.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// A waiting session.
#[derive(Debug)]
struct Waiter {
    number: u64,
    key: Key,
    inbox: Arc<Inbox>,
}

/// A pool's queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Number of entries. Written under the lock, read without it.
    length: AtomicU32,
    /// Peak number of entries. Written under the lock.
    peak: AtomicU32,
    next: AtomicU64,
    waiters: Mutex<VecDeque<Waiter>>,
}

impl Queue {
    /// Returns the number of entries.
    pub(crate) fn len(&self) -> u32 {
        self.length.load(Ordering::Acquire)
    }

    /// Returns the peak number of entries.
    pub(crate) fn peak(&self) -> u32 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Adds an entry: at the end, or at the position of an earlier entry, given by its `number`. Returns its number.
    pub(crate) fn enter(&self, number: Option<u64>, key: Key, inbox: &Arc<Inbox>) -> u64 {
        let mut waiters = lock(&self.waiters);
        let number = number.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        let index = waiters.partition_point(|waiter| waiter.number < number);
        waiters.insert(
            index,
            Waiter {
                number,
                key,
                inbox: Arc::clone(inbox),
            },
        );
        self.count(&waiters);
        number
    }

    /// Removes an entry, unless its session was already woken.
    pub(crate) fn leave(&self, number: u64) {
        let mut waiters = lock(&self.waiters);
        // Numbers are ascending. A binary search is used because thousands of sessions can leave at the same time.
        if let Ok(index) = waiters.binary_search_by_key(&number, |waiter| waiter.number) {
            waiters.remove(index);
        }
        self.count(&waiters);
    }

    /// Removes up to `max` entries from the front, and wakes their sessions.
    pub(crate) fn wake(self: &Arc<Self>, max: usize) {
        if self.len() == 0 {
            return;
        }
        let mut waiters = lock(&self.waiters);
        let count = max.min(waiters.len());
        let woken_waiters: Vec<Waiter> = waiters.drain(..count).collect();
        self.count(&waiters);
        drop(waiters);
        for waiter in woken_waiters {
            waiter
                .inbox
                .put(waiter.key, Notification::Turn(Arc::clone(self)));
        }
    }

    fn count(&self, waiters: &VecDeque<Waiter>) {
        let count = u32::try_from(waiters.len()).unwrap_or(u32::MAX);
        self.length.store(count, Ordering::Release);
        self.peak.fetch_max(count, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn session_that_reenters_keeps_its_position() {
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("create eventfd"));
        let inbox = Arc::new(Inbox::new(wake));
        let queue = Arc::new(Queue::default());
        let key = |index| Key {
            index,
            generation: 0,
        };
        let first = queue.enter(None, key(1), &inbox);
        let second = queue.enter(None, key(2), &inbox);
        queue.enter(None, key(3), &inbox);
        queue.wake(1);
        let woken_indices =
            |inbox: &Inbox| -> Vec<u32> { inbox.take().iter().map(|(key, _)| key.index).collect() };
        assert_eq!((woken_indices(&inbox), queue.len()), (vec![1], 2));
        queue.enter(Some(first), key(1), &inbox);
        queue.leave(second);
        queue.wake(9);
        assert_eq!((woken_indices(&inbox), queue.len()), (vec![1, 3], 0));
        assert!(inbox.take().is_empty());
        assert_eq!(queue.peak(), 3);
    }
}
