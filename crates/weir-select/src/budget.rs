//! Implements the retry budget of a service.
//!
//! Retries must not add load to servers that fail because of overload. They are therefore limited to a share of the
//! requests, plus ten per second for services with few requests.

use std::cell::Cell;

/// Cost of a retry; each request adds the configured percentage of it to the budget.
const RETRY_COST: u64 = 100;
/// Initial and maximum budget: 500 retries, for the requests that are in progress when a server fails.
const MAX_SAVED: u64 = 500 * RETRY_COST;
/// Interval between free retries, and how early a free retry can be used. Up to ten can be used at once.
const FREE_RETRY_INTERVAL_MS: u64 = 100;
const FREE_RETRY_BURST_MS: u64 = 900;

/// One worker's budget for one service.
#[derive(Debug)]
pub struct Budget {
    saved: Cell<u64>,
    /// Time at which the next free retry is due. The retry may be used up to [`FREE_RETRY_BURST_MS`] earlier.
    free_at_ms: Cell<u64>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            saved: Cell::new(MAX_SAVED),
            free_at_ms: Cell::new(0),
        }
    }
}

impl Budget {
    /// Adds the share for one request, in percent of a retry.
    pub fn earn(&self, percent: u32) {
        let saved = self.saved.get() + u64::from(percent);
        self.saved.set(saved.min(MAX_SAVED));
    }

    /// Takes one retry from the budget. Returns false if the budget is exhausted.
    pub(crate) fn spend(&self, now_ms: u64) -> bool {
        if let Some(remaining) = self.saved.get().checked_sub(RETRY_COST) {
            self.saved.set(remaining);
            return true;
        }
        let due_ms = self.free_at_ms.get();
        if due_ms > now_ms + FREE_RETRY_BURST_MS {
            return false;
        }
        self.free_at_ms
            .set(due_ms.max(now_ms) + FREE_RETRY_INTERVAL_MS);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_limited_to_a_share_of_requests_plus_ten_per_second() {
        let budget = Budget::default();
        let count_retries = |now_ms: u64| (0..5_000).filter(|_| budget.spend(now_ms)).count();
        assert_eq!(
            count_retries(50_000),
            510,
            "the saved budget and ten free retries"
        );
        assert_eq!(count_retries(50_000), 0);
        assert_eq!(count_retries(50_500), 5);
        (0..50).for_each(|_| budget.earn(20));
        assert_eq!(count_retries(50_500), 10);
        (0..100_000).for_each(|_| budget.earn(100));
        assert_eq!(count_retries(50_500), 500);
    }
}
