//! Records the peak rates of connections and requests, from totals that the control thread samples once per second.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Minimum time between two samples, in milliseconds: rates over shorter intervals would be noise.
const INTERVAL_MS: u64 = 900;

/// Peak rates. Only the control thread writes them.
#[derive(Debug, Default)]
pub(crate) struct RatePeaks {
    /// Totals of connections and requests at the last sample.
    last_totals: [AtomicU64; 2],
    /// Time of the last sample; 0 = none.
    sampled_at_ms: AtomicU64,
    peaks: [AtomicU32; 2],
}

impl RatePeaks {
    /// Updates the peaks from the totals of connections and requests.
    pub(crate) fn sample(&self, totals: [u64; 2], now_ms: u64) {
        let last_ms = self.sampled_at_ms.load(Ordering::Relaxed);
        let elapsed = now_ms.saturating_sub(last_ms);
        if elapsed < INTERVAL_MS {
            return;
        }
        self.sampled_at_ms.store(now_ms, Ordering::Relaxed);
        for ((last, peak), total) in self.last_totals.iter().zip(&self.peaks).zip(totals) {
            let increase = total.saturating_sub(last.swap(total, Ordering::Relaxed));
            // The first sample has no predecessor to compare with.
            if last_ms > 0 {
                let rate = u32::try_from(increase * 1_000 / elapsed).unwrap_or(u32::MAX);
                peak.fetch_max(rate, Ordering::Relaxed);
            }
        }
    }

    /// Returns the peak numbers of connections and of requests, per second.
    pub(crate) fn get(&self) -> [u64; 2] {
        self.peaks
            .each_ref()
            .map(|peak| peak.load(Ordering::Relaxed).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_rate_between_two_samples_is_kept() {
        let rates = RatePeaks::default();
        rates.sample([1_000, 5_000], 10_000);
        assert_eq!(
            rates.get(),
            [0, 0],
            "totals of a previous process do not count as a rate"
        );
        rates.sample([1_050, 5_300], 11_000);
        assert_eq!(rates.get(), [50, 300]);
        rates.sample([9_000, 9_000], 11_100);
        assert_eq!(rates.get(), [50, 300], "too soon");
        rates.sample([9_050, 5_310], 13_000);
        assert_eq!(rates.get(), [4_000, 300]);
    }
}
