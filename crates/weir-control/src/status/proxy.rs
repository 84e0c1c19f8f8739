//! Describes proxy services in the status document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_proxy::Detail;

use super::exchanges::{Exchanges, NamedExchanges};
use super::latency::Latency;
use super::{Certificate, Check, Counters, EjectionStatus, Server, Service, rfc3339, state, vip};
use crate::snapshot::{ProxyServerStatus, ProxyStatus};

/// Additional data about a proxy service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyServiceDetails {
    /// `tcp` or `http`.
    pub protocol: String,
    /// Current number of connected clients.
    pub clients: u64,
    /// Peak number of connected clients since the process started.
    #[serde(default)]
    pub clients_max: u64,
    /// Number of requests since the service was created; 0 for a TCP service.
    pub requests: u64,
    /// Number of responses that Weir, rather than a server, generated.
    pub errors: u64,
    /// Number of retries on another server.
    pub retries: u64,
    /// Number of final responses by status class, 1xx to 5xx.
    #[serde(default)]
    pub responses: [u64; 5],
    /// Current number of clients waiting for a server.
    #[serde(default)]
    pub queued: u64,
    /// Number of suppressed access log lines.
    #[serde(default)]
    pub log_dropped: u64,
    /// Number of HTTP/2 streams that clients reset before the response, or that Weir reset because of a client's error.
    #[serde(default)]
    pub streams_reset: u64,
    /// Number of HTTP/2 streams that were refused because too many had been reset.
    #[serde(default)]
    pub streams_refused: u64,
    /// Number of TLS handshakes with clients since the process started.
    #[serde(default)]
    pub tls_handshakes: u64,
    /// Number of TLS handshakes with clients that resumed a session.
    #[serde(default)]
    pub tls_resumed: u64,
    /// Number of failed TLS handshakes with clients.
    #[serde(default)]
    pub tls_failures: u64,
    /// At most 1000 certificates that are sent to clients, in order of expiry; absent without TLS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Certificate>,
    /// Number of idle client connections that were closed to free descriptors.
    #[serde(default)]
    pub shed: u64,
    /// Number of times that accepting connections was paused because too few descriptors were available.
    #[serde(default)]
    pub accept_pauses: u64,
    /// Peak number of clients in the queue of one of the service's pools.
    #[serde(default)]
    pub queued_max: u64,
    /// Peak number of new client connections in one second.
    #[serde(default)]
    pub connections_per_second_max: u64,
    /// Peak number of requests in one second.
    #[serde(default)]
    pub requests_per_second_max: u64,
    /// Maximum number of concurrent clients, as configured.
    #[serde(default)]
    pub clients_limit: u64,
    /// Maximum number of requests per client per second, as configured, rounded up; 0 = no limit.
    #[serde(default)]
    pub rate_limit: u64,
    /// Maximum number of requests per client per minute, as configured; 0 = no limit.
    #[serde(default)]
    pub rate_limit_per_minute: u64,
    /// Further counters by name; see `weir_proxy_*` in the metrics reference.
    #[serde(default)]
    pub details: BTreeMap<String, u64>,
    /// Current number of HTTP/2 requests to servers.
    #[serde(default)]
    pub h2_upstream_active: u64,
    /// Number of requests sent to servers over HTTP/2.
    #[serde(default)]
    pub h2_upstream_requests: u64,
    /// Results and durations of the exchanges since the process started.
    #[serde(default)]
    pub exchanges: Exchanges,
    /// The exchanges of each pool.
    #[serde(default)]
    pub pools: Vec<NamedExchanges>,
    /// The exchanges of each route. A route's name consists of its conditions and its action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<NamedExchanges>,
}

/// Additional data about a proxy service's server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProxyServerDetails {
    /// Number of requests sent to the server, including retries; 0 for a TCP service.
    pub requests: u64,
    /// Peak number of concurrent requests, or of connections for a TCP service, across all services that use the pool.
    pub active_max: u64,
    /// Number of failed connection attempts since the process started.
    pub connect_failures: u64,
    /// Number of exchanges that ended early, timed out or had a malformed response, including retried exchanges.
    pub response_failures: u64,
    /// Peak number of new connections to the server in one second.
    #[serde(default)]
    pub connections_per_second_max: u64,
    /// Peak number of requests to the server in one second.
    #[serde(default)]
    pub requests_per_second_max: u64,
    /// Time since the server's last exchange ended, in milliseconds; absent before the first exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_ms: Option<u64>,
    /// Maximum number of concurrent requests, as configured; 0 = no limit.
    #[serde(default)]
    pub max_connections: u32,
    /// Whether the server is used only while no other server is available.
    #[serde(default)]
    pub backup: bool,
    /// Results and durations of the exchanges that ended with this server.
    pub exchanges: Exchanges,
}

const PROXY: &str = "proxy";

impl From<&ProxyStatus> for Service {
    fn from(status: &ProxyStatus) -> Self {
        let numbers = &status.numbers;
        Self {
            name: numbers.name.clone(),
            origin: "file".to_owned(),
            listen: status
                .listen
                .iter()
                .map(|address| format!("tcp/{address}"))
                .collect(),
            vip: vip(status.vip).to_owned(),
            forward: PROXY.to_owned(),
            scheduler: status.scheduler.clone(),
            pool: status.pool.clone(),
            pool_state: status.pool_state.map(|state| state.as_str().to_owned()),
            pool_cause: status.pool_state.map(|state| state.cause().to_owned()),
            persistence: None,
            one_packet: false,
            totals: Counters {
                connections: numbers.connections,
                bytes_in: numbers.bytes_in,
                bytes_out: numbers.bytes_out,
                ..Counters::default()
            },
            proxy: Some(ProxyServiceDetails {
                protocol: status.protocol.as_str().to_owned(),
                clients: numbers.clients,
                clients_max: numbers.clients_max,
                requests: numbers.requests,
                errors: numbers.errors,
                retries: numbers.retries,
                responses: numbers.responses,
                queued: numbers.queued,
                log_dropped: numbers.log_dropped,
                streams_reset: numbers.streams_reset,
                streams_refused: numbers.streams_refused,
                tls_handshakes: numbers.tls_handshakes,
                tls_resumed: numbers.tls_resumed,
                tls_failures: numbers.tls_failures,
                certificates: numbers
                    .certificates
                    .iter()
                    .map(|expiry| Certificate::new(expiry, status.now))
                    .collect(),
                shed: numbers.shed,
                accept_pauses: numbers.accept_pauses,
                queued_max: numbers.queued_max,
                connections_per_second_max: numbers.rate_max[0],
                requests_per_second_max: numbers.rate_max[1],
                clients_limit: numbers.clients_limit,
                rate_limit: numbers.rate_limit_per_minute.div_ceil(60),
                rate_limit_per_minute: numbers.rate_limit_per_minute,
                details: Detail::ALL
                    .iter()
                    .zip(numbers.details)
                    .map(|(detail, count)| (detail.as_str().to_owned(), count))
                    .collect(),
                h2_upstream_active: numbers.h2_upstream[0],
                h2_upstream_requests: numbers.h2_upstream[1],
                exchanges: Exchanges::new(&numbers.results, true),
                pools: numbers.pools.iter().map(NamedExchanges::from).collect(),
                routes: numbers.routes.iter().map(NamedExchanges::from).collect(),
            }),
            servers: status.servers.iter().map(Server::from).collect(),
        }
    }
}

impl From<&ProxyServerStatus> for Server {
    fn from(status: &ProxyServerStatus) -> Self {
        let numbers = &status.numbers;
        Self {
            address: numbers.name.clone(),
            pool: Some(numbers.pool.clone()),
            forward: PROXY.to_owned(),
            weight: status.weight,
            effective_weight: numbers.effective_weight,
            state: state(status.state).to_owned(),
            reason: status.reason.clone(),
            since: rfc3339(status.since),
            overridden: status.overridden.clone(),
            removed: false,
            check_weight: status.check_weight,
            slow_start: status.slow_start,
            ejected: status.ejected.as_ref().map(EjectionStatus::from),
            warning: None,
            handshakes: None,
            latency: numbers.recent.as_ref().map(Latency::from),
            checks: status.checks.iter().map(Check::from).collect(),
            active_connections: numbers.active,
            inactive_connections: numbers.idle,
            persistent_connections: 0,
            overloaded: false,
            totals: Counters {
                connections: numbers.connections,
                bytes_in: numbers.bytes_in,
                bytes_out: numbers.bytes_out,
                ..Counters::default()
            },
            proxy: Some(ProxyServerDetails {
                requests: numbers.requests,
                active_max: numbers.active_max,
                connect_failures: numbers.outcomes.connect_failures,
                response_failures: numbers.outcomes.response_failures,
                connections_per_second_max: numbers.rate_max[0],
                requests_per_second_max: numbers.rate_max[1],
                unused_ms: numbers.unused_ms,
                max_connections: status.max_connections,
                backup: status.backup,
                exchanges: Exchanges::new(&numbers.results, status.histograms),
            }),
        }
    }
}
