//! Health checks: what is asked of a server, how often, and what becomes of the answer.
//!
//! A [`Check`] says what to do and not to whom: the same one serves every server of every pool that names it. Which port it
//! goes to follows from the check, the server and the listeners, in that order ([`Check::port`]).

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::{Desired, Digest, Forward, Pattern, Ports, Protocol, Server, Service, Tunnel};

/// One check of a pool or a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Check {
    /// What is asked.
    pub probe: Probe,
    /// Where it goes, where that is not the server itself.
    pub aim: Aim,
    /// How often, how long, how many.
    pub timing: Timing,
    /// What holds before the first result.
    pub start: Start,
    /// What becomes of a server that fails.
    pub on_failure: OnFailure,
}

impl Check {
    /// A check with every default.
    pub fn new(probe: Probe) -> Self {
        Self {
            probe,
            aim: Aim::default(),
            timing: Timing::default(),
            start: Start::default(),
            on_failure: OnFailure::default(),
        }
    }

    /// The port that this check of a server goes to: its own, the server's, or the `listening` one of
    /// [`Desired::check_ports`]; `None` = there is none, or the probe needs none.
    pub fn port(&self, server: &Server, listening: Option<u16>) -> Option<u16> {
        self.probe
            .needs_port()
            .then_some(self.aim.port.or(server.port).or(listening))?
    }
}

/// Where probes go and how they leave.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Aim {
    /// In place of the server's.
    pub address: Option<IpAddr>,
    /// In place of the server's, and of the listener's.
    pub port: Option<u16>,
    /// Source address; `None` = the kernel's choice.
    pub source: Option<IpAddr>,
    /// Interface that probes leave by; `None` = the kernel's choice.
    pub interface: Option<String>,
    /// PROXY protocol header in front of the first byte.
    pub proxy_protocol: Option<ProxyHeader>,
    /// Which ways probes take.
    pub via: Via,
    /// By TLS; `None` = in the clear.
    pub tls: Option<CheckTls>,
}

/// Whom a probe by TLS takes for the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckTls {
    /// Whether the certificate is verified.
    pub verify: bool,
    /// File with the certificates of authorities, PEM; `None` = the system's.
    pub ca: Option<String>,
    /// The name that is sent and that the certificate must be for; `None` = the address, and none is sent.
    pub server_name: Option<String>,
}

impl Default for CheckTls {
    fn default() -> Self {
        Self {
            verify: true,
            ca: None,
            server_name: None,
        }
    }
}

/// Which ways probes take to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Via {
    /// To the server's own address.
    #[default]
    Server,
    /// Through the forward of each layer 4 service that uses the pool, with the VIP as destination.
    Path,
    /// Both; a server needs both.
    Both,
}

impl Via {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Server, Self::Path, Self::Both];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Path => "path",
            Self::Both => "both",
        }
    }

    /// Whether probes go through a service's forward.
    pub const fn through_path(self) -> bool {
        matches!(self, Self::Path | Self::Both)
    }
}

/// A way through a service's forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Way {
    /// What the server is to see as destination; under `nat`, as source.
    pub vip: IpAddr,
    /// The port of the service.
    pub port: u16,
    /// How the service sends to that server.
    pub forward: Forward,
    /// Encapsulation of `tunnel`.
    pub tunnel: Tunnel,
    /// Mark of `l3dsr`.
    pub dscp: u8,
    /// Under `nat` without source rewriting, where a server's answers must come back through the director.
    pub source_is_vip: bool,
}

/// Version of the PROXY protocol (HAProxy's proxy-protocol.txt).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyHeader {
    /// The text line; probes say `PROXY TCP4 …` with their own addresses.
    V1,
    /// The binary header; probes say LOCAL.
    V2,
}

impl ProxyHeader {
    /// Every version.
    pub const ALL: [Self; 2] = [Self::V1, Self::V2];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// How often probes go out, how long they may take, and how many of a kind decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Between probes of a server that is up.
    pub interval: Duration,
    /// Between probes of a server that is down; `None` = `interval`.
    pub interval_down: Option<Duration>,
    /// Between probes of a server that is down and passed its last probe; `None` = `interval`.
    pub interval_rising: Option<Duration>,
    /// Of the whole probe: connecting, TLS, question and answer.
    pub timeout: Duration,
    /// Probes in a row that must pass to bring a server up.
    pub rise: u32,
    /// Probes in a row that must fail to take a server down.
    pub fall: u32,
}

impl Timing {
    /// Smallest and largest interval.
    pub const INTERVAL: (Duration, Duration) =
        (Duration::from_millis(50), Duration::from_secs(86_400));
    /// Smallest and largest timeout.
    pub const TIMEOUT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(300));
    /// Smallest and largest `rise` and `fall`.
    pub const COUNT: (u32, u32) = (1, 100);
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            interval_down: None,
            interval_rising: None,
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
        }
    }
}

/// What holds of a server before its first result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Start {
    /// Used only while no other server is up; the first result decides at once.
    #[default]
    Checking,
    /// Taken for up; `fall` failures take it down.
    Up,
    /// Taken for down; `rise` passes bring it up.
    Down,
}

impl Start {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Checking, Self::Up, Self::Down];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Checking => "checking",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// What becomes of a server that a check takes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnFailure {
    /// Weight 0: its flows live on.
    #[default]
    Quiesce,
    /// Its flows meet the pool's `on_remove`.
    Remove,
}

impl OnFailure {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Quiesce, Self::Remove];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiesce => "quiesce",
            Self::Remove => "remove",
        }
    }
}

/// How several checks of one server make one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Require {
    /// Up when every check says so.
    #[default]
    All,
    /// Up when one check says so.
    Any,
}

impl Require {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::All, Self::Any];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Any => "any",
        }
    }
}

/// What a pool does with the states of its servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Health {
    /// How several checks make one state.
    pub require: Require,
    /// How long the weight of a server that comes back grows; zero = at once.
    pub slow_start: Duration,
    /// Sum of weights below which the sorry server is used in place of all others; 0 = none.
    pub quorum: u32,
    /// How far the sum must rise above, or fall below, `quorum` to change anything.
    pub quorum_hysteresis: u32,
    /// Share of servers that are down, in percent, above which all are used as if they were up; `None` = never.
    pub panic_threshold: Option<u32>,
    /// Share of servers, in percent, that may be ejected for what clients' packets say of them; 0 = none ever is.
    pub max_ejected: u32,
    /// Program and arguments, called when a check changes a server's state; empty = none.
    pub notify: Vec<String>,
}

impl Health {
    /// [`Self::max_ejected`] where none is given.
    pub const DEFAULT_MAX_EJECTED: u32 = 50;
}

impl Default for Health {
    fn default() -> Self {
        Self {
            require: Require::default(),
            slow_start: Duration::ZERO,
            quorum: 0,
            quorum_hysteresis: 0,
            panic_threshold: None,
            max_ejected: Self::DEFAULT_MAX_EJECTED,
            notify: Vec::new(),
        }
    }
}

/// The keys that differ from their defaults.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "require {}", self.require.as_str())?;
        if !self.slow_start.is_zero() {
            write!(f, ", slow_start {:?}", self.slow_start)?;
        }
        if self.quorum > 0 {
            write!(f, ", quorum {} ± {}", self.quorum, self.quorum_hysteresis)?;
        }
        if let Some(percent) = self.panic_threshold {
            write!(f, ", panic_threshold {percent} %")?;
        }
        if self.max_ejected != Self::DEFAULT_MAX_EJECTED {
            write!(f, ", max_ejected {} %", self.max_ejected)?;
        }
        if let Some(program) = self.notify.first() {
            write!(f, ", notify {program}")?;
        }
        Ok(())
    }
}

/// What is asked of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Probe {
    /// A connection comes about.
    #[default]
    Tcp,
    /// A request is answered as expected.
    Http(Box<Http>),
    /// The server says that it serves (gRPC health checking protocol, `grpc.health.v1.Health/Check`).
    Grpc {
        /// Which of its services; empty = the server as a whole.
        service: String,
    },
    /// A mail server greets and knows us (RFC 5321).
    Smtp {
        /// What the director calls itself.
        helo: String,
    },
    /// PING is answered with PONG.
    Redis,
    /// A MySQL server greets, and says what it thinks of an account; that it refuses it passes.
    Mysql {
        /// Account.
        user: String,
    },
    /// A PostgreSQL server takes a start-up message; that it asks for a password passes.
    Postgres {
        /// Account.
        user: String,
    },
    /// The server says its weight or state (HAProxy's agent-check).
    Agent {
        /// What is sent first.
        send: Option<String>,
    },
    /// A name is resolved (RFC 1035).
    Dns {
        /// The name.
        name: String,
        /// Which record.
        record: DnsRecord,
        /// An address that must be in the answer; `None` = any record of that kind.
        answer: Option<IpAddr>,
    },
    /// A datagram is answered.
    Udp {
        /// What is sent.
        payload: Vec<u8>,
        /// What the answer must begin with, `None` = any octet there; absent = any answer.
        bytes: Option<Vec<Option<u8>>>,
    },
    /// An ICMP echo is answered.
    Ping,
    /// A program of the director says so by its exit code.
    Script(Script),
    /// A file of the director holds the weight.
    File {
        /// Its place, absolute.
        path: String,
    },
}

/// A program and how it is called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Script {
    /// Program and arguments; no shell sees them.
    pub command: Vec<String>,
    /// Account that it runs as.
    pub user: String,
    /// Whether codes from 2 to 255 pass, with a weight of two less.
    pub dynamic: bool,
}

/// What a DNS check asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DnsRecord {
    /// An IPv4 address.
    #[default]
    A,
    /// An IPv6 address.
    Aaaa,
    /// Mail servers.
    Mx,
    /// Name servers.
    Ns,
    /// A zone's start of authority.
    Soa,
    /// Texts.
    Txt,
}

impl DnsRecord {
    /// Every choice.
    pub const ALL: [Self; 6] = [
        Self::A,
        Self::Aaaa,
        Self::Mx,
        Self::Ns,
        Self::Soa,
        Self::Txt,
    ];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Mx => "MX",
            Self::Ns => "NS",
            Self::Soa => "SOA",
            Self::Txt => "TXT",
        }
    }

    /// The number in messages (RFC 1035 §3.2.2, RFC 3596).
    pub const fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Ns => 2,
            Self::Soa => 6,
            Self::Mx => 15,
            Self::Txt => 16,
            Self::Aaaa => 28,
        }
    }
}

impl Probe {
    /// The name in configuration.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http(_) => "http",
            Self::Grpc { .. } => "grpc",
            Self::Smtp { .. } => "smtp",
            Self::Redis => "redis",
            Self::Mysql { .. } => "mysql",
            Self::Postgres { .. } => "postgres",
            Self::Agent { .. } => "agent",
            Self::Dns { .. } => "dns",
            Self::Udp { .. } => "udp",
            Self::Ping => "ping",
            Self::Script(_) => "script",
            Self::File { .. } => "file",
        }
    }

    /// What it is carried by; `None` = not by TCP or UDP.
    pub const fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Dns { .. } | Self::Udp { .. } => Some(Protocol::Udp),
            Self::Ping | Self::Script(_) | Self::File { .. } => None,
            _ => Some(Protocol::Tcp),
        }
    }

    /// Whether it goes to a port.
    pub const fn needs_port(&self) -> bool {
        !matches!(self, Self::Ping | Self::Script(_) | Self::File { .. })
    }
}

/// An HTTP request and the answer that passes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Http {
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Minor version of HTTP/1: 0 or 1.
    pub minor_version: u8,
    /// `Host`; `None` = the server's address.
    pub host: Option<String>,
    /// Further fields, name and value.
    pub headers: Vec<(String, String)>,
    /// Body of the request.
    pub body: Option<String>,
    /// Status codes that pass, ranges with both ends.
    pub status: Vec<(u16, u16)>,
    /// Text that must be in the answer's body.
    pub contains: Option<String>,
    /// Pattern that must be found in it.
    pub pattern: Option<Pattern>,
    /// Pattern that must not be found in it.
    pub without: Option<Pattern>,
    /// Digest of the whole of it.
    pub digest: Option<Digest>,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            minor_version: 1,
            host: None,
            headers: Vec::new(),
            body: None,
            status: vec![(200, 399)],
            contains: None,
            pattern: None,
            without: None,
            digest: None,
        }
    }
}

impl Check {
    /// The way of this check's probes to a server through a service; `None` = the service has no listener of the probe's
    /// protocol and the server's family with a single port, and the check names none.
    pub fn way(&self, service: &Service, server: &Server) -> Option<Way> {
        let protocol = self.probe.protocol()?;
        let forward = server.forward_in(service);
        let fits = |address: &IpAddr| address.is_ipv4() == server.address.is_ipv4();
        let listeners = service
            .listen
            .iter()
            .filter(|listener| listener.protocol == protocol && fits(&listener.address));
        listeners
            .filter_map(|listener| {
                let port = self.aim.port.or(match listener.ports {
                    Ports::One(port) => Some(port),
                    _ => None,
                })?;
                let rewritten = server.port.filter(|_| forward.rewrites_port());
                Some(Way {
                    vip: listener.address,
                    port: self.aim.port.or(rewritten).unwrap_or(port),
                    forward,
                    tunnel: server.tunnel_in(service),
                    dscp: service.dscp,
                    source_is_vip: forward == Forward::Nat && service.snat.is_none(),
                })
            })
            .next()
    }
}

impl Desired {
    /// Layer 4 services by the pool that they use, in file order.
    pub fn services_by_pool(&self) -> HashMap<&str, Vec<&Service>> {
        let mut by_pool: HashMap<&str, Vec<&Service>> = HashMap::new();
        for service in &self.services {
            by_pool.entry(&service.pool).or_default().push(service);
        }
        by_pool
    }

    /// Whether some check goes through a service's forward.
    pub fn probes_paths(&self) -> bool {
        let through = |checks: &[Check]| checks.iter().any(|check| check.aim.via.through_path());
        self.pools.iter().any(|pool| {
            let servers = pool.servers.iter().chain(&pool.sorry);
            let own = servers.filter_map(|it| it.checks.as_deref());
            through(&pool.checks) || own.into_iter().any(through)
        })
    }

    /// The first exact port that a service of each pool listens on, by pool: where checks go that have no other.
    pub fn check_ports(&self) -> HashMap<&str, u16> {
        let mut ports = HashMap::new();
        for service in &self.services {
            let port = service
                .listen
                .iter()
                .find_map(|listener| match listener.ports {
                    Ports::One(port) => Some(port),
                    _ => None,
                });
            if let Some(port) = port {
                ports.entry(service.pool.as_str()).or_insert(port);
            }
        }
        for proxy in &self.proxies {
            if let Some(listen) = proxy.listen.first() {
                ports.entry(proxy.pool.as_str()).or_insert(listen.port());
            }
        }
        ports
    }
}
