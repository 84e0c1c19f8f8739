//! Estimates rates as the kernel does (ip_vs_est.c).
//!
//! Every two seconds, the average moves a quarter of the way toward the rate of the last two seconds. The arithmetic is
//! fixed-point.

use crate::{Counters, Rates};

/// The estimate of one rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The total at the last update.
    last_total: u64,
    /// Average rate in fixed-point format.
    average: u64,
}

impl Estimate {
    fn step(&mut self, total: u64, scale: u32) {
        // The difference covers two seconds, so it is shifted by one bit less.
        let rate = total.saturating_sub(self.last_total) << (scale - 1);
        self.last_total = total;
        let change = (rate.cast_signed() - self.average.cast_signed()) >> 2;
        self.average = self.average.wrapping_add_signed(change);
    }

    const fn per_second(self, scale: u32) -> u64 {
        (self.average + (1 << (scale - 1)) - 1) >> scale
    }
}

/// Fractional bits of connection and packet rates.
const PACKET_SCALE: u32 = 10;
/// Fractional bits of byte rates.
const BYTE_SCALE: u32 = 5;

/// Estimates the rates of a server or service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimator {
    estimates: [Estimate; 5],
}

const SCALES: [u32; 5] = [
    PACKET_SCALE,
    PACKET_SCALE,
    PACKET_SCALE,
    BYTE_SCALE,
    BYTE_SCALE,
];

impl Estimator {
    /// Creates an estimator. Traffic before this call, `totals`, does not count toward the rates.
    pub fn new(totals: Counters) -> Self {
        let estimates = columns(totals).map(|last_total| Estimate {
            last_total,
            average: 0,
        });
        Self { estimates }
    }

    /// Updates the estimates. Must be called every two seconds.
    pub fn step(&mut self, totals: Counters) {
        let steps = self.estimates.iter_mut().zip(columns(totals)).zip(SCALES);
        for ((estimate, total), scale) in steps {
            estimate.step(total, scale);
        }
    }

    /// Returns the current rates.
    pub fn rates(&self) -> Rates {
        let [connections, packets_in, packets_out, bytes_in, bytes_out] =
            std::array::from_fn(|index| self.estimates[index].per_second(SCALES[index]));
        Rates {
            connections,
            packets_in,
            packets_out,
            bytes_in,
            bytes_out,
        }
    }

    /// Resets the averages, as `-Z` does.
    pub fn zero(&mut self) {
        for estimate in &mut self.estimates {
            estimate.average = 0;
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
        let mut rates = Vec::new();
        for step in 0..40 {
            if step < 20 {
                totals.connections += 200;
                totals.bytes_in += 20_000;
            }
            estimator.step(totals);
            rates.push((estimator.rates().connections, estimator.rates().bytes_in));
        }
        // The first update covers a quarter of the distance, the second a quarter of the remaining distance.
        assert_eq!(rates[..3], [(25, 2500), (44, 4375), (58, 5781)]);
        assert!((99..=100).contains(&rates[19].0), "{rates:?}");
        assert_eq!(rates[39].0, 0, "{rates:?}");
    }

    #[test]
    fn initial_totals_do_not_count_toward_rates() {
        let totals = Counters {
            packets_in: 1 << 60,
            ..Counters::default()
        };
        let mut estimator = Estimator::new(totals);
        estimator.step(totals);
        assert_eq!(estimator.rates(), Rates::default());
    }

    /// The kernel shows `(average + 0x1ff) >> 10` and `(average + 0xf) >> 5`.
    #[test]
    fn half_of_a_packet_or_byte_is_rounded_down() {
        for (scale, average, expected) in [
            (PACKET_SCALE, 512, 0),
            (PACKET_SCALE, 513, 1),
            (PACKET_SCALE, 1536, 1),
            (PACKET_SCALE, 1537, 2),
            (BYTE_SCALE, 16, 0),
            (BYTE_SCALE, 17, 1),
        ] {
            let estimate = Estimate {
                last_total: 0,
                average,
            };
            assert_eq!(estimate.per_second(scale), expected, "{average} {scale}");
        }
    }

    #[test]
    fn zero_resets_rates_but_not_totals() {
        let mut totals = Counters::default();
        let mut estimator = Estimator::new(totals);
        totals.packets_out = 4000;
        estimator.step(totals);
        assert!(estimator.rates().packets_out > 0);
        estimator.zero();
        assert_eq!(estimator.rates(), Rates::default());
        estimator.step(totals);
        assert_eq!(estimator.rates(), Rates::default(), "no new packets");
    }
}
