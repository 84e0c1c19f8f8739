//! Sums the workers' counters into the status of services and servers.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_select::Fault;
use weir_sys::{Clock, now_ns};

use crate::plan::Detail;
use crate::plan::{Plan, Service, Target};
use crate::times::{ExchangeCounters, Quantiles};
use crate::tls::CertificateExpiry;

/// One service's status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceStatus {
    /// Name in the configuration file.
    pub name: String,
    /// Number of clients that are connected now.
    pub clients: u64,
    /// Peak number of clients that were connected at the same time.
    pub clients_max: u64,
    /// Number of clients that have connected since startup.
    pub connections: u64,
    /// Number of requests; 0 for a TCP service.
    pub requests: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Failed requests: responses that Weir generated because of an error or a rejection, and truncated responses.
    pub errors: u64,
    /// Requests that were retried on another server.
    pub retries: u64,
    /// Responses by status class, 1xx to 5xx. Interim responses are not counted, except 101.
    pub responses: [u64; 5],
    /// Clients that are currently waiting for a server in one of its pools.
    pub queued: u64,
    /// Access log lines that were dropped.
    pub log_dropped: u64,
    /// HTTP/2 streams that clients reset before the response, or that were reset because of client errors.
    pub streams_reset: u64,
    /// HTTP/2 streams that were refused because the client had reset too many.
    pub streams_refused: u64,
    /// TLS handshakes with clients.
    pub tls_handshakes: u64,
    /// TLS handshakes with clients that resumed a session.
    pub tls_resumed: u64,
    /// TLS handshakes with clients that failed.
    pub tls_failures: u64,
    /// The certificates in use, in order of expiry; at most 1000.
    pub certificates: Vec<CertificateExpiry>,
    /// Idle clients that were closed to free file descriptors.
    pub shed: u64,
    /// Number of times accepting connections was paused because too few file descriptors were available.
    pub accept_pauses: u64,
    /// The servers in file order, then the backups, then the sorry server, for each pool.
    pub servers: Vec<ServerStatus>,
    /// Peak number of clients that waited in the queue of one of its pools.
    pub queued_max: u64,
    /// Peak numbers of new client connections and of requests, per second.
    pub rate_max: [u64; 2],
    /// Configured maximum number of concurrent clients.
    pub clients_limit: u64,
    /// Configured maximum number of requests per minute from one client; 0 = no limit.
    pub rate_limit_per_minute: u64,
    /// The detail counters, in the order of [`Detail::ALL`].
    pub details: [u64; Detail::ALL.len()],
    /// Requests sent to servers over HTTP/2: in progress, and in total.
    pub h2_upstream: [u64; 2],
    /// Results of all exchanges with the service's clients.
    pub results: ExchangeCounters,
    /// Results for each pool, by name.
    pub pools: Vec<(String, ExchangeCounters)>,
    /// Results for each route, by its conditions.
    pub routes: Vec<(String, ExchangeCounters)>,
}

/// A server's status in one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its pool: the service's own, or a route's.
    pub pool: String,
    /// Its address as in the configuration file.
    pub name: String,
    /// Its IP address.
    pub address: IpAddr,
    /// The port in the configuration file; `None` = the listener's port.
    pub port: Option<u16>,
    /// The weight that the scheduler uses.
    pub effective_weight: u32,
    /// Requests in progress, or connections for a TCP service.
    pub active: u64,
    /// Peak of `active`.
    pub active_max: u64,
    /// Open connections that are not used by a request.
    pub idle: u64,
    /// Number of connections opened since startup.
    pub connections: u64,
    /// Number of requests sent since startup; each retry counts.
    pub requests: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Peak numbers of new connections and of requests, per second.
    pub rate_max: [u64; 2],
    /// Milliseconds since its last exchange ended; `None` = no exchange has ended yet.
    pub unused_ms: Option<u64>,
    /// Successes and faults since the process started.
    pub outcomes: OutcomeCounters,
    /// Results of all its exchanges.
    pub results: ExchangeCounters,
    /// Quantiles of recent response times; `None` = no recent responses.
    pub recent: Option<Quantiles>,
}

/// A server's successes and faults since the process started. The values never decrease, so two samples can be
/// compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutcomeCounters {
    /// Complete responses with a status below 500; for a TCP service, established connections.
    pub successes: u64,
    /// Failed connection attempts, including TLS handshakes.
    pub connect_failures: u64,
    /// Exchanges that ended early, timed out, or had a malformed response.
    pub response_failures: u64,
    /// Responses with a 5xx status.
    pub error_statuses: u64,
}

impl ServerStatus {
    /// Returns the status of a server with zero counters and without an address.
    pub fn with_name(pool: &str, name: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            name: name.to_owned(),
            address: IpAddr::from([0, 0, 0, 0]),
            port: None,
            effective_weight: 0,
            active: 0,
            active_max: 0,
            idle: 0,
            connections: 0,
            requests: 0,
            bytes_in: 0,
            bytes_out: 0,
            rate_max: [0; 2],
            unused_ms: None,
            outcomes: OutcomeCounters::default(),
            results: ExchangeCounters::default(),
            recent: None,
        }
    }
}

/// Returns the status of each service.
pub(crate) fn service_statuses(plan: &Plan) -> Vec<ServiceStatus> {
    plan.services
        .iter()
        .map(|service| service_status(service))
        .collect()
}

/// Adds another process's counters to the counters of the services with the same names.
pub(crate) fn add_counts(services: &[Arc<Service>], other: &[ServiceStatus]) {
    for service in services {
        let Some(other) = other.iter().find(|other| other.name == service.name) else {
            continue;
        };
        let counters = service.counters.previous_processes();
        counters.connections.add(other.connections);
        counters.requests.add(other.requests);
        counters.bytes_in.add(other.bytes_in);
        counters.bytes_out.add(other.bytes_out);
        counters.errors.add(other.errors);
        counters.retries.add(other.retries);
        counters.shed.add(other.shed);
        counters.pauses.add(other.accept_pauses);
        for (count, other) in counters.responses.iter().zip(other.responses) {
            count.add(other);
        }
        for pool in &service.pools {
            for target in &pool.list {
                let is_same_server =
                    |server: &&ServerStatus| server.pool == pool.pool && server.name == target.name;
                if let Some(other) = other.servers.iter().find(is_same_server) {
                    let counters = target.counters.previous_processes();
                    counters.connections.add(other.connections);
                    counters.requests.add(other.requests);
                    counters.bytes_in.add(other.bytes_in);
                    counters.bytes_out.add(other.bytes_out);
                }
            }
        }
    }
}

/// Returns the results for each route. Routes with the same conditions and action share one entry.
fn routes(service: &Service) -> Vec<(String, ExchangeCounters)> {
    let mut seen = HashSet::new();
    let routes = service.route_exchanges.iter();
    let routes = routes.filter(|(label, _)| seen.insert(label.as_str()));
    routes
        .map(|(label, exchanges)| (label.clone(), exchanges.totals()))
        .collect()
}

fn service_status(service: &Service) -> ServiceStatus {
    let now_us = now_ns(Clock::Monotonic) / 1_000;
    let counters = &service.counters;
    ServiceStatus {
        name: service.name.clone(),
        clients: counters.sum(|c| &c.current),
        clients_max: u64::from(service.exchanges.peak.load(Relaxed)),
        connections: counters.sum(|c| &c.connections),
        requests: counters.sum(|c| &c.requests),
        bytes_in: counters.sum(|c| &c.bytes_in),
        bytes_out: counters.sum(|c| &c.bytes_out),
        errors: counters.sum(|c| &c.errors),
        retries: counters.sum(|c| &c.retries),
        responses: std::array::from_fn(|class| counters.sum(|c| &c.responses[class])),
        queued: service
            .pools
            .iter()
            .map(|pool| u64::from(pool.queue.len()))
            .sum(),
        log_dropped: service.log.as_ref().map_or(0, |log| log.dropped_lines()),
        streams_reset: counters.sum(|c| &c.resets),
        streams_refused: counters.sum(|c| &c.refused),
        tls_handshakes: counters.sum(|c| &c.tls_done),
        tls_resumed: counters.sum(|c| &c.tls_resumed),
        tls_failures: counters.sum(|c| &c.tls_failed),
        certificates: service.expiries.clone(),
        shed: counters.sum(|c| &c.shed),
        accept_pauses: counters.sum(|c| &c.pauses),
        servers: service
            .pools
            .iter()
            .flat_map(|pool| {
                pool.list
                    .iter()
                    .map(|target| server_status(&pool.pool, target, now_us))
            })
            .collect(),
        queued_max: service
            .pools
            .iter()
            .map(|pool| u64::from(pool.queue.peak()))
            .max()
            .unwrap_or(0),
        rate_max: service.exchanges.rates.get(),
        clients_limit: service.connections.into(),
        rate_limit_per_minute: service.rate_per_minute.into(),
        details: Detail::ALL.map(|detail| service.details.sum(|details| details.of(detail))),
        h2_upstream: h2_upstream(service),
        results: service.exchanges.totals(),
        pools: service
            .pools
            .iter()
            .map(|pool| (pool.pool.clone(), pool.exchanges.totals()))
            .collect(),
        routes: routes(service),
    }
}

/// Returns the number of requests to servers over HTTP/2: in progress, and in total.
fn h2_upstream(service: &Service) -> [u64; 2] {
    let targets = service.targets().filter(|target| target.http2);
    targets.fold([0, 0], |[active, requests], target| {
        [
            active + u64::from(target.load.active.load(Relaxed)),
            requests + target.counters.sum(|c| &c.requests),
        ]
    })
}

/// Samples the totals of all services and servers, to record peak rates.
pub(crate) fn sample_rates(plan: &Plan) {
    let now_ms = now_ns(Clock::Monotonic) / 1_000_000;
    for service in &plan.services {
        let counters = &service.counters;
        let totals = [
            counters.sum(|c| &c.connections),
            counters.sum(|c| &c.requests),
        ];
        service.exchanges.rates.sample(totals, now_ms);
        for target in service.targets() {
            let counters = &target.counters;
            let totals = [
                counters.sum(|c| &c.connections),
                counters.sum(|c| &c.requests),
            ];
            target.exchanges.rates.sample(totals, now_ms);
        }
    }
}

fn server_status(pool: &str, target: &Target, now_us: u64) -> ServerStatus {
    let counters = &target.counters;
    let results = target.exchanges.totals();
    ServerStatus {
        pool: pool.to_owned(),
        name: target.name.clone(),
        address: target.address,
        port: target.port,
        effective_weight: target.load.weight.load(Relaxed),
        active: u64::from(target.load.active.load(Relaxed)),
        active_max: u64::from(target.load.peak.load(Relaxed)),
        // One worker may have counted the end of an idle period before another counts its start.
        idle: counters.sum(|c| &c.current).cast_signed().max(0) as u64,
        connections: counters.sum(|c| &c.connections),
        requests: counters.sum(|c| &c.requests),
        bytes_in: counters.sum(|c| &c.bytes_in),
        bytes_out: counters.sum(|c| &c.bytes_out),
        outcomes: OutcomeCounters {
            successes: counters.sum(|c| &c.successes),
            connect_failures: counters.sum(|c| &c.faults[Fault::Unreachable as usize]),
            response_failures: counters.sum(|c| &c.faults[Fault::BadResponse as usize]),
            error_statuses: counters.sum(|c| &c.faults[Fault::ErrorStatus as usize]),
        },
        rate_max: target.exchanges.rates.get(),
        unused_ms: match results.last_us {
            0 => None,
            last_us => Some(now_us.saturating_sub(last_us) / 1_000),
        },
        results,
        recent: target.recent.quantiles(now_us),
    }
}
