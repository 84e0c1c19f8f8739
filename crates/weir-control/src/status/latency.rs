//! Describes a server's latency in the status document.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_latency::{QUANTILE_MIN_US, Summary};
use weir_proxy::times::Quantiles;

/// A server's latency: the time from the last packet of a request to the first packet of its response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean. At layer 4, it covers the last 30 to 60 seconds. In the proxy, the weight of each duration
    /// halves every minute.
    pub mean_ms: Milliseconds,
    /// Median.
    pub p50_ms: Milliseconds,
    /// 90th percentile.
    pub p90_ms: Milliseconds,
    /// 99th percentile.
    pub p99_ms: Milliseconds,
    /// Number of samples: at layer 4, since the server was added; in the proxy, the sum of their weights.
    pub samples: u64,
    /// The method of measurement: `measured`, `timestamps` or `gaps`.
    pub method: String,
}

/// A time in microseconds, written in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milliseconds(pub i64);

impl Milliseconds {
    fn from_ms(ms: f64) -> Self {
        Self((ms * 1_000.0).round() as i64)
    }

    fn as_ms(self) -> f64 {
        self.0 as f64 / 1_000.0
    }
}

/// Formats a layer 4 latency. The value zero means that the latency is below the resolution of the statistics.
impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ..=0 => write!(f, "<{:.3}", QUANTILE_MIN_US / 1_000.0),
            _ => write!(f, "{:.3}", self.as_ms()),
        }
    }
}

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_ms())
    }
}

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::from_ms)
    }
}

impl From<&Summary> for Latency {
    fn from(summary: &Summary) -> Self {
        Self {
            mean_ms: Milliseconds::from_ms(summary.mean_ms),
            p50_ms: Milliseconds::from_ms(summary.p50_ms),
            p90_ms: Milliseconds::from_ms(summary.p90_ms),
            p99_ms: Milliseconds::from_ms(summary.p99_ms),
            samples: summary.samples,
            method: summary.method.as_str().to_owned(),
        }
    }
}

impl From<&Quantiles> for Latency {
    fn from(quantiles: &Quantiles) -> Self {
        let from_us = |us: u64| Milliseconds(us.cast_signed());
        Self {
            mean_ms: from_us(quantiles.mean_us),
            p50_ms: from_us(quantiles.p50_us),
            p90_ms: from_us(quantiles.p90_us),
            p99_ms: from_us(quantiles.p99_us),
            samples: quantiles.samples,
            method: "measured".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_shown_as_below_the_resolution() {
        let text = |us| Milliseconds(us).to_string();
        assert_eq!([0, 1, 2_250].map(text), ["<0.016", "0.001", "2.250"]);
        let json = serde_json::to_string(&Milliseconds(0)).expect("write JSON");
        assert_eq!(json, "0.0");
    }
}
