//! Provides pseudo-random numbers and bit mixing: SplitMix64 (Steele, Lea and Flood, 2014).
//!
//! The numbers are predictable and therefore not suitable for cryptography. The results of the mixing functions must
//! not change, because tables and choices that survive an upgrade depend on them.

/// 2^64 divided by the golden ratio: the increment of SplitMix64 and a multiplier for Fibonacci hashing.
pub const GOLDEN_64: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator of pseudo-random numbers. The same seed yields the same numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates a generator. Any seed is suitable.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, uniform over all 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        let number = mix_64(self.0);
        self.0 = self.0.wrapping_add(GOLDEN_64);
        number
    }

    /// Returns the next number, uniform over 32 bits.
    pub const fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns a number in `0..end`; 0 if `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.next_u64() as u128 * end as u128) >> 64) as u64
    }
}

/// Returns the result of one step of SplitMix64. Every bit of `value` affects every bit of the result. There is no key,
/// so all directors build the same tables.
#[must_use]
pub const fn mix_64(value: u64) -> u64 {
    finalize_64(value.wrapping_add(GOLDEN_64))
}

/// Applies the finalizer of SplitMix64, which is [`mix_64`] without the increment. It maps 0 to 0.
#[must_use]
pub const fn finalize_64(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 0, as published with the generator.
    const OUTPUTS_FOR_SEED_0: [u64; 3] = [
        0xe220_a839_7b1d_cdaf,
        0x6e78_9e6a_a1b9_65f4,
        0x06c4_5d18_8009_454f,
    ];

    #[test]
    fn generator_matches_published_outputs() {
        let mut random = SplitMix64::new(0);
        assert_eq!(
            OUTPUTS_FOR_SEED_0.map(|_| random.next_u64()),
            OUTPUTS_FOR_SEED_0
        );
        let mut random = SplitMix64::new(1_234_567);
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(published.map(|_| random.next_u64()), published);
    }

    #[test]
    fn mixing_matches_published_outputs() {
        let inputs = [0, GOLDEN_64, GOLDEN_64.wrapping_mul(2)];
        assert_eq!(inputs.map(mix_64), OUTPUTS_FOR_SEED_0);
        assert_eq!(
            inputs.map(|value| finalize_64(value.wrapping_add(GOLDEN_64))),
            OUTPUTS_FOR_SEED_0
        );
        assert_eq!(finalize_64(0), 0);
    }

    #[test]
    fn smaller_draws_use_the_upper_bits() {
        let mut random = SplitMix64::new(0);
        assert_eq!(random.next_u32(), 0xe220_a839);
        assert_eq!(random.below(16), 0x6);
        assert_eq!(random.below(0), 0);
    }
}
