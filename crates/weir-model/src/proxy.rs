//! `forward = "proxy"`: services whose clients talk to the director itself.
//!
//! They stand apart from the layer 4 services: nothing of theirs reaches the data plane. Pools and servers are the same.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::{
    AccessLog, Compression, ErrorPage, Forwarded, HashKey, NormalizePath, RetryOn, Route,
    Scheduler, SchedulerKind, ServiceTls, Source, Underscores,
};

/// What a proxy service understands of what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProxyProtocol {
    /// Octets both ways.
    Tcp,
    /// Requests and responses.
    Http,
}

impl ProxyProtocol {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Http];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
        }
    }
}

/// `timeouts` of a proxy service: how long it waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProxyTimeouts {
    /// For a whole request head, from its first octet; of a new connection, from its start.
    pub request: Duration,
    /// For the next request on a connection that had one.
    pub idle: Duration,
    /// For a client that sends a body, or takes a response, and does neither.
    pub client: Duration,
    /// For a server to accept a connection.
    pub connect: Duration,
    /// For a server's response to go on, and to begin where `response` says nothing else.
    pub server: Duration,
    /// For a server's response to begin; `None` = as `server` says.
    pub response: Option<Duration>,
    /// For either side of a TCP service or of another protocol that a client upgraded to.
    pub tunnel: Duration,
    /// From the end of a request's head to the end of its response; `None` = as long as it takes.
    pub total: Option<Duration>,
}

impl ProxyTimeouts {
    /// Shortest and longest of each.
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

/// `limits` of a proxy service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProxyLimits {
    /// Octets of a request's or a response's head.
    pub head: u32,
    /// Field lines of a head.
    pub fields: u32,
    /// Clients connected at once; further ones wait to be accepted. Over all workers.
    pub connections: u32,
    /// Other servers that are tried when one cannot be reached.
    pub retries: u32,
    /// Connections that wait for their next request, for each server and worker.
    pub idle_servers: u32,
    /// Requests that one connection to a server serves; 0 = any number.
    pub server_requests: u32,
    /// Streams of one HTTP/2 client at once.
    pub streams: u32,
    /// HTTP/2 streams that one client network may reset in a second; 0 = any number.
    pub resets: u32,
    /// Octets of a request's body; 0 = any number.
    pub body: u32,
    /// Requests a second of one client; 0 = any number.
    pub rate: u32,
    /// Requests at once after a silence; 0 = as many as `rate`.
    pub burst: u32,
    /// Requests of one client under way; 0 = any number.
    pub concurrent: u32,
    /// Requests that may be sent a second time, in percent of all.
    pub retry_budget: u32,
}

impl ProxyLimits {
    /// Smallest and largest `head`.
    pub const HEAD: (u32, u32) = (1 << 10, 64 << 10);
    /// Smallest and largest `fields`.
    pub const FIELDS: (u32, u32) = (8, 1_000);
    /// Smallest and largest `connections`.
    pub const CONNECTIONS: (u32, u32) = (1, 10_000_000);
    /// Smallest and largest `retries`.
    pub const RETRIES: (u32, u32) = (0, 16);
    /// Smallest and largest `idle_servers`; 0 = a connection for each request.
    pub const IDLE_SERVERS: (u32, u32) = (0, 100_000);
    /// Smallest and largest `server_requests`.
    pub const SERVER_REQUESTS: (u32, u32) = (0, 1_000_000_000);
    /// Smallest and largest `streams`.
    pub const STREAMS: (u32, u32) = (1, 1_000);
    /// Smallest and largest `resets`.
    pub const RESETS: (u32, u32) = (0, 60_000);
    /// Smallest and largest `rate` and `burst`.
    pub const RATE: (u32, u32) = (0, 60_000);
    /// Smallest and largest `retry_budget`.
    pub const RETRY_BUDGET: (u32, u32) = (0, 1_000);
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
            rate: 0,
            burst: 0,
            concurrent: 0,
            retry_budget: 100,
        }
    }
}

/// A network, for `trusted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    /// Its first address, or any in it.
    pub address: IpAddr,
    /// Prefix length, at most the family's.
    pub prefix: u8,
}

impl Network {
    /// Whether `address` is in it; families never meet.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, bits: u8| match bits {
            0 => true,
            bits => (a ^ b) >> (128 - u32::from(bits)) == 0,
        };
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(
                u128::from(a.to_bits()) << 96,
                u128::from(b.to_bits()) << 96,
                self.prefix,
            ),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), self.prefix),
            _ => false,
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// A `[service.NAME]` with `forward = "proxy"`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Proxy {
    /// Name, unique among services of every forward.
    pub name: String,
    /// Where it listens, in file order; at least one, none of them in another proxy service.
    pub listen: Vec<SocketAddr>,
    /// What it understands.
    pub protocol: ProxyProtocol,
    /// Name of the pool, for requests that fit no route.
    pub pool: String,
    /// Routes in file order, the first that fits decides; of a `tcp` service none.
    pub routes: Vec<Route>,
    /// In which form paths are compared; `None` = as they are received.
    pub normalize_path: Option<NormalizePath>,
    /// TLS with its clients; `None` = none.
    pub tls: Option<ServiceTls>,
    /// Whether clients may speak HTTP/2; of a `tcp` service nothing.
    pub http2: bool,
    /// How long it waits for what.
    pub timeouts: ProxyTimeouts,
    /// How much it takes.
    pub limits: ProxyLimits,
    /// What makes it send a request to another server.
    pub retry_on: RetryOn,
    /// By what `rate` and `concurrent` tell clients apart.
    pub limit_key: HashKey,
    /// How servers are told of the client.
    pub forwarded: Forwarded,
    /// What becomes of a request's fields with `_` in their names.
    pub underscores: Underscores,
    /// Whether clients may ask servers for tunnels by CONNECT.
    pub connect: bool,
    /// Whether a client that closes its direction of the connection ends its request; of a `tcp` service nothing.
    pub abort_on_close: bool,
    /// Whether a request's content is collected, up to a bound, before a server is chosen.
    pub request_buffering: bool,
    /// What stands in place of the status in words; the first that fits.
    pub error_pages: Vec<ErrorPage>,
    /// `None` = bodies go through as they come.
    pub compression: Option<Compression>,
    /// Proxies whose word about their clients is believed.
    pub trusted: Vec<Network>,
    /// Clients say in front of the first octet for whom they speak; with `trusted`, only those.
    pub proxy_protocol: bool,
    /// A line for each exchange.
    pub access_log: Option<AccessLog>,
    /// Where the service's table begins.
    pub source: Source,
}

impl Proxy {
    /// What a pool without a scheduler gives an `http` service, and what it gives a `tcp` one.
    pub const fn default_scheduler(protocol: ProxyProtocol) -> Scheduler {
        Scheduler::new(match protocol {
            ProxyProtocol::Http => SchedulerKind::P2c,
            ProxyProtocol::Tcp => SchedulerKind::Wlc,
        })
    }

    /// The pools that its requests may go to, its own first, each once.
    pub fn pools(&self) -> Vec<&str> {
        let mut pools = vec![self.pool.as_str()];
        for pool in self.routes.iter().flat_map(|route| route.action.pools()) {
            if !pools.contains(&pool) {
                pools.push(pool);
            }
        }
        pools
    }

    /// A service without listeners, with the defaults.
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
            underscores: Underscores::default(),
            connect: false,
            abort_on_close: true,
            request_buffering: true,
            error_pages: Vec::new(),
            compression: None,
            trusted: Vec::new(),
            proxy_protocol: false,
            access_log: None,
            source: Source::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_what_its_prefix_says() {
        let network = |address: &str, prefix| Network {
            address: address.parse().unwrap(),
            prefix,
        };
        let holds = |n: Network, a: &str| n.contains(a.parse().unwrap());
        assert!(holds(network("10.0.0.0", 8), "10.255.0.1"));
        assert!(!holds(network("10.0.0.0", 8), "11.0.0.1"));
        assert!(holds(network("0.0.0.0", 0), "192.0.2.1"));
        assert!(!holds(network("0.0.0.0", 0), "2001:db8::1"));
        assert!(holds(network("192.0.2.1", 32), "192.0.2.1"));
        assert!(!holds(network("192.0.2.1", 32), "192.0.2.0"));
        assert!(holds(network("2001:db8::", 33), "2001:db8:7fff::1"));
        assert!(!holds(network("2001:db8::", 33), "2001:db8:8000::1"));
    }
}
