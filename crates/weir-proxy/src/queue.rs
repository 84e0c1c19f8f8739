//! Who waits for a server of a pool that has as many connections as it may: one line for all workers, first come, first
//! served.
//!
//! A place that becomes free calls the first in the line. Until that one has had its turn a newcomer must not pass it,
//! so whoever comes while somebody waits goes to the end of the line.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::slab::Key;

/// What other threads tell a worker.
#[derive(Debug)]
pub(crate) struct Inbox {
    any: AtomicBool,
    calls: Mutex<Vec<(Key, Arc<Line>)>>,
    wake: Arc<OwnedFd>,
}

impl Inbox {
    pub(crate) const fn new(wake: Arc<OwnedFd>) -> Self {
        Self {
            any: AtomicBool::new(false),
            calls: Mutex::new(Vec::new()),
            wake,
        }
    }

    /// Sessions whose turn it is.
    pub(crate) fn take(&self) -> Vec<(Key, Arc<Line>)> {
        // The flag first: a call that comes behind the swap sets it again.
        if self.any.swap(false, Ordering::Acquire) {
            std::mem::take(&mut *held(&self.calls))
        } else {
            Vec::new()
        }
    }

    fn put(&self, key: Key, line: Arc<Line>) {
        held(&self.calls).push((key, line));
        self.any.store(true, Ordering::Release);
        // A full counter wakes it too.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// One who waits.
#[derive(Debug)]
struct Place {
    number: u64,
    key: Key,
    inbox: Arc<Inbox>,
}

/// A pool's line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// How many wait; written under the lock, read without.
    waiting: AtomicU32,
    next: AtomicU64,
    places: Mutex<VecDeque<Place>>,
}

impl Line {
    /// How many wait.
    pub(crate) fn len(&self) -> u32 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Enters the line: at its end, or at the place that a number of an earlier entry gives.
    pub(crate) fn enter(&self, number: Option<u64>, key: Key, inbox: &Arc<Inbox>) -> u64 {
        let mut places = held(&self.places);
        let number = number.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        let at = places.partition_point(|place| place.number < number);
        places.insert(
            at,
            Place {
                number,
                key,
                inbox: Arc::clone(inbox),
            },
        );
        self.count(&places);
        number
    }

    /// Leaves it before its turn.
    pub(crate) fn leave(&self, number: u64) {
        let mut places = held(&self.places);
        // Numbers ascend: a search, since thousands may leave one after the other.
        if let Ok(at) = places.binary_search_by_key(&number, |place| place.number) {
            places.remove(at);
        }
        self.count(&places);
    }

    /// Calls the first `most`.
    pub(crate) fn call(self: &Arc<Self>, most: usize) {
        if self.len() == 0 {
            return;
        }
        let mut places = held(&self.places);
        let many = most.min(places.len());
        let called: Vec<Place> = places.drain(..many).collect();
        self.count(&places);
        drop(places);
        for place in called {
            place.inbox.put(place.key, Arc::clone(self));
        }
    }

    fn count(&self, places: &VecDeque<Place>) {
        let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
        self.waiting.store(count, Ordering::Release);
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn the_line_is_kept_also_by_one_who_was_called_in_vain() {
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd"));
        let inbox = Arc::new(Inbox::new(wake));
        let line = Arc::new(Line::default());
        let key = |index| Key {
            index,
            generation: 0,
        };
        let first = line.enter(None, key(1), &inbox);
        let second = line.enter(None, key(2), &inbox);
        line.enter(None, key(3), &inbox);
        line.call(1);
        let called =
            |inbox: &Inbox| -> Vec<u32> { inbox.take().iter().map(|(key, _)| key.index).collect() };
        assert_eq!((called(&inbox), line.len()), (vec![1], 2));
        line.enter(Some(first), key(1), &inbox);
        line.leave(second);
        line.call(9);
        assert_eq!((called(&inbox), line.len()), (vec![1, 3], 0));
        assert!(inbox.take().is_empty());
    }
}
