//! Implements a timer wheel with coarse, lazy deadlines.
//!
//! Setting a deadline normally only stores a number. The wheel itself changes only if the deadline has no entry or
//! moves to an earlier slot, or when a slot is due.
//!
//! A connection has at most one valid entry. If the deadline was moved in the meantime, the entry is inserted again
//! when it is due. Entries for deadlines beyond the wheel's span become due early, and are inserted again in the same
//! way.

use crate::slab::{Key, Slab};

/// Duration of a slot in milliseconds.
const SLOT_MS: u64 = 100;
const SLOTS: u64 = 512;

/// A timer wheel.
#[derive(Debug)]
pub(crate) struct Wheel {
    slots: Vec<Vec<Key>>,
    /// Index of the next slot to process, counted from the clock's start.
    next_slot: u64,
    entries: usize,
    /// Whether due entries remained after the last call to [`Wheel::take_expired`].
    is_behind: bool,
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
            next_slot: now_ms / SLOT_MS,
            entries: 0,
            is_behind: false,
        }
    }

    /// Sets the deadline to `at_ms`.
    pub(crate) fn set(&mut self, deadline: &mut Deadline, key: Key, at_ms: u64) {
        deadline.at_ms = at_ms;
        // The slot after the deadline's slot: when it is due, the deadline has passed.
        let slot = (at_ms / SLOT_MS + 1).clamp(self.next_slot, self.next_slot + SLOTS - 1);
        if deadline.slot == 0 || slot < deadline.slot {
            deadline.slot = slot;
            self.insert(key, slot);
        }
    }

    fn insert(&mut self, key: Key, slot: u64) {
        self.slots[(slot % SLOTS) as usize].push(key);
        self.entries += 1;
    }

    /// Advances to `now_ms`, and removes at most `limit` expired deadlines. Returns the keys of their connections.
    /// `deadline_of` returns a connection's deadline. Deadlines beyond the limit stay due.
    pub(crate) fn take_expired<T>(
        &mut self,
        now_ms: u64,
        limit: usize,
        connections: &mut Slab<T>,
        deadline_of: fn(&mut T) -> Option<&mut Deadline>,
    ) -> Vec<Key> {
        let now = now_ms / SLOT_MS;
        let mut expired = Vec::new();
        while self.next_slot <= now && expired.len() < limit {
            let slot = self.next_slot;
            let mut entries = std::mem::take(&mut self.slots[(slot % SLOTS) as usize]);
            while expired.len() < limit
                && let Some(key) = entries.pop()
            {
                self.entries -= 1;
                if let Some(deadline) = connections.get_mut(key).and_then(deadline_of)
                    && self.has_expired(deadline, key, slot, now_ms)
                {
                    expired.push(key);
                }
            }
            if entries.is_empty() {
                self.next_slot += 1;
            }
            let bucket = &mut self.slots[(slot % SLOTS) as usize];
            entries.append(bucket);
            *bucket = entries;
        }
        self.is_behind = self.next_slot <= now;
        expired
    }

    /// Returns whether the entry in `slot` is the valid entry of `deadline` and the deadline has passed. If the entry
    /// is valid but the deadline has not passed, inserts the entry again.
    fn has_expired(&mut self, deadline: &mut Deadline, key: Key, slot: u64, now_ms: u64) -> bool {
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
        } else if self.is_behind {
            Some(0)
        } else {
            Some(SLOT_MS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wheel and its connections, which have only a deadline.
    struct Fixture {
        wheel: Wheel,
        connections: Slab<Deadline>,
    }

    impl Fixture {
        fn new(now_ms: u64) -> Self {
            Self {
                wheel: Wheel::new(now_ms),
                connections: Slab::new(),
            }
        }

        fn add(&mut self, at_ms: u64) -> Key {
            let key = self.connections.insert(Deadline::default());
            self.set(key, at_ms);
            key
        }

        fn set(&mut self, key: Key, at_ms: u64) {
            let deadline = self.connections.get_mut(key).expect("exists");
            self.wheel.set(deadline, key, at_ms);
        }

        /// Advances the wheel to `now`. Returns the number of expired deadlines.
        fn run(&mut self, now: u64, limit: usize) -> usize {
            let expired = self
                .wheel
                .take_expired(now, limit, &mut self.connections, |it| Some(it));
            expired.len()
        }
    }

    #[test]
    fn deadline_expires_once_and_not_early() {
        let mut fixture = Fixture::new(1_000);
        fixture.add(5_000);
        assert_eq!(fixture.run(4_999, 10), 0);
        assert_eq!(fixture.run(5_200, 10), 1);
        assert_eq!(fixture.run(60_000, 10), 0);
        assert_eq!(fixture.wheel.sleep_ms(), None);
    }

    #[test]
    fn later_deadline_adds_no_entry() {
        let mut fixture = Fixture::new(0);
        let key = fixture.add(10_000);
        for offset_ms in 0..1_000 {
            fixture.set(key, 10_000 + offset_ms);
        }
        assert_eq!(fixture.wheel.entries, 1);
        assert_eq!(fixture.run(10_900, 10), 0);
        assert_eq!(fixture.run(11_200, 10), 1);
    }

    #[test]
    fn earlier_deadline_expires_in_time() {
        let mut fixture = Fixture::new(0);
        let key = fixture.add(40_000);
        fixture.set(key, 1_000);
        assert_eq!(fixture.run(1_200, 10), 1);
        assert_eq!(fixture.run(50_000, 10), 0);
    }

    #[test]
    fn deadline_beyond_the_span_expires_in_time() {
        let mut fixture = Fixture::new(0);
        fixture.add(200_000);
        for now in (0..=200_000).step_by(10_000) {
            assert_eq!(fixture.run(now, 10), 0, "{now}");
        }
        assert_eq!(fixture.run(200_200, 10), 1);
    }

    #[test]
    fn limit_leaves_the_other_deadlines_due() {
        let mut fixture = Fixture::new(0);
        for index in 0..10 {
            let key = fixture.add(1_000);
            if index == 4 {
                // Not counted, because the deadline has moved.
                fixture.set(key, 20_000);
            }
        }
        assert_eq!(fixture.run(1_500, 4), 4);
        assert_eq!(fixture.wheel.sleep_ms(), Some(0));
        assert_eq!(fixture.run(1_500, 4), 4);
        assert_eq!(fixture.wheel.sleep_ms(), Some(0));
        // A deadline that has already passed is not delayed by a slot.
        fixture.add(1_100);
        assert_eq!(fixture.run(1_500, 4), 2);
        assert_eq!(fixture.wheel.sleep_ms(), Some(SLOT_MS));
        assert_eq!(fixture.wheel.entries, 1);
    }
}
