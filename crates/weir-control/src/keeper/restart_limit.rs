//! Limits the restart rate of a daemon that crashes repeatedly, however long it serves each time.

use std::time::{Duration, Instant};

/// Restarts without a pause.
const BURST: u32 = 100;
/// One more restart is available after this time; it is the pause when none is.
const REFILL: Duration = Duration::from_secs(1);

/// A token bucket of restarts.
#[derive(Debug)]
pub(super) struct RestartLimit {
    left: u32,
    /// Time up to which refills are counted in `left`.
    counted: Instant,
}

impl RestartLimit {
    /// A full bucket.
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            counted: now,
        }
    }

    /// Takes one restart; returns how long to wait for it.
    pub(super) fn pause(&mut self, now: Instant) -> Duration {
        let seconds = now.saturating_duration_since(self.counted).as_secs();
        let earned = u32::try_from(seconds).unwrap_or(BURST);
        self.counted += REFILL * earned;
        self.left = self.left.saturating_add(earned).min(BURST);
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Duration::ZERO
            }
            None => {
                // The restart that becomes available meanwhile is taken.
                self.counted += REFILL;
                REFILL
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_crashes_are_limited_to_one_restart_per_second() {
        let begin = Instant::now();
        let mut restart_limit = RestartLimit::new(begin);
        let (mut now, mut restarts) = (begin, 0);
        // It lives for 300 ms each time, longer than an early crash.
        while now < begin + Duration::from_mins(10) {
            now += Duration::from_millis(300) + restart_limit.pause(now);
            restarts += 1;
        }
        assert!((600..=720).contains(&restarts), "{restarts}");
        // After a day the bucket is full again.
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
