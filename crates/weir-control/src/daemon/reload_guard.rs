//! Decides whether a guarded reload has caused a regression and must be rolled back.
//!
//! A regression is a server that fails its checks and did not do so before, or an increased share of requests that
//! failed or had a 5xx response. The input is the status document. Layer 4 services have no request counters, so for
//! them only the checks of their servers count.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::Instant;
use weir_model::{Desired, Pool, Server};

use crate::status::Report;

/// Minimum number of failed requests; fewer failures are ignored.
const MIN_FAILURES: u64 = 10;
/// The share of failed requests may increase by at most 1/`GROWTH`, one percentage point.
const GROWTH: u64 = 100;

/// The failing servers and the failed requests at one point in time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// Request or connection counters by service.
    services: BTreeMap<String, Requests>,
    /// The servers that fail their checks; the value is the reason.
    down: BTreeMap<DownServer, String>,
    /// Names of all services, including layer 4 services.
    service_names: BTreeSet<String>,
}

/// A server that fails its checks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DownServer {
    pool: String,
    /// The address as in the file.
    name: String,
    /// The service in which it fails.
    service: String,
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
    /// Extracts the counters and the failing servers from the status document.
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
                let down = DownServer {
                    pool: server.pool.as_ref().unwrap_or(&service.pool).clone(),
                    name: server.address.clone(),
                    service: service.name.clone(),
                };
                health.down.insert(down, server.reason.clone());
            }
        }
        health
    }
}

/// The address of a server. If the file contains no port, the port is the one on which all services of the pool listen;
/// `None` = they listen on several ports.
type Endpoint = (IpAddr, Option<u16>);

/// The servers of a configuration by address and port, because a new configuration may spell an address differently.
#[derive(Debug, Default)]
pub(super) struct Servers {
    /// The names of the servers in each pool. A pool can contain an address with and without a port.
    by_endpoint: BTreeMap<String, BTreeMap<Endpoint, Vec<String>>>,
}

impl Servers {
    /// Returns the servers of a configuration.
    pub(super) fn of(desired: &Desired) -> Self {
        let ports = listening_ports(desired);
        let pools = desired.pools.iter().map(|pool| {
            let mut servers: BTreeMap<Endpoint, Vec<String>> = BTreeMap::new();
            for server in pool.servers.iter().chain(&pool.sorry) {
                let endpoint = endpoint(&ports, pool, server);
                let names = servers.entry(endpoint).or_default();
                names.push(server.name.clone());
            }
            (pool.name.clone(), servers)
        });
        Self {
            by_endpoint: pools.collect(),
        }
    }

    /// Returns the pool and the name of a server of `desired` in this configuration: in the same pool or, if this
    /// configuration does not have the pool, in any pool. Returns nothing for a server with a new address.
    pub(super) fn find(&self, desired: &Desired, pool: &str, name: &str) -> Vec<(&str, &str)> {
        let found = desired.pool(pool).and_then(|pool| {
            let mut servers = pool.servers.iter().chain(&pool.sorry);
            let server = servers.find(|server| server.name == name)?;
            Some(endpoint(&listening_ports(desired), pool, server))
        });
        let Some(endpoint) = found else {
            return Vec::new();
        };
        let is_new = !self.by_endpoint.contains_key(pool);
        let pools = self.by_endpoint.iter();
        let pools = pools.filter(|(candidate, _)| is_new || *candidate == pool);
        let servers = pools.flat_map(|(pool, servers)| {
            let names = servers.get(&endpoint).into_iter().flatten();
            names.map(|name| (pool.as_str(), name.as_str()))
        });
        servers.collect()
    }
}

/// The first and the last port of each listener of the services that use a pool, by pool.
type ListeningPorts<'a> = BTreeMap<&'a str, BTreeSet<u16>>;

fn listening_ports(desired: &Desired) -> ListeningPorts<'_> {
    let mut ports = ListeningPorts::new();
    for service in &desired.services {
        let pool_ports = ports.entry(&service.pool).or_default();
        for listener in &service.listen {
            let (first, last) = listener.ports.bounds();
            pool_ports.extend([first, last]);
        }
    }
    for proxy in &desired.proxies {
        for pool in proxy.pools() {
            let pool_ports = ports.entry(pool).or_default();
            pool_ports.extend(proxy.listen.iter().map(SocketAddr::port));
        }
    }
    ports
}

fn endpoint(ports: &ListeningPorts<'_>, pool: &Pool, server: &Server) -> Endpoint {
    let only_port = || {
        let ports = ports.get(pool.name.as_str())?;
        ports.first().copied().filter(|_| ports.len() == 1)
    };
    (server.address, server.port.or_else(only_port))
}

/// Compares the state after a guarded reload with the state before it.
#[derive(Debug)]
pub(super) struct Guard {
    before: Health,
    /// The servers of the previous configuration.
    servers: Servers,
    until: Instant,
}

impl Guard {
    /// Starts a guard; `before` is the state with the previous configuration, and `servers` are its servers.
    pub(super) fn new(before: Health, servers: Servers, limit: Duration) -> Self {
        Self {
            before,
            servers,
            until: Instant::now() + limit,
        }
    }

    /// Returns the servers of the previous configuration.
    pub(super) const fn servers_before(&self) -> &Servers {
        &self.servers
    }

    /// Returns the time until the guard ends.
    pub(super) fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns whether the guard has ended.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Returns whether a server was already down before the reload. Its failure in a new service is then not a
    /// regression. `desired` is the configuration that contains the server.
    fn was_down(&self, down: &DownServer, desired: &Desired) -> bool {
        if self.before.down.contains_key(down) {
            return true;
        }
        let is_new_service = !self.before.service_names.contains(&down.service);
        let mut same_server = self.servers.find(desired, &down.pool, &down.name);
        // `desired` does not contain servers that were removed or created with ipvsadm.
        same_server.push((&down.pool, &down.name));
        let mut before = self.before.down.keys();
        before.any(|other| {
            same_server.contains(&(other.pool.as_str(), other.name.as_str()))
                && (is_new_service || other.service == down.service)
        })
    }

    /// Returns a description of a regression; `None` = no regression. `desired` is the new configuration.
    pub(super) fn regression(&self, now: &Health, desired: &Desired) -> Option<String> {
        let mut down = now.down.iter();
        if let Some((server, reason)) = down.find(|(server, _)| !self.was_down(server, desired)) {
            let DownServer {
                pool,
                name,
                service,
            } = server;
            return Some(format!(
                "{pool}/{name} is down in service {service}: {reason}"
            ));
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
                (failed >= MIN_FAILURES && is_worse((total, failed), before)).then_some(failed)
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
                .map(|name| (down_server(name, "s"), "refused".to_owned()))
                .collect(),
            service_names: BTreeSet::from(["s".to_owned()]),
        }
    }

    /// `server` is a name with its pool, such as `p/10.0.0.5`.
    fn down_server(server: &str, service: &str) -> DownServer {
        let (pool, name) = server.split_once('/').expect("pool and name");
        DownServer {
            pool: pool.to_owned(),
            name: name.to_owned(),
            service: service.to_owned(),
        }
    }

    fn regression(before: Health, now: &Health) -> Option<String> {
        let guard = Guard::new(before, Servers::default(), Duration::from_secs(1));
        guard.regression(now, &Desired::default())
    }

    #[test]
    fn failures_before_the_reload_are_ignored() {
        let regression = |before: Health, now: Health| regression(before, &now);
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
        let description =
            |before: Health, now: Health| regression(before, &now).expect("a regression is found");
        let text = description(health(0, 0, &["p/a"]), health(0, 0, &["p/a", "p/b"]));
        assert_eq!(text, "p/b is down in service s: refused");
        // The same server fails in a different service.
        let mut other_health = health(0, 0, &["p/a"]);
        other_health.service_names.insert("t".to_owned());
        let mut both = other_health.clone();
        let key = down_server("p/a", "t");
        both.down.insert(key, "VIP not on lo".to_owned());
        let text = description(other_health, both.clone());
        assert_eq!(text, "p/a is down in service t: VIP not on lo");
        let new_service = regression(health(0, 0, &["p/a"]), &both);
        assert_eq!(
            new_service, None,
            "the server was down before the service was added"
        );
        let text = description(health(1_000, 0, &[]), health(2_000, 20, &[]));
        assert_eq!(text, "20 of 1000 requests to service s failed");
        // Responses from servers are counted, too.
        let mut failing = health(2_000, 0, &[]);
        for total in failing.services.values_mut() {
            total.server_errors = 500;
        }
        let text = description(health(1_000, 0, &[]), failing);
        assert_eq!(text, "500 of 1000 requests to service s had a 5xx response");
        // A new service has no previous counters.
        let text = description(Health::default(), health(10, 10, &[]));
        assert_eq!(text, "10 of 10 requests to service s failed");
    }

    /// The service's port is 80.
    #[test]
    fn server_that_was_down_is_recognized_despite_different_spelling() {
        let desired = |pools: &str, pool: &str| {
            let service = format!(
                "{pools}\n[service.s]\nlisten = [\"[2001:db8::1]:80\"]\nforward = \"nat\"\npool = \"{pool}\"\n"
            );
            let parsed = weir_config::parse(&service, &weir_config::Host::default());
            parsed.expect("valid configuration").desired
        };
        let before = desired("[pool.p]\nservers = [\"fd00::5\", \"fd00::6\"]", "p");
        // Each case: the pools of the new file, the service's pool, the failing server, and whether it is a regression.
        for (pools, pool, failing, is_regression) in [
            ("[pool.p]\nservers = [\"fd00::5\"]", "p", "p/fd00::5", false),
            (
                "[pool.p]\nservers = [\"[fd00:0::5]\"]",
                "p",
                "p/[fd00:0::5]",
                false,
            ),
            (
                "[pool.p]\nservers = [\"[fd00::5]:80\"]",
                "p",
                "p/[fd00::5]:80",
                false,
            ),
            (
                "[pool.p]\nservers = [\"[fd00::5]:81\"]",
                "p",
                "p/[fd00::5]:81",
                true,
            ),
            (
                "[pool.p]\nservers = [\"[fd00:0::6]\"]",
                "p",
                "p/[fd00:0::6]",
                true,
            ),
            (
                "[pool.q]\nservers = [\"[fd00::5]:80\"]",
                "q",
                "q/[fd00::5]:80",
                false,
            ),
        ] {
            let guard = Guard::new(
                health(0, 0, &["p/fd00::5"]),
                Servers::of(&before),
                Duration::from_secs(1),
            );
            let regression = guard.regression(&health(0, 0, &[failing]), &desired(pools, pool));
            assert_eq!(
                regression.is_some(),
                is_regression,
                "{pools}: {regression:?}"
            );
        }
        // The pool existed before, with a server at this address that was not down.
        let two_pools = "[pool.p]\nservers = [\"fd00::5\"]\n[pool.q]\nservers = [\"fd00::5\"]";
        let guard = Guard::new(
            health(0, 0, &["p/fd00::5"]),
            Servers::of(&desired(two_pools, "p")),
            Duration::from_secs(1),
        );
        let regression = guard.regression(&health(0, 0, &["q/fd00::5"]), &desired(two_pools, "q"));
        assert_eq!(
            regression.as_deref(),
            Some("q/fd00::5 is down in service s: refused")
        );
    }
}
