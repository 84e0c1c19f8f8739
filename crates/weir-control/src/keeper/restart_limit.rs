//! Limits how often the keeper restarts a daemon that crashes repeatedly after it has served for a while.

use std::time::{Duration, Instant};

/// Maximum number of restarts without a pause.
const BURST: u32 = 100;
/// Interval at which one more restart becomes available, and the pause if none is available.
const REFILL_INTERVAL: Duration = Duration::from_secs(1);

/// A token bucket of restarts.
#[derive(Debug)]
pub(super) struct RestartLimit {
    available: u32,
    /// The time up to which refills have been added to `available`.
    counted_until: Instant,
}

impl RestartLimit {
    /// Creates a full bucket.
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            available: BURST,
            counted_until: now,
        }
    }

    /// Takes one restart. Returns the pause before it.
    pub(super) fn pause(&mut self, now: Instant) -> Duration {
        let seconds = now.saturating_duration_since(self.counted_until).as_secs();
        let refills = u32::try_from(seconds).unwrap_or(BURST);
        self.counted_until += REFILL_INTERVAL * refills;
        self.available = self.available.saturating_add(refills).min(BURST);
        match self.available.checked_sub(1) {
            Some(available) => {
                self.available = available;
                Duration::ZERO
            }
            None => {
                // Use the restart that becomes available during the pause.
                self.counted_until += REFILL_INTERVAL;
                REFILL_INTERVAL
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_after_repeated_crashes_are_limited_to_one_per_second() {
        let begin = Instant::now();
        let mut restart_limit = RestartLimit::new(begin);
        let (mut now, mut restarts) = (begin, 0);
        // The daemon runs for 300 ms each time, too long for an early crash.
        while now < begin + Duration::from_mins(10) {
            now += Duration::from_millis(300) + restart_limit.pause(now);
            restarts += 1;
        }
        assert!((600..=720).contains(&restarts), "{restarts}");
        // After a day, the bucket is full again.
        now += Duration::from_hours(24);
        let free = (0..2 * BURST).take_while(|_| restart_limit.pause(now).is_zero());
        assert_eq!(free.count(), BURST as usize);
    }

    #[test]
    fn one_crash_per_second_causes_no_pause() {
        let begin = Instant::now();
        let mut restart_limit = RestartLimit::new(begin);
        for second in 0..1_000 {
            let now = begin + Duration::from_secs(second);
            assert!(restart_limit.pause(now).is_zero(), "{second}");
        }
    }
}
