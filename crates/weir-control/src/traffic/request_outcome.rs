//! Collects samples for passive checks: reads the proxy's request counters by outcome once per second.
//!
//! weir-state decides which servers are ejected.

use std::collections::HashMap;

use weir_health::{Ejection, Sample};
use weir_proxy::{OutcomeCounters, ServiceStatus};
use weir_state::{PoolSamples, Source};

use super::server_state::{log_ejections, now};
use super::{Error, Traffic};

/// For each server, by pool and name, the counters at the last reading with a new success or while it was ejected.
#[derive(Debug, Default)]
pub(super) struct LastSuccess(HashMap<(String, String), OutcomeCounters>);

impl Traffic {
    /// Reads the counters and applies the resulting ejections.
    pub(super) fn watch_requests(&mut self) -> Result<(), Error> {
        let counters = counters(&self.proxy.status());
        let last_successes = &mut self.last_success.0;
        last_successes.retain(|name, _| counters.contains_key(name));
        for (name, outcomes) in &counters {
            let last_success = last_successes.entry(name.clone()).or_insert(*outcomes);
            let ejected = self.states.ejection(&name.0, &name.1, None).is_some();
            if last_success.successes != outcomes.successes || ejected {
                *last_success = *outcomes;
            }
        }
        let pools = self.desired.pools.iter().map(|pool| PoolSamples {
            pool,
            service: None,
            samples: pool
                .servers
                .iter()
                .filter_map(|server| {
                    let name = (pool.name.clone(), server.name.clone());
                    Some((server.name.clone(), sample(counters.get(&name)?)))
                })
                .collect(),
        });
        let pools: Vec<PoolSamples<'_>> = pools.collect();
        let explain = |pool: &str, server: &str, ejection: &mut Ejection| {
            let name = (pool.to_owned(), server.to_owned());
            if let (Some(now), Some(last_success)) =
                (counters.get(&name), last_successes.get(&name))
            {
                ejection.reason = reason(now, last_success);
            }
        };
        let now = now();
        let (events, changed) = self
            .states
            .handle_samples(Source::Requests, &pools, &explain, now);
        log_ejections(&events, now);
        self.apply_weights(&changed)
    }
}

/// Returns the counters of each server across all services, by pool and name.
fn counters(services: &[ServiceStatus]) -> HashMap<(String, String), OutcomeCounters> {
    let mut totals: HashMap<(String, String), OutcomeCounters> = HashMap::new();
    for server in services.iter().flat_map(|service| &service.servers) {
        let sum = totals
            .entry((server.pool.clone(), server.name.clone()))
            .or_default();
        let outcomes = &server.outcomes;
        sum.successes = sum.successes.wrapping_add(outcomes.successes);
        sum.connect_failures = sum.connect_failures.wrapping_add(outcomes.connect_failures);
        sum.response_failures = sum
            .response_failures
            .wrapping_add(outcomes.response_failures);
        sum.error_statuses = sum.error_statuses.wrapping_add(outcomes.error_statuses);
    }
    totals
}

/// Returns the number of requests and the number of successful requests, in the form of a handshake sample.
const fn sample(outcomes: &OutcomeCounters) -> Sample {
    let failures = outcomes.connect_failures + outcomes.response_failures + outcomes.error_statuses;
    Sample {
        syns: outcomes.successes + failures,
        answered: outcomes.successes,
    }
}

/// Returns a description of the failures since the last success. The sums decrease when a service is removed.
fn reason(now: &OutcomeCounters, before: &OutcomeCounters) -> String {
    let kinds = [
        (
            now.connect_failures.saturating_sub(before.connect_failures),
            "connection failures",
        ),
        (
            now.response_failures
                .saturating_sub(before.response_failures),
            "without a complete response",
        ),
        (
            now.error_statuses.saturating_sub(before.error_statuses),
            "with status 5xx",
        ),
    ];
    let texts = |kinds: &[(u64, &str)]| -> Vec<String> {
        let nonzero = kinds.iter().filter(|(count, _)| *count > 0);
        nonzero
            .map(|(count, text)| format!("{count} {text}"))
            .collect()
    };
    format!("all recent requests failed: {}", texts(&kinds).join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_counts_failures_by_kind() {
        let before = OutcomeCounters {
            successes: 7,
            connect_failures: 1,
            response_failures: 2,
            error_statuses: 3,
        };
        let now = OutcomeCounters {
            connect_failures: 5,
            error_statuses: 4,
            ..before
        };
        assert_eq!(
            reason(&now, &before),
            "all recent requests failed: 4 connection failures, 1 with status 5xx"
        );
        assert_eq!(
            sample(&now),
            Sample {
                syns: 18,
                answered: 7
            }
        );
    }
}
