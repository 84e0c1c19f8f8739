//! Pseudo-random numbers.

/// xorshift64* (Marsaglia, 2003; Vigna, 2016): for choices whose prediction gains nothing, not for cryptography.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers. Seeds that differ only in the lowest bit are the same.
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number, uniform over all 32 bits.
    pub const fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}
