//! Defines the counters and durations of exchanges as plain numbers, which the control thread reads.

/// Upper bounds of the histogram buckets, in microseconds.
pub const BOUNDS_US: [u64; 11] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 250_000, 1_000_000, 5_000_000, 30_000_000,
];

/// A stage of an exchange whose durations are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// In a pool's queue. Requests that never waited are not recorded.
    Queue,
    /// Connecting to a server, including TLS. Requests that reuse an idle connection are not recorded.
    Connect,
    /// From when the server connection is ready to the first byte of the response.
    Response,
    /// From receipt of the complete request head to the end of the response. For a TCP service, the duration of the
    /// connection.
    Total,
}

impl Stage {
    /// All stages, in the order of their discriminants.
    pub const ALL: [Self; 4] = [Self::Queue, Self::Connect, Self::Response, Self::Total];

    /// Returns the name in metrics and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Connect => "connect",
            Self::Response => "response",
            Self::Total => "total",
        }
    }
}

/// Why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The client closed its connection.
    ClientAbort,
    /// The client was too slow.
    ClientTimeout,
    /// The request was rejected: invalid, too large, or over a limit.
    Rejected,
    /// The request waited too long for a server.
    Queue,
    /// No server was usable, or connecting failed.
    Connect,
    /// The server closed the connection too early, or its response was invalid.
    Response,
    /// The server was too slow.
    ServerTimeout,
}

impl ErrorKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 7] = [
        Self::ClientAbort,
        Self::ClientTimeout,
        Self::Rejected,
        Self::Queue,
        Self::Connect,
        Self::Response,
        Self::ServerTimeout,
    ];

    /// Returns the name in metrics and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientAbort => "client_abort",
            Self::ClientTimeout => "client_timeout",
            Self::Rejected => "rejected",
            Self::Queue => "queue",
            Self::Connect => "connect",
            Self::Response => "response",
            Self::ServerTimeout => "server_timeout",
        }
    }

    /// Returns who caused the error: `client`, `server`, or `proxy` for a lack of capacity.
    pub const fn fault(self) -> &'static str {
        match self {
            Self::ClientAbort | Self::ClientTimeout | Self::Rejected => "client",
            Self::Queue => "proxy",
            Self::Connect | Self::Response | Self::ServerTimeout => "server",
        }
    }

    /// Returns the kind that corresponds to HAProxy's termination flags in the access log; `None` = no error.
    pub(crate) const fn from_termination_flags(flags: [u8; 2]) -> Option<Self> {
        Some(match flags {
            [b'C', _] => Self::ClientAbort,
            [b'c', _] => Self::ClientTimeout,
            [b'P', _] => Self::Rejected,
            [_, b'Q'] => Self::Queue,
            [b'S', b'C'] | [b's', b'C'] | [b'R', _] => Self::Connect,
            [b'S', _] => Self::Response,
            [b's', _] => Self::ServerTimeout,
            _ => return None,
        })
    }
}

/// A histogram of durations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// One count for each of [`BOUNDS_US`], and one for longer durations; not cumulative.
    pub counts: [u64; BOUNDS_US.len() + 1],
    /// Sum of all durations, in microseconds.
    pub sum_us: u64,
    /// Longest duration, in microseconds.
    pub max_us: u64,
}

impl DurationHistogram {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Exchange counters for a service, route, pool or server since the process started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExchangeCounters {
    /// Requests that have ended, or connections of a TCP service.
    pub ended: u64,
    /// Responses to clients by status class, 1xx to 5xx. Interim responses are not counted, except 101.
    pub responses: [u64; 5],
    /// Errors, in the order of [`ErrorKind::ALL`].
    pub errors: [u64; ErrorKind::ALL.len()],
    /// Durations, in the order of [`Stage::ALL`].
    pub stages: [DurationHistogram; Stage::ALL.len()],
    /// Attempts on another server after a failure.
    pub redispatches: u64,
    /// Requests that were sent again on a new connection because the server had closed the idle one.
    pub repetitions: u64,
    /// When the last exchange ended, in microseconds on the monotonic clock; 0 = none has ended.
    pub last_us: u64,
}

/// Quantiles of a server's recent response times. The weight of a duration is halved every minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantiles {
    /// Median in microseconds, accurate to within 12 %.
    pub p50_us: u64,
    /// 90th percentile in microseconds.
    pub p90_us: u64,
    /// 99th percentile in microseconds.
    pub p99_us: u64,
    /// Mean in microseconds.
    pub mean_us: u64,
    /// Total weight of the durations.
    pub samples: u64,
}

/// Recent durations from all workers.
#[derive(Debug)]
pub(crate) struct RecentDurations {
    pub(crate) counts: [u64; Self::BUCKETS],
}

impl Default for RecentDurations {
    fn default() -> Self {
        Self {
            counts: [0; Self::BUCKETS],
        }
    }
}

impl RecentDurations {
    /// Number of buckets: one below 64 µs, four per doubling up to 2^25 µs (34 s), and one for longer durations.
    pub(crate) const BUCKETS: usize = 1 + 4 * (Self::LAST_BIT - Self::FIRST_BIT) as usize + 1;
    const FIRST_BIT: u32 = 6;
    const LAST_BIT: u32 = 25;

    /// Returns the index of the bucket for a duration.
    #[inline]
    pub(crate) const fn bucket(us: u64) -> usize {
        if us < 1 << Self::FIRST_BIT {
            return 0;
        }
        if us >= 1 << Self::LAST_BIT {
            return Self::BUCKETS - 1;
        }
        let bit = us.ilog2();
        let quarter = (us >> (bit - 2)) & 3;
        1 + 4 * (bit - Self::FIRST_BIT) as usize + quarter as usize
    }

    /// Returns the lower bound of a bucket, in microseconds.
    const fn lower_bound_us(bucket: usize) -> u64 {
        if bucket == 0 {
            return 0;
        }
        let bit = Self::FIRST_BIT + (bucket as u32 - 1) / 4;
        let quarter = (bucket as u64 - 1) % 4;
        (4 + quarter) << (bit - 2)
    }

    pub(crate) fn quantiles(&self) -> Option<Quantiles> {
        let samples: u64 = self.counts.iter().sum();
        if samples == 0 {
            return None;
        }
        let sum: f64 = (0..Self::BUCKETS)
            .map(|index| self.counts[index] as f64 * Self::midpoint_us(index))
            .sum();
        let quantile = |share: f64| self.quantile((share * samples as f64).max(1.0)) as u64;
        Some(Quantiles {
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            mean_us: (sum / samples as f64) as u64,
            samples,
        })
    }

    fn midpoint_us(bucket: usize) -> f64 {
        let upper = Self::lower_bound_us((bucket + 1).min(Self::BUCKETS - 1));
        (Self::lower_bound_us(bucket) + upper) as f64 / 2.0
    }

    /// Returns the duration at `rank`, in microseconds, interpolated within its bucket.
    fn quantile(&self, rank: f64) -> f64 {
        let mut cumulative = 0.0;
        for (index, count) in self.counts.iter().enumerate() {
            let count = *count as f64;
            if cumulative + count >= rank {
                let lower = Self::lower_bound_us(index) as f64;
                let upper = Self::lower_bound_us((index + 1).min(Self::BUCKETS - 1)) as f64;
                return lower + (upper - lower) * (rank - cumulative) / count;
            }
            cumulative += count;
        }
        Self::lower_bound_us(Self::BUCKETS - 1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous() {
        for bucket in 0..RecentDurations::BUCKETS {
            assert_eq!(
                RecentDurations::bucket(RecentDurations::lower_bound_us(bucket)),
                bucket
            );
            if bucket > 0 {
                assert_eq!(
                    RecentDurations::bucket(RecentDurations::lower_bound_us(bucket) - 1),
                    bucket - 1
                );
            }
        }
        assert_eq!(
            RecentDurations::bucket(u64::MAX),
            RecentDurations::BUCKETS - 1
        );
    }

    #[test]
    fn quantiles_are_within_12_percent() {
        let mut recent = RecentDurations::default();
        for us in 1..=100_000 {
            recent.counts[RecentDurations::bucket(us)] += 1;
        }
        let found = recent.quantiles().unwrap();
        assert_eq!(found.samples, 100_000);
        for (found, exact) in [
            (found.p50_us, 50_000.0),
            (found.p90_us, 90_000.0),
            (found.p99_us, 99_000.0),
            (found.mean_us, 50_000.0),
        ] {
            assert!(
                (found as f64 / exact - 1.0).abs() < 0.12,
                "{found} is not within 12 % of {exact}"
            );
        }
    }

    #[test]
    fn termination_flags_determine_error_kind() {
        for (flags, kind) in [
            (*b"--", None),
            (*b"LR", None),
            (*b"CD", Some(ErrorKind::ClientAbort)),
            (*b"cR", Some(ErrorKind::ClientTimeout)),
            (*b"PR", Some(ErrorKind::Rejected)),
            (*b"sQ", Some(ErrorKind::Queue)),
            (*b"SC", Some(ErrorKind::Connect)),
            (*b"sC", Some(ErrorKind::Connect)),
            (*b"SH", Some(ErrorKind::Response)),
            (*b"SD", Some(ErrorKind::Response)),
            (*b"sH", Some(ErrorKind::ServerTimeout)),
            (*b"sD", Some(ErrorKind::ServerTimeout)),
        ] {
            assert_eq!(ErrorKind::from_termination_flags(flags), kind);
        }
        assert_eq!(
            ErrorKind::from_termination_flags(*b"sC").unwrap().fault(),
            "server"
        );
    }
}
