//! Manages timers, and statistics about how late probes start.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::ServerKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// Slot and number of a probe.
    Probe(usize, u64),
    /// A slow start step: pool, server, and the number of the configuration that set the timer.
    Ramp(usize, ServerKey, u64),
}

/// Timers, earliest first. Obsolete timers remain until they are due.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Duration, Event)>>);

impl Timers {
    pub(super) fn set(&mut self, due: Duration, event: Event) {
        self.0.push(Reverse((due, event)));
    }

    /// Removes and returns a timer that is due.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<(Duration, Event)> {
        if self.next_due()? > now {
            return None;
        }
        self.0.pop().map(|Reverse(entry)| entry)
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        self.0.peek().map(|Reverse((due, _))| *due)
    }
}

/// Histogram of the delay between the scheduled and the actual start of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    counts: [u64; Self::BOUNDS_MS.len() + 1],
}

impl Lateness {
    /// Upper bounds of the buckets, in milliseconds. One more bucket has no upper bound.
    pub const BOUNDS_MS: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

    pub(super) fn record(&mut self, delay: Duration) {
        let millis = delay.as_micros().div_ceil(1000);
        let bucket = Self::BOUNDS_MS
            .iter()
            .position(|bound| millis <= u128::from(*bound));
        self.counts[bucket.unwrap_or(Self::BOUNDS_MS.len())] += 1;
    }

    /// Returns the number of probes in each bucket of [`Self::BOUNDS_MS`], and above the last bound.
    pub const fn counts(&self) -> &[u64; 11] {
        &self.counts
    }

    /// Returns the smallest bound, in milliseconds, that this percentage of probes does not exceed. Returns `None` if
    /// there is no such bound, or if no probe was recorded.
    pub fn quantile_ms(&self, percent: u64) -> Option<u64> {
        let total: u64 = self.counts.iter().sum();
        let mut cumulative = 0;
        for (bound, count) in Self::BOUNDS_MS.iter().zip(self.counts) {
            cumulative += count;
            if total > 0 && cumulative * 100 >= total * percent {
                return Some(*bound);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_the_smallest_sufficient_bound() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile_ms(99), None);
        for _ in 0..99 {
            lateness.record(Duration::from_micros(1500));
        }
        lateness.record(Duration::from_secs(9));
        assert_eq!(lateness.quantile_ms(99), Some(2));
        assert_eq!(lateness.quantile_ms(100), None);
        assert_eq!(lateness.counts()[10], 1);
    }
}
