//! Deadlines, coarse and lazy: setting one writes a number, and the wheel is touched only when an earlier one is needed
//! or a slot comes round.
//!
//! A connection has at most one entry that counts. When it comes round and the connection's deadline has moved on, it
//! is entered again. Deadlines beyond the wheel's span come round early and are entered again in the same way.

use crate::slab::Key;

/// Milliseconds of one slot.
const SLOT_MS: u64 = 100;
const SLOTS: u64 = 512;

/// See the module.
#[derive(Debug)]
pub(crate) struct Wheel {
    slots: Vec<Vec<Key>>,
    /// The slot, counted from the clock's start, that is looked at next.
    next: u64,
    entries: usize,
}

/// What a connection keeps: when it ends, and in which slot it is entered (0 = in none).
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

    /// Moves the deadline to `at_ms`.
    pub(crate) fn set(&mut self, deadline: &mut Deadline, key: Key, at_ms: u64) {
        deadline.at_ms = at_ms;
        // The slot behind the deadline's: when that one is looked at, the deadline has passed.
        let slot = (at_ms / SLOT_MS + 1).clamp(self.next, self.next + SLOTS - 1);
        if deadline.slot == 0 || slot < deadline.slot {
            deadline.slot = slot;
            self.enter(key, slot);
        }
    }

    fn enter(&mut self, key: Key, slot: u64) {
        self.slots[(slot % SLOTS) as usize].push(key);
        self.entries += 1;
    }

    /// Goes on to `now_ms` and calls `due` with each entry met and its slot; it answers with the slot to enter it
    /// again.
    pub(crate) fn advance(&mut self, now_ms: u64, mut due: impl FnMut(&mut Self, Key, u64)) {
        let now = now_ms / SLOT_MS;
        while self.next <= now {
            let slot = self.next;
            let mut met = std::mem::take(&mut self.slots[(slot % SLOTS) as usize]);
            self.next += 1;
            self.entries -= met.len();
            for key in met.drain(..) {
                due(self, key, slot);
            }
            let bucket = &mut self.slots[(slot % SLOTS) as usize];
            if bucket.is_empty() {
                *bucket = met;
            }
        }
    }

    /// Whether an entry of `deadline` that was met in `slot` is the one that counts and its time is over. Enters it
    /// again where it counts and the time is not over.
    pub(crate) fn is_over(
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
        let at = deadline.at_ms;
        self.set(deadline, key, at);
        false
    }

    /// How long one may sleep without missing more than a slot; `None` = for ever.
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

    /// Runs the wheel to `now` over one deadline; whether it was over.
    fn run(wheel: &mut Wheel, deadline: &mut Deadline, now: u64) -> bool {
        let mut over = false;
        wheel.advance(now, |wheel, key, slot| {
            over |= wheel.is_over(deadline, key, slot, now)
        });
        over
    }

    #[test]
    fn a_deadline_is_over_once_and_not_before() {
        let mut wheel = Wheel::new(1_000);
        let mut deadline = Deadline::default();
        wheel.set(&mut deadline, key(1), 5_000);
        assert!(!run(&mut wheel, &mut deadline, 4_999));
        assert!(run(&mut wheel, &mut deadline, 5_200));
        assert!(!run(&mut wheel, &mut deadline, 60_000));
        assert_eq!(wheel.sleep_ms(), None);
    }

    #[test]
    fn one_that_moves_on_costs_no_entry() {
        let mut wheel = Wheel::new(0);
        let mut deadline = Deadline::default();
        for at in 0..1_000 {
            wheel.set(&mut deadline, key(1), 10_000 + at);
        }
        assert_eq!(wheel.entries, 1);
        assert!(!run(&mut wheel, &mut deadline, 10_900));
        assert!(run(&mut wheel, &mut deadline, 11_200));
    }

    #[test]
    fn one_that_moves_nearer_is_met_in_time() {
        let mut wheel = Wheel::new(0);
        let mut deadline = Deadline::default();
        wheel.set(&mut deadline, key(1), 40_000);
        wheel.set(&mut deadline, key(1), 1_000);
        assert!(run(&mut wheel, &mut deadline, 1_200));
        assert!(!run(&mut wheel, &mut deadline, 50_000));
    }

    #[test]
    fn one_beyond_the_span_comes_in_its_time() {
        let mut wheel = Wheel::new(0);
        let mut deadline = Deadline::default();
        wheel.set(&mut deadline, key(1), 200_000);
        for now in (0..=200_000).step_by(10_000) {
            assert!(!run(&mut wheel, &mut deadline, now), "{now}");
        }
        assert!(run(&mut wheel, &mut deadline, 200_200));
    }
}
