//! Implements a timer wheel with coarse, lazy deadlines.
//!
//! Setting a deadline only stores a number. The wheel changes only if the deadline moves to an earlier slot, or if a
//! slot is due.
//!
//! A connection has at most one valid entry. If the entry is due but the deadline was moved, the entry is inserted
//! again. Deadlines beyond the wheel's span become due early, and are inserted again in the same way.

use crate::slab::Key;

/// Duration of a slot in milliseconds.
const SLOT_MS: u64 = 100;
const SLOTS: u64 = 512;

/// A timer wheel.
#[derive(Debug)]
pub(crate) struct Wheel {
    slots: Vec<Vec<Key>>,
    /// Number of the next slot to process, counted from the clock's start.
    next: u64,
    entries: usize,
}

/// A connection's deadline, and the slot of its entry (0 = none).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at_ms: u64,
    slot: u64,
}

impl Wheel {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            next: now_ms / SLOT_MS,
            entries: 0,
        }
    }

    /// Sets the deadline to `at_ms`.
    pub(crate) fn set(&mut self, deadline: &mut Deadline, key: Key, at_ms: u64) {
        deadline.at_ms = at_ms;
        // The slot after the deadline's slot: when it is due, the deadline has passed.
        let slot = (at_ms / SLOT_MS + 1).clamp(self.next, self.next + SLOTS - 1);
        if deadline.slot == 0 || slot < deadline.slot {
            deadline.slot = slot;
            self.insert(key, slot);
        }
    }

    fn insert(&mut self, key: Key, slot: u64) {
        self.slots[(slot % SLOTS) as usize].push(key);
        self.entries += 1;
    }

    /// Advances to `now_ms`, and calls `on_due` with each due entry and its slot.
    pub(crate) fn advance(&mut self, now_ms: u64, mut on_due: impl FnMut(&mut Self, Key, u64)) {
        let now = now_ms / SLOT_MS;
        while self.next <= now {
            let slot = self.next;
            let mut entries = std::mem::take(&mut self.slots[(slot % SLOTS) as usize]);
            self.next += 1;
            self.entries -= entries.len();
            for key in entries.drain(..) {
                on_due(self, key, slot);
            }
            let bucket = &mut self.slots[(slot % SLOTS) as usize];
            if bucket.is_empty() {
                *bucket = entries;
            }
        }
    }

    /// Returns whether the entry in `slot` is the valid entry of `deadline` and the deadline has passed. If it is valid
    /// and the deadline has not passed, inserts it again.
    pub(crate) fn has_expired(
        &mut self,
        deadline: &mut Deadline,
        key: Key,
        slot: u64,
        now_ms: u64,
    ) -> bool {
        if deadline.slot != slot {
            return false;
        }
        deadline.slot = 0;
        if deadline.at_ms <= now_ms {
            return true;
        }
        let at_ms = deadline.at_ms;
        self.set(deadline, key, at_ms);
        false
    }

    /// Returns how long the worker may sleep, in milliseconds; `None` = until an event.
    pub(crate) const fn sleep_ms(&self) -> Option<u64> {
        if self.entries == 0 {
            None
        } else {
            Some(SLOT_MS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> Key {
        Key {
            index,
            generation: 0,
        }
    }

    /// Advances the wheel to `now` with one deadline. Returns whether the deadline has passed.
    fn run(wheel: &mut Wheel, deadline: &mut Deadline, now: u64) -> bool {
        let mut has_expired = false;
        wheel.advance(now, |wheel, key, slot| {
            has_expired |= wheel.has_expired(deadline, key, slot, now)
        });
        has_expired
    }

    #[test]
    fn deadline_expires_once_and_not_early() {
        let mut wheel = Wheel::new(1_000);
        let mut deadline = Deadline::default();
        wheel.set(&mut deadline, key(1), 5_000);
        assert!(!run(&mut wheel, &mut deadline, 4_999));
        assert!(run(&mut wheel, &mut deadline, 5_200));
        assert!(!run(&mut wheel, &mut deadline, 60_000));
        assert_eq!(wheel.sleep_ms(), None);
    }

    #[test]
    fn later_deadline_adds_no_entry() {
        let mut wheel = Wheel::new(0);
        let mut deadline = Deadline::default();
        for offset_ms in 0..1_000 {
            wheel.set(&mut deadline, key(1), 10_000 + offset_ms);
        }
        assert_eq!(wheel.entries, 1);
        assert!(!run(&mut wheel, &mut deadline, 10_900));
        assert!(run(&mut wheel, &mut deadline, 11_200));
    }

    #[test]
    fn earlier_deadline_expires_in_time() {
        let mut wheel = Wheel::new(0);
        let mut deadline = Deadline::default();
        wheel.set(&mut deadline, key(1), 40_000);
        wheel.set(&mut deadline, key(1), 1_000);
        assert!(run(&mut wheel, &mut deadline, 1_200));
        assert!(!run(&mut wheel, &mut deadline, 50_000));
    }

    #[test]
    fn deadline_beyond_the_span_expires_in_time() {
        let mut wheel = Wheel::new(0);
        let mut deadline = Deadline::default();
        wheel.set(&mut deadline, key(1), 200_000);
        for now in (0..=200_000).step_by(10_000) {
            assert!(!run(&mut wheel, &mut deadline, now), "{now}");
        }
        assert!(run(&mut wheel, &mut deadline, 200_200));
    }
}
