//! Pseudo-random numbers for jitter.

use std::time::Duration;

/// splitmix64 (Steele, Lea and Flood, 2014): enough for jitter, not for cryptography.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A duration in `0..most`.
    pub(crate) fn below(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let scaled = (u128::from(self.next()) * u128::from(nanos)) >> 64;
        Duration::from_nanos(u64::try_from(scaled).unwrap_or(nanos))
    }

    /// `interval` plus or minus 5 %.
    pub(crate) fn around(&mut self, interval: Duration) -> Duration {
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
        let drawn: Vec<Duration> = (0..1000).map(|_| random.around(interval)).collect();
        let (least, most) = (drawn.iter().min(), drawn.iter().max());
        assert!(least >= Some(&Duration::from_millis(1900)), "{least:?}");
        assert!(most <= Some(&Duration::from_millis(2100)), "{most:?}");
        assert!(
            most.zip(least)
                .is_some_and(|(most, least)| *most - *least > interval / 12)
        );
    }
}
