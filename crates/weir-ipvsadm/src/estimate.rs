//! Rate estimation as in the kernel (ip_vs_est.c): every two seconds the average moves a quarter of the way to the
//! rate of the last two seconds, in fixed point.

use crate::{Counters, Rates};

/// One estimated rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    last: u64,
    /// Scaled average.
    average: u64,
}

impl Estimate {
    fn step(&mut self, now: u64, scale: u32) {
        // Counted over two seconds, hence one bit less.
        let rate = now.saturating_sub(self.last) << (scale - 1);
        self.last = now;
        let change = (rate.cast_signed() - self.average.cast_signed()) >> 2;
        self.average = self.average.wrapping_add_signed(change);
    }

    const fn per_second(self, scale: u32) -> u64 {
        (self.average + (1 << (scale - 1)) - 1) >> scale
    }
}

/// Fractional bits for connections and packets, and for bytes.
const FINE: u32 = 10;
const COARSE: u32 = 5;

/// The rates of one server or service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimator {
    numbers: [Estimate; 5],
}

const SCALES: [u32; 5] = [FINE, FINE, FINE, COARSE, COARSE];

impl Estimator {
    /// Starts from existing totals.
    pub fn new(totals: Counters) -> Self {
        let numbers = columns(totals).map(|last| Estimate { last, average: 0 });
        Self { numbers }
    }

    /// Updates the estimate; call every two seconds.
    pub fn step(&mut self, totals: Counters) {
        let steps = self.numbers.iter_mut().zip(columns(totals)).zip(SCALES);
        for ((number, total), scale) in steps {
            number.step(total, scale);
        }
    }

    /// Returns the current rates.
    pub fn rates(&self) -> Rates {
        let [connections, packets_in, packets_out, bytes_in, bytes_out] =
            std::array::from_fn(|at| self.numbers[at].per_second(SCALES[at]));
        Rates {
            connections,
            packets_in,
            packets_out,
            bytes_in,
            bytes_out,
        }
    }

    /// Resets the average, as `-Z` does.
    pub fn zero(&mut self) {
        for number in &mut self.numbers {
            number.average = 0;
        }
    }
}

const fn columns(totals: Counters) -> [u64; 5] {
    [
        totals.connections,
        totals.packets_in,
        totals.packets_out,
        totals.bytes_in,
        totals.bytes_out,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_converges_to_steady_rate_and_decays() {
        let mut totals = Counters::default();
        let mut estimator = Estimator::new(totals);
        let mut seen = Vec::new();
        for step in 0..40 {
            if step < 20 {
                totals.connections += 200;
                totals.bytes_in += 20_000;
            }
            estimator.step(totals);
            seen.push((estimator.rates().connections, estimator.rates().bytes_in));
        }
        // A quarter of the way, then a quarter of the rest.
        assert_eq!(seen[..3], [(25, 2500), (44, 4375), (58, 5781)]);
        assert!((99..=100).contains(&seen[19].0), "{seen:?}");
        assert_eq!(seen[39].0, 0, "{seen:?}");
    }

    #[test]
    fn existing_totals_are_not_a_rate() {
        let totals = Counters {
            packets_in: 1 << 60,
            ..Counters::default()
        };
        let mut estimator = Estimator::new(totals);
        estimator.step(totals);
        assert_eq!(estimator.rates(), Rates::default());
    }
}
