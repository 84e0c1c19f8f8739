//! Timers, and statistics on how late they fired.

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

/// A heap with the earliest timer on top. Obsolete entries remain until they are due.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Duration, Event)>>);

impl Timers {
    pub(super) fn set(&mut self, due: Duration, event: Event) {
        self.0.push(Reverse((due, event)));
    }

    /// Removes and returns a timer that is due.
    pub(super) fn due(&mut self, now: Duration) -> Option<(Duration, Event)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse(entry)| entry)
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.0.peek().map(|Reverse((due, _))| *due)
    }
}

/// Histogram of how late probes started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    counts: [u64; Self::BOUNDS.len() + 1],
}

impl Lateness {
    /// Upper bounds of the buckets in milliseconds; there is one more bucket above the last.
    pub const BOUNDS: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

    pub(super) fn record(&mut self, late: Duration) {
        let millis = late.as_micros().div_ceil(1000);
        let bucket = Self::BOUNDS
            .iter()
            .position(|bound| millis <= u128::from(*bound));
        self.counts[bucket.unwrap_or(Self::BOUNDS.len())] += 1;
    }

    /// Probes in each bucket of [`Self::BOUNDS`], and those above.
    pub const fn counts(&self) -> &[u64; 11] {
        &self.counts
    }

    /// The smallest bound, in milliseconds, that holds for this percentage of probes; `None` = no bound does, or there
    /// was no probe.
    pub fn quantile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.counts.iter().sum();
        let mut kept = 0;
        for (bound, count) in Self::BOUNDS.iter().zip(self.counts) {
            kept += count;
            if all > 0 && kept * 100 >= all * percent {
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
    fn lateness_quantiles() {
        let mut late = Lateness::default();
        assert_eq!(late.quantile(99), None);
        for _ in 0..99 {
            late.record(Duration::from_micros(1500));
        }
        late.record(Duration::from_secs(9));
        assert_eq!(late.quantile(99), Some(2));
        assert_eq!(late.quantile(100), None);
        assert_eq!(late.counts()[10], 1);
    }
}
