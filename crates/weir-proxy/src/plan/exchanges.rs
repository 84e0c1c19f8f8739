//! Counts finished exchanges: responses, errors, durations. Each worker has its own counters; readers sum them up.
//!
//! Durations are in microseconds, measured with a clock that a worker reads once per wake-up. An exchange that begins
//! and ends within one wake-up has duration 0. Nothing here allocates, locks or makes a system call while requests are
//! served.

use std::sync::atomic::{AtomicU32, Ordering};

use super::counters::Count;
use super::detail::Details;
use super::rate_peaks::RatePeaks;
use crate::times::{
    BOUNDS_US, DurationHistogram, ErrorKind, ExchangeCounters, Quantiles, RecentDurations, Stage,
};

/// Half-life of recent durations, in microseconds: their counts are halved at this interval.
const HALF_LIFE_US: u64 = 60_000_000;
/// Age, in half-lives, at which recent durations are ignored.
const MAX_AGE_HALF_LIVES: u32 = 10;

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One count per upper bound, and one for longer durations; not cumulative.
    counts: [Count; BOUNDS_US.len() + 1],
    sum_us: Count,
    max_us: Count,
}

impl Histogram {
    #[inline]
    fn record(&self, us: u64) {
        let index = BOUNDS_US.iter().take_while(|bound| us > **bound).count();
        self.counts[index].add(1);
        self.sum_us.add(us);
        self.max_us.raise(us);
    }

    fn add_to(&self, sum: &mut DurationHistogram) {
        for (sum, count) in sum.counts.iter_mut().zip(&self.counts) {
            *sum += count.get();
        }
        sum.sum_us += self.sum_us.get();
        sum.max_us = sum.max_us.max(self.max_us.get());
    }
}

/// One worker's exchange counters for a service, route, pool or server.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Exchanges {
    ended: Count,
    /// Final responses to clients by status class, 1xx to 5xx.
    responses: [Count; 5],
    errors: [Count; ErrorKind::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
    /// Attempts on another server, and attempts on a new connection because the server had closed the idle one.
    pub(crate) redispatches: Count,
    pub(crate) repetitions: Count,
    /// When the last exchange ended, in microseconds on the worker clock.
    last_us: Count,
}

/// A finished exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FinishedExchange {
    /// Status of the response that the client received; 0 = none.
    pub(crate) status: u16,
    pub(crate) error: Option<ErrorKind>,
    /// Duration of each stage, in microseconds; `None` = the stage was not reached or was interrupted.
    pub(crate) stages: [Option<u32>; Stage::ALL.len()],
    /// When the exchange ended, in microseconds on the worker clock.
    pub(crate) at_us: u64,
}

impl Exchanges {
    #[inline]
    pub(crate) fn record(&self, finished: &FinishedExchange) {
        self.ended.add(1);
        self.last_us.raise(finished.at_us);
        let class = usize::from(finished.status / 100);
        if (1..=5).contains(&class) {
            self.responses[class - 1].add(1);
        }
        if let Some(kind) = finished.error {
            self.errors[kind as usize].add(1);
        }
        for (histogram, us) in self.stages.iter().zip(finished.stages) {
            if let Some(us) = us {
                histogram.record(u64::from(us));
            }
        }
    }

    fn add_to(&self, sum: &mut ExchangeCounters) {
        sum.ended += self.ended.get();
        for (sum, count) in sum.responses.iter_mut().zip(&self.responses) {
            *sum += count.get();
        }
        for (sum, count) in sum.errors.iter_mut().zip(&self.errors) {
            *sum += count.get();
        }
        for (sum, histogram) in sum.stages.iter_mut().zip(&self.stages) {
            histogram.add_to(sum);
        }
        sum.redispatches += self.redispatches.get();
        sum.repetitions += self.repetitions.get();
        sum.last_us = sum.last_us.max(self.last_us.get());
    }
}

/// A server's recent response times in one worker: a histogram with four buckets per doubling, whose counts are halved
/// every [`HALF_LIFE_US`].
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct RecentTimes {
    counts: [AtomicU32; RecentDurations::BUCKETS],
    /// Index of the half-life in which a duration was last recorded.
    period: AtomicU32,
}

impl Default for RecentTimes {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU32::new(0)),
            period: AtomicU32::new(0),
        }
    }
}

const fn period(now_us: u64) -> u32 {
    (now_us / HALF_LIFE_US) as u32
}

impl RecentTimes {
    /// Records a duration. Only the worker that owns the histogram may call this.
    #[inline]
    pub(crate) fn record(&self, us: u64, now_us: u64) {
        let current = period(now_us);
        let last = self.period.load(Ordering::Relaxed);
        if current != last {
            self.age(current.wrapping_sub(last));
            self.period.store(current, Ordering::Relaxed);
        }
        let count = &self.counts[RecentDurations::bucket(us)];
        count.store(
            count.load(Ordering::Relaxed).saturating_add(1),
            Ordering::Relaxed,
        );
    }

    #[cold]
    fn age(&self, periods: u32) {
        for count in &self.counts {
            let halved = count.load(Ordering::Relaxed).checked_shr(periods);
            count.store(halved.unwrap_or(0), Ordering::Relaxed);
        }
    }

    fn add_to(&self, sum: &mut RecentDurations, now_us: u64) {
        let age = period(now_us).wrapping_sub(self.period.load(Ordering::Relaxed));
        if age < MAX_AGE_HALF_LIVES {
            for (sum, count) in sum.counts.iter_mut().zip(&self.counts) {
                *sum += u64::from(count.load(Ordering::Relaxed) >> age);
            }
        }
    }
}

/// A value for each worker, and peaks over all workers.
#[derive(Debug)]
pub(crate) struct PerWorker<T> {
    values: Box<[T]>,
    /// For a service: the peak number of clients of all workers.
    pub(crate) peak: AtomicU32,
    /// For a service or a server: the peak rates.
    pub(crate) rates: RatePeaks,
}

impl<T: Default> PerWorker<T> {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            values: (0..workers).map(|_| T::default()).collect(),
            peak: AtomicU32::new(0),
            rates: RatePeaks::default(),
        }
    }

    /// Returns a worker's value.
    #[inline]
    pub(crate) fn of(&self, worker: usize) -> &T {
        &self.values[worker]
    }
}

impl PerWorker<Details> {
    pub(crate) fn sum(&self, counter: impl Fn(&Details) -> &Count) -> u64 {
        let counts = self.values.iter().map(|details| counter(details).get());
        // One worker may have counted the end of an interval before another counts its start.
        counts.fold(0, u64::wrapping_add).cast_signed().max(0) as u64
    }
}

impl PerWorker<Exchanges> {
    pub(crate) fn totals(&self) -> ExchangeCounters {
        let mut sum = ExchangeCounters::default();
        for exchanges in &self.values {
            exchanges.add_to(&mut sum);
        }
        sum
    }
}

impl PerWorker<RecentTimes> {
    pub(crate) fn quantiles(&self, now_us: u64) -> Option<Quantiles> {
        let mut sum = RecentDurations::default();
        for times in &self.values {
            times.add_to(&mut sum, now_us);
        }
        sum.quantiles()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_workers_are_summed() {
        let counters = PerWorker::<Exchanges>::new(2);
        let finished = FinishedExchange {
            status: 204,
            error: None,
            stages: [None, Some(600), Some(501), Some(40_000_000)],
            at_us: 7,
        };
        counters.of(0).record(&finished);
        counters.of(1).record(&FinishedExchange {
            status: 0,
            error: Some(ErrorKind::ClientAbort),
            stages: [None; 4],
            at_us: 9,
        });
        counters.of(1).record(&finished);
        let results = counters.totals();
        assert_eq!(results.ended, 3);
        assert_eq!(results.responses, [0, 2, 0, 0, 0]);
        assert_eq!(results.errors[ErrorKind::ClientAbort as usize], 1);
        let total = &results.stages[Stage::Total as usize];
        assert_eq!(total.counts[BOUNDS_US.len()], 2, "above every bound");
        assert_eq!(total.sum_us, 80_000_000);
        assert_eq!((total.max_us, results.last_us), (40_000_000, 9));
        assert_eq!(results.stages[Stage::Queue as usize].count(), 0);
        assert_eq!(results.stages[Stage::Connect as usize].counts[1], 2);
    }

    #[test]
    fn bucket_upper_bounds_are_inclusive() {
        let histogram = Histogram::default();
        for bound in BOUNDS_US {
            histogram.record(bound);
        }
        let mut sum = DurationHistogram::default();
        histogram.add_to(&mut sum);
        let mut expected = [1; BOUNDS_US.len() + 1];
        expected[BOUNDS_US.len()] = 0;
        assert_eq!(sum.counts, expected);
    }

    #[test]
    fn quantiles_forget_old_durations() {
        let recent_times = PerWorker::<RecentTimes>::new(1);
        let minute = |n: u64| n * HALF_LIFE_US;
        assert!(recent_times.quantiles(0).is_none());
        for _ in 0..1000 {
            recent_times.of(0).record(100_000, minute(1));
        }
        let slow_quantiles = recent_times.quantiles(minute(1)).unwrap();
        assert_eq!(slow_quantiles.samples, 1000);
        assert!(
            (75_000..125_000).contains(&slow_quantiles.p50_us),
            "{slow_quantiles:?}"
        );
        for _ in 0..1000 {
            recent_times.of(0).record(1_000, minute(6));
        }
        let fast_quantiles = recent_times.quantiles(minute(6)).unwrap();
        assert_eq!(
            fast_quantiles.samples, 1031,
            "1000 now, and 1000 / 32 from five half-lives ago"
        );
        assert!(
            (750..1_250).contains(&fast_quantiles.p50_us),
            "{fast_quantiles:?}"
        );
        assert!(
            fast_quantiles.p99_us > 75_000,
            "about 3% are slow: {fast_quantiles:?}"
        );
        assert!(
            recent_times.quantiles(minute(17)).is_none(),
            "no recent requests"
        );
    }
}
