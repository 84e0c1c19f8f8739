//! Defines `forward = "proxy"` services, which terminate client connections.
//!
//! Proxy services are separate from layer 4 services because they do not use the data plane. Both kinds use the same
//! pools and servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    AccessLog, BasicAuth, ClientFields, Compression, Conditions, ErrorPage, Forwarded, HashKey,
    HeaderEdits, Network, NormalizePath, RetryOn, Route, RouteAction, Scheduler, SchedulerKind,
    ServiceTls, Source, Template, Underscores, ValueMap, Variable,
};

named_enum! {
    /// Protocol of a proxy service.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ProxyProtocol {
        /// Relays bytes in both directions.
        Tcp = "tcp",
        /// Forwards HTTP requests and responses.
        Http = "http",
    }
}

/// A proxy service's `timeouts` setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProxyTimeouts {
    /// Time to receive a complete request head, from its first byte; on a new connection, from the accept.
    pub request: Duration,
    /// Idle time before the next request on a connection.
    pub idle: Duration,
    /// Maximum inactivity of a client that is sending a body or receiving a response.
    pub client: Duration,
    /// Time to connect to a server.
    pub connect: Duration,
    /// Maximum inactivity of a server; also the time to the first byte of a response if `response` is `None`.
    pub server: Duration,
    /// Time to the first byte of a response; `None` = `server`.
    pub response: Option<Duration>,
    /// Maximum inactivity of either side of a `tcp` service or of an upgraded connection.
    pub tunnel: Duration,
    /// Time from the end of a request head to the end of its response; `None` = no limit.
    pub total: Option<Duration>,
}

impl ProxyTimeouts {
    /// Minimum and maximum of each timeout.
    pub const BOUNDS: (Duration, Duration) =
        (Duration::from_millis(100), Duration::from_secs(7 * 86_400));
}

impl Default for ProxyTimeouts {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            client: Duration::from_secs(60),
            connect: Duration::from_secs(5),
            server: Duration::from_secs(60),
            response: None,
            tunnel: Duration::from_secs(3600),
            total: None,
        }
    }
}

/// A proxy service's `limits` setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProxyLimits {
    /// Maximum size of a request or response head, in bytes.
    pub head: u32,
    /// Maximum number of header fields in a message.
    pub fields: u32,
    /// Maximum number of client connections across all workers; further clients wait to be accepted.
    pub connections: u32,
    /// Number of other servers to try when a server fails.
    pub retries: u32,
    /// Number of idle connections to keep for each server and worker.
    pub idle_servers: u32,
    /// Maximum number of requests per server connection; 0 = no limit.
    pub server_requests: u32,
    /// Maximum number of concurrent streams per HTTP/2 client.
    pub streams: u32,
    /// Maximum number of HTTP/2 streams per second that a client network may reset; 0 = no limit.
    pub resets: u32,
    /// Maximum size of a request body, in bytes; 0 = no limit.
    pub body: u32,
    /// Maximum number of requests per minute from one client; 0 = no limit.
    pub per_minute: u32,
    /// Maximum number of requests at once after an idle period; 0 = the number allowed in one second, at least one.
    pub burst: u32,
    /// Maximum number of concurrent requests from one client; 0 = no limit.
    pub concurrent: u32,
    /// Maximum number of retries, as a percentage of all requests.
    pub retry_budget: u32,
}

impl ProxyLimits {
    /// Returns the number of requests that one client may send at once.
    pub fn burst(&self) -> u32 {
        match self.burst {
            0 => (self.per_minute / 60).max(1),
            burst => burst,
        }
    }

    /// Minimum and maximum `head`.
    pub const HEAD_RANGE: (u32, u32) = (1 << 10, 64 << 10);
    /// Minimum and maximum `fields`.
    pub const FIELDS_RANGE: (u32, u32) = (8, 1_000);
    /// Minimum and maximum `connections`.
    pub const CONNECTIONS_RANGE: (u32, u32) = (1, 10_000_000);
    /// Minimum and maximum `retries`.
    pub const RETRIES_RANGE: (u32, u32) = (0, 16);
    /// Minimum and maximum `idle_servers`; 0 = a new connection for each request.
    pub const IDLE_SERVERS_RANGE: (u32, u32) = (0, 100_000);
    /// Minimum and maximum `server_requests`.
    pub const SERVER_REQUESTS_RANGE: (u32, u32) = (0, 1_000_000_000);
    /// Minimum and maximum `streams`.
    pub const STREAMS_RANGE: (u32, u32) = (1, 1_000);
    /// Minimum and maximum `resets`.
    pub const RESETS_RANGE: (u32, u32) = (0, 60_000);
    /// Minimum and maximum `burst`.
    pub const BURST_RANGE: (u32, u32) = (0, 60_000);
    /// Minimum and maximum `retry_budget`.
    pub const RETRY_BUDGET_RANGE: (u32, u32) = (0, 1_000);
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            head: 16 << 10,
            fields: 100,
            connections: 100_000,
            retries: 3,
            idle_servers: 128,
            server_requests: 0,
            streams: 128,
            resets: 100,
            body: 0,
            per_minute: 0,
            burst: 0,
            concurrent: 0,
            retry_budget: 100,
        }
    }
}

/// A `[service.NAME]` with `forward = "proxy"`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Proxy {
    /// Name, unique among all services.
    pub name: String,
    /// Listen addresses in file order; at least one, not shared with other proxy services.
    pub listen: Vec<SocketAddr>,
    /// Protocol.
    pub protocol: ProxyProtocol,
    /// Name of the pool for requests that match no route.
    pub pool: String,
    /// Routes in file order; the first match applies.
    pub routes: Vec<Route>,
    /// Path normalization; `None` = paths are compared as received.
    pub normalize_path: Option<NormalizePath>,
    /// TLS for clients; `None` = no TLS.
    pub tls: Option<ServiceTls>,
    /// Whether clients may use HTTP/2; ignored for `tcp`.
    pub http2: bool,
    /// Timeouts.
    pub timeouts: ProxyTimeouts,
    /// Limits.
    pub limits: ProxyLimits,
    /// When requests are retried on another server.
    pub retry_on: RetryOn,
    /// How `rate` and `concurrent` identify clients.
    pub limit_key: HashKey,
    /// Header fields that carry client information to servers.
    pub forwarded: Forwarded,
    /// Rules for single fields about the client.
    pub x_forwarded: ClientFields,
    /// Client networks to which `x_forwarded` does not apply.
    pub x_forwarded_except: Vec<Network>,
    /// Changes to the header of every request that is sent to a server.
    pub request_header: HeaderEdits,
    /// Changes to the header of every response from a server.
    pub response_header: HeaderEdits,
    /// Treatment of request fields with `_` in their names.
    pub underscores: Underscores,
    /// Whether clients may use CONNECT.
    pub connect: bool,
    /// Whether a client that closes its sending side aborts its request; ignored for `tcp`.
    pub abort_on_close: bool,
    /// Whether request bodies are buffered, up to a limit, before a server is selected.
    pub request_buffering: bool,
    /// Replacements for error responses generated by Weir; the first match applies.
    pub error_pages: Vec<ErrorPage>,
    /// Compression of responses; `None` = no compression.
    pub compression: Option<Compression>,
    /// Users who may send requests; `None` = all clients.
    pub basic_auth: Option<BasicAuth>,
    /// Networks of trusted proxies. Weir accepts forwarding information from them.
    pub trusted: Vec<Network>,
    /// Name of the field in which trusted proxies send the client's address, in lower case; `None` = the client's
    /// address is that of the connection.
    pub client_ip_header: Option<String>,
    /// Whether to skip trusted proxies at the end of that field; otherwise, the last address in the field is the
    /// client's.
    pub client_ip_recursive: bool,
    /// Whether clients send a PROXY protocol header. With `trusted`, only clients in those networks do.
    pub proxy_protocol: bool,
    /// Field in which servers receive the request identifier. Trusted clients may send an identifier in this field.
    pub request_id: Option<String>,
    /// Access log.
    pub access_log: Option<AccessLog>,
    /// The maps to which the access log format refers, without duplicates.
    pub log_maps: Vec<Arc<ValueMap>>,
    /// Position of the service's table.
    pub source: Source,
}

impl Proxy {
    /// Returns the proxies whose addresses are skipped at the end of [`Self::client_ip_header`].
    pub fn client_ip_skipped(&self) -> &[Network] {
        match self.client_ip_recursive {
            true => &self.trusted,
            false => &[],
        }
    }

    /// Returns the default scheduler for services with this protocol.
    pub const fn default_scheduler(protocol: ProxyProtocol) -> Scheduler {
        Scheduler::new(match protocol {
            ProxyProtocol::Http => SchedulerKind::P2c,
            ProxyProtocol::Tcp => SchedulerKind::Wlc,
        })
    }

    /// Returns the pools that requests may use, without duplicates; the service's own pool is first.
    pub fn pools(&self) -> Vec<&str> {
        let mut pools = vec![self.pool.as_str()];
        for pool in self.routes.iter().flat_map(Route::pools) {
            if !pools.contains(&pool) {
                pools.push(pool);
            }
        }
        pools
    }

    /// Returns every text in the service and its routes that Weir expands for each request.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let by_service = [&self.request_header, &self.response_header].into_iter();
        let by_route = self
            .routes
            .iter()
            .flat_map(|route| [&route.edits.request, &route.edits.response]);
        let headers = by_service
            .chain(by_route)
            .flat_map(HeaderEdits::fields)
            .map(|field| &field.value);
        let other_texts = self.routes.iter().flat_map(|route| {
            let action_text = match &route.action {
                RouteAction::Redirect { to, .. } => Some(to),
                RouteAction::Respond { body, .. } => Some(body),
                RouteAction::Mapped(map) => Some(&map.key),
                RouteAction::Split(split) => split.by.as_ref(),
                RouteAction::Pool(_)
                | RouteAction::Files(_)
                | RouteAction::Close
                | RouteAction::Restart(_) => None,
            };
            let rewrite = route.edits.path.as_ref().map(|it| &it.to);
            let auth_fields = route.forward_auth().into_iter();
            let auth_fields = auth_fields
                .flat_map(|auth| &auth.set)
                .map(|field| &field.value);
            action_text.into_iter().chain(rewrite).chain(auth_fields)
        });
        headers.chain(other_texts)
    }

    /// Returns whether a route condition, or a text, depends on the client's TLS connection.
    pub fn needs_tls_properties(&self) -> bool {
        let conditions = self.routes.iter().flat_map(Route::conditions);
        conditions.into_iter().any(Conditions::needs_tls)
            || self
                .templates()
                .chain(self.log_maps.iter().map(|map| &map.key))
                .flat_map(Template::variables)
                .any(Variable::needs_tls)
            || self.access_log.iter().any(|log| {
                let mut names = log.format.variables().into_iter();
                names.any(|name| Variable::from_name(name).is_some_and(|it| it.needs_tls()))
            })
    }

    /// Creates a service without listeners, with default settings.
    pub fn new(name: impl Into<String>, protocol: ProxyProtocol, pool: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            listen: Vec::new(),
            protocol,
            pool: pool.into(),
            routes: Vec::new(),
            normalize_path: Some(NormalizePath::default()),
            tls: None,
            http2: true,
            timeouts: ProxyTimeouts::default(),
            limits: ProxyLimits::default(),
            retry_on: RetryOn::default(),
            limit_key: HashKey::default(),
            forwarded: Forwarded::default(),
            x_forwarded: ClientFields::default(),
            x_forwarded_except: Vec::new(),
            request_header: HeaderEdits::default(),
            response_header: HeaderEdits::default(),
            underscores: Underscores::default(),
            connect: false,
            abort_on_close: true,
            request_buffering: true,
            error_pages: Vec::new(),
            compression: None,
            basic_auth: None,
            trusted: Vec::new(),
            client_ip_header: None,
            client_ip_recursive: true,
            proxy_protocol: false,
            request_id: None,
            access_log: None,
            log_maps: Vec::new(),
            source: Source::default(),
        }
    }
}
