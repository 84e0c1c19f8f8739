//! Describes the results and durations of proxied exchanges in the status document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_proxy::times::{DurationHistogram, ErrorKind, ExchangeCounters, Stage};

/// The exchanges of a service, route, pool or server since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchanges {
    /// Number of completed requests; in a TCP service, number of completed connections.
    pub ended: u64,
    /// Number of responses by status class, 1xx to 5xx; of 1xx, only 101 is counted.
    pub responses: [u64; 5],
    /// Number of errors by kind; kinds that never occurred are omitted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// Number of retries on another server after a failure.
    pub redispatches: u64,
    /// Number of retries on a new connection because the server had closed the idle connection.
    pub repetitions: u64,
    /// Durations of the exchanges.
    pub times: Times,
}

/// Durations by stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Time in a pool's queue.
    pub queue: Time,
    /// Time to connect to a server.
    pub connect: Time,
    /// Time until the first byte of the response.
    pub response: Time,
    /// Time from receipt of the complete request head to the end of the response.
    pub total: Time,
}

/// Durations of one stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// Number of durations.
    pub count: u64,
    /// Sum in microseconds.
    pub sum_us: u64,
    /// The longest duration in microseconds.
    #[serde(default)]
    pub max_us: u64,
    /// Number of durations in each bucket (not cumulative). The last bucket is for durations above all bounds. Absent
    /// for servers, except with `metrics = "full"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<u64>,
}

/// The exchanges of a route or a pool of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedExchanges {
    /// The name of the pool, or the conditions and the action of the route.
    pub name: String,
    /// The exchanges.
    pub exchanges: Exchanges,
}

impl Exchanges {
    /// Converts the proxy's counters, with or without the buckets of the histograms.
    pub(super) fn new(results: &ExchangeCounters, buckets: bool) -> Self {
        let time = |stage: Stage| Time::new(&results.stages[stage as usize], buckets);
        let errors = ErrorKind::ALL
            .iter()
            .zip(results.errors)
            .filter(|(_, count)| *count > 0);
        Self {
            ended: results.ended,
            responses: results.responses,
            errors: errors
                .map(|(kind, count)| (kind.as_str().to_owned(), count))
                .collect(),
            redispatches: results.redispatches,
            repetitions: results.repetitions,
            times: Times {
                queue: time(Stage::Queue),
                connect: time(Stage::Connect),
                response: time(Stage::Response),
                total: time(Stage::Total),
            },
        }
    }
}

impl Times {
    /// Returns whether the buckets of the histograms are included.
    pub(crate) const fn has_buckets(&self) -> bool {
        !self.total.buckets.is_empty()
    }

    /// Returns the durations of a stage.
    pub const fn of(&self, stage: Stage) -> &Time {
        match stage {
            Stage::Queue => &self.queue,
            Stage::Connect => &self.connect,
            Stage::Response => &self.response,
            Stage::Total => &self.total,
        }
    }
}

impl Time {
    fn new(durations: &DurationHistogram, buckets: bool) -> Self {
        Self {
            count: durations.count(),
            sum_us: durations.sum_us,
            max_us: durations.max_us,
            buckets: if buckets {
                durations.counts.to_vec()
            } else {
                Vec::new()
            },
        }
    }
}

impl From<&(String, ExchangeCounters)> for NamedExchanges {
    fn from((name, results): &(String, ExchangeCounters)) -> Self {
        Self {
            name: name.clone(),
            exchanges: Exchanges::new(results, true),
        }
    }
}
