//! The latency of a server in the status document.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_latency::Summary;

/// A server's latency: from the last packet of a request to the first packet of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean of the last 30 to 60 seconds.
    pub mean_ms: Milliseconds,
    /// Median.
    pub p50_ms: Milliseconds,
    /// 90th percentile.
    pub p90_ms: Milliseconds,
    /// 99th percentile.
    pub p99_ms: Milliseconds,
    /// Samples since the server was added.
    pub samples: u64,
    /// `measured`, `timestamps` or `gaps`.
    pub method: String,
}

/// A time in microseconds, written as milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milliseconds(pub i64);

impl Milliseconds {
    fn of(ms: f64) -> Self {
        Self((ms * 1_000.0).round() as i64)
    }

    fn as_ms(self) -> f64 {
        self.0 as f64 / 1_000.0
    }
}

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3}", self.as_ms())
    }
}

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_ms())
    }
}

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::of)
    }
}

impl From<&Summary> for Latency {
    fn from(summary: &Summary) -> Self {
        Self {
            mean_ms: Milliseconds::of(summary.mean_ms),
            p50_ms: Milliseconds::of(summary.p50_ms),
            p90_ms: Milliseconds::of(summary.p90_ms),
            p99_ms: Milliseconds::of(summary.p99_ms),
            samples: summary.samples,
            method: summary.method.as_str().to_owned(),
        }
    }
}
