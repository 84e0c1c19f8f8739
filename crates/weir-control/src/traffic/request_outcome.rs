//! Samples for passive checks: once per second, reads the proxy's request counters by outcome. weir-state decides which
//! servers are ejected.

use std::collections::HashMap;

use weir_health::{Ejection, Sample};
use weir_proxy::{Conduct, ServiceStatus};
use weir_state::{PoolSamples, Source};

use super::server_state::{log_ejections, now};
use super::{Error, Traffic};

/// The counters of each server, by pool and name, at the last check at which a request had succeeded or the server was
/// ejected.
#[derive(Debug, Default)]
pub(super) struct LastSuccess(HashMap<(String, String), Conduct>);

impl Traffic {
    /// Reads the counters and applies the resulting ejections.
    pub(super) fn watch_requests(&mut self) -> Result<(), Error> {
        let counters = counters(&self.proxy.status());
        let last_successes = &mut self.last_success.0;
        last_successes.retain(|name, _| counters.contains_key(name));
        for (name, conduct) in &counters {
            let last_success = last_successes.entry(name.clone()).or_insert(*conduct);
            let ejected = self.states.ejection(&name.0, &name.1, None).is_some();
            if last_success.successes != conduct.successes || ejected {
                *last_success = *conduct;
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
            if let (Some(now), Some(last_successes)) =
                (counters.get(&name), last_successes.get(&name))
            {
                ejection.reason = reason(now, last_successes);
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

/// Returns the counters of each server over all services, by pool and name.
fn counters(services: &[ServiceStatus]) -> HashMap<(String, String), Conduct> {
    let mut totals: HashMap<(String, String), Conduct> = HashMap::new();
    for server in services.iter().flat_map(|service| &service.servers) {
        let sum = totals
            .entry((server.pool.clone(), server.name.clone()))
            .or_default();
        let conduct = &server.conduct;
        sum.successes = sum.successes.wrapping_add(conduct.successes);
        sum.unreached = sum.unreached.wrapping_add(conduct.unreached);
        sum.broken = sum.broken.wrapping_add(conduct.broken);
        sum.status = sum.status.wrapping_add(conduct.status);
    }
    totals
}

/// Returns the numbers of requests and of successful requests, in the form of a handshake sample.
const fn sample(conduct: &Conduct) -> Sample {
    let failed = conduct.unreached + conduct.broken + conduct.status;
    Sample {
        syns: conduct.successes + failed,
        answered: conduct.successes,
    }
}

/// Describes the failures since the last success.
fn reason(now: &Conduct, before: &Conduct) -> String {
    let kinds = [
        (now.unreached - before.unreached, "connection failures"),
        (now.broken - before.broken, "without a complete response"),
        (now.status - before.status, "with status 5xx"),
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
        let before = Conduct {
            successes: 7,
            unreached: 1,
            broken: 2,
            status: 3,
        };
        let now = Conduct {
            unreached: 5,
            status: 4,
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
