//! The desired state: node, timeouts, pools with servers, services.
//!
//! Order is meaning: servers in file order are the order of adding that IPVS's schedulers depend on, services in file
//! order are the order of every listing.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::{
    Admin, Check, Family, Forward, HashKey, Health, Ipvs, Listener, Mark, Proxy, ProxyHeader,
    Scheduler, Secret, ServerTls, ServersDns, Snat, Sticky, Tunnel,
};

/// The largest weight, ipvsadm's limit.
pub const MAX_WEIGHT: u32 = 65_535;

/// Where a thing was written, for messages; it takes no part in [`diff`](crate::diff()), nor in a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Source {
    /// Line, from 1; 0 = not from a file.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// Two things that differ in their places alone have one hash: a line more above them changes nothing about them.
impl Hash for Source {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Everything that one configuration asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Desired {
    /// The director itself.
    pub node: Node,
    /// Timeouts of flows.
    pub timeouts: Timeouts,
    /// The keys of IPVS's sysctls.
    pub ipvs: Ipvs,
    /// Each `[check.NAME]` with its name, in file order. Pools and servers hold those that they name themselves; here they are for
    /// lists of servers, which may name them too.
    pub checks: Vec<(String, Check)>,
    /// Pools in file order, names unique.
    pub pools: Vec<Pool>,
    /// Layer 4 services in file order, names unique.
    pub services: Vec<Service>,
    /// Proxy services in file order; names unique over these and the layer 4 services.
    pub proxies: Vec<Proxy>,
}

impl Desired {
    /// The `[check.NAME]` of that name.
    pub fn check(&self, name: &str) -> Option<&Check> {
        let mut checks = self.checks.iter();
        checks.find(|(own, _)| own == name).map(|(_, check)| check)
    }

    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The service of that name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// All its secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let cookies = self
            .pools
            .iter()
            .filter_map(|pool| pool.sticky.as_ref()?.secret.as_ref());
        let tickets = self.proxies.iter().filter_map(|proxy| proxy.tls.as_ref());
        cookies.chain(tickets.flat_map(|tls| &tls.ticket_keys))
    }

    /// Addresses that proxy services listen on and that some machine must have: neither unspecified nor of the loopback.
    pub fn proxied_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let listeners = self.proxies.iter().flat_map(|proxy| &proxy.listen);
        listeners
            .map(SocketAddr::ip)
            .filter(|ip| !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast())
    }

    /// The proxy service of that name.
    pub fn proxy(&self, name: &str) -> Option<&Proxy> {
        self.proxies.iter().find(|proxy| proxy.name == name)
    }
}

/// `[node]`: the director itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// Interfaces that XDP attaches to; `None` = found from the routes to VIPs and servers.
    pub interfaces: Option<Vec<String>>,
    /// Where on them the packet path runs.
    pub attach: Attach,
    /// Interface that gets the missing VIPs; `None` = Weir adds none.
    pub vip_interface: Option<String>,
    /// HTTP API, metrics and dashboard over TCP; `None` = unix socket only.
    pub admin: Option<Admin>,
    /// The group of the runtime directory and of the control socket; `None` = that of the process.
    pub socket_group: Option<String>,
    /// Who may use the control socket.
    pub socket_mode: SocketMode,
    /// Places in the flow table.
    pub max_flows: u32,
    /// Servers over all pools.
    pub max_servers: u32,
    /// Services of both origins.
    pub max_services: u32,
    /// New entries per CPU and second; above it a SYN or a datagram is hashed without an entry.
    pub syn_budget: u32,
    /// What proxied connections get between SIGTERM and exit.
    pub drain_timeout: Duration,
}

impl Node {
    /// Smallest and largest `max_flows`.
    pub const MAX_FLOWS: (u32, u32) = (1 << 10, 1 << 27);
    /// Smallest and largest `max_servers`.
    pub const MAX_SERVERS: (u32, u32) = (1, 1 << 20);
    /// Smallest and largest `max_services`.
    pub const MAX_SERVICES: (u32, u32) = (1, 1 << 18);
    /// Smallest and largest `syn_budget`; 0 = no flow gets an entry, but those of UDP under nat.
    pub const SYN_BUDGET: (u32, u32) = (0, 100_000_000);
}

/// Where on an interface the packet path runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Attach {
    /// XDP, native where the driver has it; at tc where a paravirtual driver refuses it.
    #[default]
    Auto,
    /// XDP everywhere.
    Xdp,
    /// At tc everywhere.
    Tc,
}

impl Attach {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Xdp, Self::Tc];

    /// The word in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::Tc => "tc",
        }
    }
}

/// The mode of the control socket. Other users never reach it: the directory that it is in is closed to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SocketMode {
    /// Its owner alone.
    #[default]
    Owner,
    /// Its group, too.
    Group,
}

impl SocketMode {
    /// Every mode.
    pub const ALL: [Self; 2] = [Self::Owner, Self::Group];

    /// The mode in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "0600",
            Self::Group => "0660",
        }
    }

    /// Whether the group may use it.
    pub const fn is_for_group(self) -> bool {
        matches!(self, Self::Group)
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            interfaces: None,
            attach: Attach::default(),
            vip_interface: None,
            admin: None,
            socket_group: None,
            socket_mode: SocketMode::default(),
            max_flows: 1 << 20,
            max_servers: 16_384,
            max_services: 4_096,
            syn_budget: 125_000,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// `[timeouts]`: how long a silent flow lives, ipvsadm's `--set`; whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// Established TCP.
    pub tcp: Duration,
    /// TCP after a FIN.
    pub tcp_fin: Duration,
    /// UDP.
    pub udp: Duration,
}

impl Timeouts {
    /// The longest that ipvsadm accepts, 31 days.
    pub const MAX: Duration = Duration::from_secs(31 * 86_400);
}

/// The kernel's defaults (net/netfilter/ipvs/ip_vs_proto_tcp.c, ip_vs_proto_udp.c).
impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp: Duration::from_secs(900),
            tcp_fin: Duration::from_secs(120),
            udp: Duration::from_secs(300),
        }
    }
}

/// What a client gets when no server is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum NoServer {
    /// ICMP port unreachable, rate-limited.
    #[default]
    Reject,
    /// Silence.
    Drop,
}

impl NoServer {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Reject, Self::Drop];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Drop => "drop",
        }
    }
}

/// What becomes of the flows of a server that was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum OnRemove {
    /// They live on.
    #[default]
    Keep,
    /// They are answered with a reset.
    Reset,
    /// Their next packet chooses a server anew.
    Reschedule,
}

impl OnRemove {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Keep, Self::Reset, Self::Reschedule];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Reset => "reset",
            Self::Reschedule => "reschedule",
        }
    }
}

/// `[pool.NAME]`: servers that stand in for each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Name, unique among pools.
    pub name: String,
    /// Scheduler; `None` = chosen per service, [`Scheduler::L4_DEFAULT`] for L4.
    pub scheduler: Option<Scheduler>,
    /// Servers in file order; no address and port twice.
    pub servers: Vec<Server>,
    /// A file, absolute, that lists more servers, and that others change.
    pub servers_file: Option<String>,
    /// More servers, that the domain name system knows.
    pub servers_dns: Option<ServersDns>,
    /// Used when no other server is usable, unless its own checks say that it is down.
    pub sorry: Option<Server>,
    /// What clients get when no server is usable, the sorry server neither.
    pub no_server: NoServer,
    /// What becomes of a removed server's flows.
    pub on_remove: OnRemove,
    /// TLS with the servers, of proxy services; `None` = none.
    pub tls: Option<ServerTls>,
    /// Proxy services speak HTTP/2 with the servers.
    pub http2: bool,
    /// Checks of servers that have none of their own.
    pub checks: Vec<Check>,
    /// What follows from the states of the servers.
    pub health: Health,
    /// By what the scheduler `hash` tells requests apart.
    pub hash_key: HashKey,
    /// How long a request of a proxy service waits for a server that is at its `max_connections`.
    pub queue_timeout: Duration,
    /// Clients of `http` services stay with a server.
    pub sticky: Option<Sticky>,
    /// What proxy services tell a server of the client in front of the first octet.
    pub proxy_protocol: Option<ProxyHeader>,
    /// Where the pool's table begins.
    pub source: Source,
}

impl Pool {
    /// How long a request waits for a server where nothing else is said.
    pub const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

    /// An empty pool with the defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            scheduler: None,
            servers: Vec::new(),
            servers_file: None,
            servers_dns: None,
            sorry: None,
            no_server: NoServer::default(),
            on_remove: OnRemove::default(),
            tls: None,
            http2: false,
            checks: Vec::new(),
            health: Health::default(),
            hash_key: HashKey::default(),
            queue_timeout: Self::QUEUE_TIMEOUT,
            sticky: None,
            proxy_protocol: None,
            source: Source::default(),
        }
    }

    /// The scheduler that an L4 service of this pool uses.
    pub fn l4_scheduler(&self) -> Scheduler {
        self.scheduler.unwrap_or(Scheduler::L4_DEFAULT)
    }

    /// The server whose address is written so.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// The checks of one of its servers: its own, else the pool's. A sorry server has only its own: it does not answer as the
    /// others do.
    pub fn checks_of<'a>(&'a self, server: &'a Server) -> &'a [Check] {
        let key = |server: &Server| (server.address, server.port);
        let is_sorry = self.sorry.as_ref().is_some_and(|it| key(it) == key(server));
        match &server.checks {
            Some(own) => own,
            None if is_sorry => &[],
            None => &self.checks,
        }
    }
}

/// One server of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// The address as written in the file, port included; what `weir server POOL/ADDRESS` takes.
    pub name: String,
    /// Address.
    pub address: IpAddr,
    /// Port; `None` = the port that the client used.
    pub port: Option<u16>,
    /// Configured weight, 0 to [`MAX_WEIGHT`]; 0 = quiesced.
    pub weight: u32,
    /// No new flows at this many connections and above, IPVS's upper threshold; 0 = no limit.
    pub max_connections: u32,
    /// After `max_connections` was reached: new flows again below this many; 0 = three quarters of it.
    pub min_connections: u32,
    /// Used only when no other server of the pool is usable; proxy services only.
    pub backup: bool,
    /// In place of the service's.
    pub forward: Option<Forward>,
    /// In place of the service's.
    pub tunnel: Option<Tunnel>,
    /// In place of the pool's; see [`Pool::checks_of`].
    pub checks: Option<Vec<Check>>,
    /// Where the address is written.
    pub source: Source,
}

impl Server {
    /// A server of weight 1 with the service's forward.
    pub fn new(name: impl Into<String>, address: IpAddr, port: Option<u16>) -> Self {
        Self {
            name: name.into(),
            address,
            port,
            weight: 1,
            max_connections: 0,
            min_connections: 0,
            backup: false,
            forward: None,
            tunnel: None,
            checks: None,
            source: Source::default(),
        }
    }

    /// The forwarding method of this server in that service.
    pub fn forward_in(&self, service: &Service) -> Forward {
        self.forward.unwrap_or(service.forward)
    }

    /// The encapsulation of this server in that service.
    pub fn tunnel_in(&self, service: &Service) -> Tunnel {
        self.tunnel.unwrap_or(service.tunnel)
    }
}

/// Clients of one network go to one server, IPVS's `-p` and `-M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Persistence {
    /// How long a client's choice is remembered.
    pub timeout: Duration,
    /// Prefix length of an IPv4 client network, 1 to 32.
    pub netmask: u8,
    /// Prefix length of an IPv6 client network, 1 to 128.
    pub netmask6: u8,
}

/// `5m /32 /128`.
impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timeout = crate::diff::duration(&self.timeout);
        write!(f, "{timeout} /{} /{}", self.netmask, self.netmask6)
    }
}

impl Persistence {
    /// The longest that ipvsadm accepts, 31 days.
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(31 * 86_400);
}

/// IPVS's: 5 minutes, single clients.
impl Default for Persistence {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(300),
            netmask: 32,
            netmask6: 128,
        }
    }
}

/// `[service.NAME]`: what clients connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Service {
    /// Name, unique among services.
    pub name: String,
    /// Listeners in file order, none of them in another service; at least one, or a mark.
    pub listen: Vec<Listener>,
    /// Firewall marks in file order, none of them in another service.
    pub marks: Vec<Mark>,
    /// Forwarding method of servers that name none.
    pub forward: Forward,
    /// Encapsulation of `tunnel` servers that name none.
    pub tunnel: Tunnel,
    /// Source rewriting of `nat` servers; `None` = the client's address stays.
    pub snat: Option<Snat>,
    /// DSCP mark of `l3dsr` flows, 0 to 63; 0 = no mark.
    pub dscp: u8,
    /// Name of the pool.
    pub pool: String,
    /// Behave as the kernel does, to the last choice.
    pub strict_ipvs: bool,
    /// Persistence; `None` = every flow is scheduled.
    pub persistence: Option<Persistence>,
    /// Every UDP packet is scheduled, IPVS's `-o`.
    pub one_packet: bool,
    /// Where the service's table begins.
    pub source: Source,
}

impl Service {
    /// The mark of an `l3dsr` service that names none.
    pub const DEFAULT_DSCP: u8 = 1;

    /// A service without listeners, with the defaults.
    pub fn new(name: impl Into<String>, forward: Forward, pool: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            listen: Vec::new(),
            marks: Vec::new(),
            forward,
            tunnel: Tunnel::default(),
            snat: None,
            dscp: Self::DEFAULT_DSCP,
            pool: pool.into(),
            strict_ipvs: false,
            persistence: None,
            one_packet: false,
            source: Source::default(),
        }
    }

    /// What it listens on, as it is written: addresses, then marks.
    pub fn listens_on(&self) -> Vec<String> {
        let addresses = self.listen.iter().map(ToString::to_string);
        addresses
            .chain(self.marks.iter().map(ToString::to_string))
            .collect()
    }

    /// The family of its first listener or mark.
    pub fn family(&self) -> Option<Family> {
        let first = self.listen.first().map(Listener::family);
        first.or_else(|| self.marks.first().map(|mark| mark.family))
    }
}
