//! Decides whether a reload on probation has caused a regression and must be rolled back.
//!
//! A regression is a server that fails its checks and did not do so before, or an increased share of requests that
//! failed or had a 5xx response. The input is the status document. Layer 4 services have no request counters, so for
//! them only the checks of their servers count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::status::Report;

/// Minimum number of failed requests; fewer failures are ignored.
const FAILURES_MIN: u64 = 10;
/// The share of failed requests may grow by at most 1/`GROWTH`.
const GROWTH: u64 = 100;

/// The failing servers and the failed requests at one point in time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// Request or connection counters by service.
    services: BTreeMap<String, Requests>,
    /// The servers that fail their checks, each with the service in which it fails; the value is the reason.
    down: BTreeMap<(String, String), String>,
    /// Names of all services, including layer 4 services.
    service_names: BTreeSet<String>,
}

/// Request counters. The two failure counters are independent of each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Requests {
    total: u64,
    /// Number of requests for which Weir generated the response or no server responded.
    failed: u64,
    /// Number of responses with a 5xx status, from Weir or from a server.
    server_errors: u64,
}

impl Health {
    /// Extracts the counters from the status document.
    pub(super) fn from_report(report: &Report) -> Self {
        let mut health = Self::default();
        for service in &report.services {
            health.service_names.insert(service.name.clone());
            if let Some(proxy) = &service.proxy {
                let total = proxy.requests.max(service.totals.connections);
                let counts = Requests {
                    total,
                    failed: proxy.errors,
                    server_errors: proxy.responses[4],
                };
                health.services.insert(service.name.clone(), counts);
            }
            for server in service
                .servers
                .iter()
                .filter(|server| server.state == "down")
            {
                let pool = server.pool.as_deref().unwrap_or(&service.pool);
                let name = format!("{pool}/{}", server.address);
                let key = (name, service.name.clone());
                health.down.insert(key, server.reason.clone());
            }
        }
        health
    }
}

/// Compares the state after a reload on probation with the state before the reload.
#[derive(Debug)]
pub(super) struct Guard {
    before: Health,
    until: Instant,
}

impl Guard {
    /// Starts a probation; `before` is the state with the previous configuration.
    pub(super) fn new(before: Health, limit: Duration) -> Self {
        Self {
            before,
            until: Instant::now() + limit,
        }
    }

    /// Returns whether the probation is over.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Returns a description of a regression; `None` = no regression.
    pub(super) fn regression(&self, now: &Health) -> Option<String> {
        let before = &self.before;
        // If a server was already down, its failure in a new service is not a regression.
        let was_down = |(server, service): &(String, String)| {
            let mut all = before.down.keys();
            before.down.contains_key(&(server.clone(), service.clone()))
                || !before.service_names.contains(service) && all.any(|(other, _)| other == server)
        };
        let newly_down = now.down.iter().find(|(key, _)| !was_down(key));
        if let Some(((server, service), reason)) = newly_down {
            return Some(format!("{server} is down in service {service}: {reason}"));
        }
        now.services.iter().find_map(|(name, now)| {
            let before = self.before.services.get(name).copied();
            // Counters that were reset start at zero.
            let before = before
                .filter(|before| before.total <= now.total)
                .unwrap_or_default();
            let total = now.total - before.total;
            let new_failures = |now: u64, before_failed: u64| {
                let failed = now.saturating_sub(before_failed);
                let before = (before.total, before_failed);
                (failed >= FAILURES_MIN && is_worse((total, failed), before)).then_some(failed)
            };
            let failed = new_failures(now.failed, before.failed)
                .map(|failed| format!("{failed} of {total} requests to service {name} failed"));
            failed.or_else(|| {
                let server_errors = new_failures(now.server_errors, before.server_errors)?;
                Some(format!(
                    "{server_errors} of {total} requests to service {name} had a 5xx response"
                ))
            })
        })
    }
}

/// Returns whether the share of failures exceeds the previous share by more than 1/`GROWTH`. Uses integer arithmetic.
fn is_worse((total, failed): (u64, u64), (before_total, before_failed): (u64, u64)) -> bool {
    let (total, failed) = (u128::from(total.max(failed)), u128::from(failed));
    let before_total = u128::from(before_total.max(before_failed).max(1));
    let allowed = u128::from(GROWTH) * u128::from(before_failed) + before_total;
    u128::from(GROWTH) * failed * before_total > allowed * total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(total: u64, failed: u64, down: &[&str]) -> Health {
        let total = Requests {
            total,
            failed,
            server_errors: 0,
        };
        Health {
            services: BTreeMap::from([("s".to_owned(), total)]),
            down: down
                .iter()
                .map(|name| (((*name).to_owned(), "s".to_owned()), "refused".to_owned()))
                .collect(),
            service_names: BTreeSet::from(["s".to_owned()]),
        }
    }

    #[test]
    fn failures_before_the_reload_are_ignored() {
        let limit = Duration::from_secs(1);
        let regression = |before: Health, now: Health| Guard::new(before, limit).regression(&now);
        assert_eq!(
            regression(health(0, 0, &["p/a"]), health(0, 0, &["p/a"])),
            None
        );
        assert_eq!(
            regression(health(1_000, 0, &[]), health(2_000, 9, &[])),
            None
        );
        assert_eq!(
            regression(health(1_000, 100, &[]), health(2_000, 205, &[])),
            None
        );
        assert_eq!(
            regression(health(1_000, 0, &[]), health(1_000, 0, &[])),
            None
        );
    }

    #[test]
    fn regression_is_described() {
        let limit = Duration::from_secs(1);
        let regression = |before: Health, now: Health| {
            let found = Guard::new(before, limit).regression(&now);
            found.expect("a regression is found")
        };
        let found = regression(health(0, 0, &["p/a"]), health(0, 0, &["p/a", "p/b"]));
        assert_eq!(found, "p/b is down in service s: refused");
        // The same server fails in another service.
        let mut other = health(0, 0, &["p/a"]);
        other.service_names.insert("t".to_owned());
        let mut both = other.clone();
        let key = ("p/a".to_owned(), "t".to_owned());
        both.down.insert(key, "VIP not on lo".to_owned());
        let found = regression(other, both.clone());
        assert_eq!(found, "p/a is down in service t: VIP not on lo");
        let limit = Duration::from_secs(1);
        let new_service = Guard::new(health(0, 0, &["p/a"]), limit).regression(&both);
        assert_eq!(
            new_service, None,
            "the server was down before the service was added"
        );
        let found = regression(health(1_000, 0, &[]), health(2_000, 20, &[]));
        assert_eq!(found, "20 of 1000 requests to service s failed");
        // Responses from servers are counted, too.
        let mut failing = health(2_000, 0, &[]);
        for total in failing.services.values_mut() {
            total.server_errors = 500;
        }
        let found = regression(health(1_000, 0, &[]), failing);
        assert_eq!(
            found,
            "500 of 1000 requests to service s had a 5xx response"
        );
        // A new service has no previous counters.
        let found = regression(Health::default(), health(10, 10, &[]));
        assert_eq!(found, "10 of 10 requests to service s failed");
    }
}
