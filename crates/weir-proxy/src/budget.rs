//! How many requests of a service a worker may send a second time.
//!
//! Servers that fail when they have too much to do must not get more because they fail: repetitions are a share of the
//! requests, and a few besides, so that a quiet service has some too.

use std::cell::Cell;

/// What a repetition costs: a request brings its percentage of it.
const PRICE: u64 = 100;
/// Repetitions in hand at most, and at the beginning: as many requests may be under way when a server dies.
const SAVED_MAX: u64 = 500 * PRICE;
/// One repetition in so many milliseconds is free, and up to ten of them at once.
const FREE_EVERY_MS: u64 = 100;
const FREE_BURST_MS: u64 = 900;

/// See the module.
#[derive(Debug)]
pub(crate) struct Budget {
    saved: Cell<u64>,
    /// When the next free one is due; it may be taken a little ahead.
    free_at: Cell<u64>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            saved: Cell::new(SAVED_MAX),
            free_at: Cell::new(0),
        }
    }
}

impl Budget {
    /// A request came.
    pub(crate) fn earn(&self, percent: u32) {
        let saved = self.saved.get() + u64::from(percent);
        self.saved.set(saved.min(SAVED_MAX));
    }

    /// Whether a request may be sent again, which is then counted.
    pub(crate) fn spend(&self, now_ms: u64) -> bool {
        if let Some(rest) = self.saved.get().checked_sub(PRICE) {
            self.saved.set(rest);
            return true;
        }
        let due = self.free_at.get();
        if due > now_ms + FREE_BURST_MS {
            return false;
        }
        self.free_at.set(due.max(now_ms) + FREE_EVERY_MS);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_a_share_of_requests_and_ten_a_second() {
        let budget = Budget::default();
        let spent = |now: u64| (0..5_000).filter(|_| budget.spend(now)).count();
        assert_eq!(spent(50_000), 510, "what was saved, and ten");
        assert_eq!(spent(50_000), 0);
        assert_eq!(spent(50_500), 5);
        (0..50).for_each(|_| budget.earn(20));
        assert_eq!(spent(50_500), 10);
        (0..100_000).for_each(|_| budget.earn(100));
        assert_eq!(spent(50_500), 500);
    }
}
