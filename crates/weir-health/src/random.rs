//! Generates random durations, so that probes do not all start at the same time.

use std::time::Duration;

use weir_model::SplitMix64;

/// A generator of random durations.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns a random duration in `0..limit`.
    pub(crate) fn below(&mut self, limit: Duration) -> Duration {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.0.below(nanos))
    }

    /// Returns `interval` plus or minus up to 5 %.
    pub(crate) fn jittered(&mut self, interval: Duration) -> Duration {
        interval - interval / 20 + self.below(interval / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_varies_within_five_percent() {
        let mut random = Random::new(1);
        let interval = Duration::from_secs(2);
        let intervals: Vec<Duration> = (0..1000).map(|_| random.jittered(interval)).collect();
        let (min, max) = (intervals.iter().min(), intervals.iter().max());
        assert!(min >= Some(&Duration::from_millis(1900)), "{min:?}");
        assert!(max <= Some(&Duration::from_millis(2100)), "{max:?}");
        assert!(
            max.zip(min)
                .is_some_and(|(max, min)| *max - *min > interval / 12)
        );
    }
}
