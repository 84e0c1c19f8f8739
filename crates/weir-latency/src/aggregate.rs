//! Computes a server's latency from samples: a moving average for the scheduler, and a histogram for the status.

/// The method used to measure a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Method {
    /// From the server's TCP timestamps.
    Timestamps,
    /// From the times between packets.
    Gaps,
    /// From the times that local clients took to connect.
    Connect,
}

impl Method {
    /// Returns the text that `weir status` shows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timestamps => "timestamps",
            Self::Gaps => "gaps",
            Self::Connect => "measured",
        }
    }
}

/// Number of buckets per doubling of the latency: each bucket is 4.4 % wide.
const BUCKETS_PER_OCTAVE: usize = 16;
/// Lower limit of the first bucket, in microseconds. Smaller and negative samples are counted separately, and quantiles
/// below this limit are zero.
pub const QUANTILE_MIN_US: f64 = 16.0;
/// Number of buckets in the histogram, which ranges from 16 µs to 67 s.
const BUCKETS: usize = 22 * BUCKETS_PER_OCTAVE;
/// Length of a window in nanoseconds; the histogram covers one to two windows.
const WINDOW_NS: u64 = 30_000_000_000;
/// The average is representative for this many nanoseconds after the last sample.
pub const FRESH_NS: u64 = 5_000_000_000;

/// Weight of a sample in the moving average. With this weight, the average covers about 130 samples, which reduces the
/// noise of a clock with a resolution of 1 ms to 0.04 ms.
const AVERAGE_GAIN: f64 = 1.0 / 64.0;
/// Weight of a sample in the average of recent samples, which shows whether the latency is changing.
const RECENT_GAIN: f64 = 1.0 / 8.0;
/// Differences between the averages below this number of microseconds are noise: the limit is three standard deviations
/// at a clock resolution of 1 ms.
const NOISE_US: f64 = 500.0;
/// The same limit in mean absolute deviations of the samples: 4.5 standard deviations of the average of recent samples.
const NOISE_DEVIATIONS: f64 = 1.5;

#[derive(Clone, Debug)]
struct Window {
    buckets: Vec<u32>,
    below: u32,
    count: u64,
    sum_us: f64,
}

impl Window {
    fn new() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            below: 0,
            count: 0,
            sum_us: 0.0,
        }
    }

    fn add(&mut self, us: f64) {
        self.count += 1;
        self.sum_us += us;
        if us < QUANTILE_MIN_US {
            self.below += 1;
            return;
        }
        let bucket = ((us / QUANTILE_MIN_US).log2() * BUCKETS_PER_OCTAVE as f64) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
    }
}

/// Statistics for one server in one service, from the samples of one method.
#[derive(Clone, Debug)]
pub struct Statistics {
    method: Method,
    average_us: f64,
    recent_us: f64,
    deviation_us: f64,
    last_ns: u64,
    total: u64,
    rotated_ns: u64,
    current: Window,
    previous: Window,
}

/// The values that the status shows.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// Arithmetic mean in milliseconds. Zero if the mean is negative, because samples can be negative.
    pub mean_ms: f64,
    /// Median in milliseconds.
    pub p50_ms: f64,
    /// 90th percentile in milliseconds.
    pub p90_ms: f64,
    /// 99th percentile in milliseconds.
    pub p99_ms: f64,
    /// Number of samples since the server was added.
    pub samples: u64,
    /// The method used to measure the samples.
    pub method: Method,
}

impl Statistics {
    /// Creates statistics without samples.
    #[must_use]
    pub fn new(method: Method) -> Self {
        Self {
            method,
            average_us: 0.0,
            recent_us: 0.0,
            deviation_us: 0.0,
            last_ns: 0,
            total: 0,
            rotated_ns: 0,
            current: Window::new(),
            previous: Window::new(),
        }
    }

    /// Adds the samples of one interval, in nanoseconds.
    pub fn add(&mut self, samples: &[i64], now_ns: u64) {
        if samples.is_empty() {
            return;
        }
        self.rotate(now_ns);
        for ns in samples {
            let us = *ns as f64 / 1_000.0;
            self.current.add(us);
            self.total += 1;
            self.update_averages(us);
        }
        self.last_ns = now_ns;
    }

    /// Updates the averages. The first samples have equal weights; afterwards, the weight of old samples decreases
    /// exponentially. If the latency has changed, the average of recent samples replaces the other average.
    fn update_averages(&mut self, us: f64) {
        let equal_weight = 1.0 / self.total as f64;
        if self.total > 1 {
            // A change in the latency is not noise, so its contribution is limited.
            let deviation = (us - self.recent_us).abs();
            let deviation = deviation.min(NOISE_US.max(self.deviation_us * 4.0));
            self.deviation_us += AVERAGE_GAIN.max(equal_weight) * (deviation - self.deviation_us);
        }
        self.average_us += AVERAGE_GAIN.max(equal_weight) * (us - self.average_us);
        self.recent_us += RECENT_GAIN.max(equal_weight) * (us - self.recent_us);
        let difference = (self.recent_us - self.average_us).abs();
        let noise = NOISE_US.max(self.deviation_us * NOISE_DEVIATIONS);
        if difference > noise.max(self.average_us / 2.0) {
            self.average_us = self.recent_us;
        }
    }

    fn rotate(&mut self, now_ns: u64) {
        if self.rotated_ns == 0 {
            self.rotated_ns = now_ns;
        }
        let since = now_ns.saturating_sub(self.rotated_ns);
        if since < WINDOW_NS {
            return;
        }
        let full = std::mem::replace(&mut self.current, Window::new());
        self.previous = if since < 2 * WINDOW_NS {
            full
        } else {
            Window::new()
        };
        self.rotated_ns = now_ns;
    }

    /// Returns the moving average in microseconds if there are recent samples.
    #[must_use]
    pub fn average_us(&self, now_ns: u64) -> Option<f64> {
        (self.total > 0 && now_ns.saturating_sub(self.last_ns) < FRESH_NS)
            .then_some(self.average_us)
    }

    /// Returns the number of samples.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the time of the last sample in nanoseconds; 0 = none.
    #[must_use]
    pub const fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Returns the values that the status shows; `None` without samples.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        let count = self.current.count + self.previous.count;
        if count == 0 {
            return None;
        }
        let mean_us = (self.current.sum_us + self.previous.sum_us) / count as f64;
        Some(Summary {
            mean_ms: mean_us.max(0.0) / 1_000.0,
            p50_ms: self.quantile_us(0.50) / 1_000.0,
            p90_ms: self.quantile_us(0.90) / 1_000.0,
            p99_ms: self.quantile_us(0.99) / 1_000.0,
            samples: self.total,
            method: self.method,
        })
    }

    /// Returns a quantile in microseconds. Interpolates within the bucket that contains the rank.
    fn quantile_us(&self, quantile: f64) -> f64 {
        let count = self.current.count + self.previous.count;
        let rank = quantile * count as f64;
        let mut cumulative = f64::from(self.current.below + self.previous.below);
        if rank <= cumulative {
            return 0.0;
        }
        for bucket in 0..BUCKETS {
            let bucket_count =
                f64::from(self.current.buckets[bucket] + self.previous.buckets[bucket]);
            if bucket_count > 0.0 && cumulative + bucket_count >= rank {
                let position = bucket as f64 + (rank - cumulative) / bucket_count;
                return QUANTILE_MIN_US * (position / BUCKETS_PER_OCTAVE as f64).exp2();
            }
            cumulative += bucket_count;
        }
        // Not reached: the rank is at most the number of samples.
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests;
