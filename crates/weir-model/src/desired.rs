//! Defines the desired state: node, timeouts, pools with servers, services.
//!
//! Order is significant. Weir adds servers in file order, because IPVS schedulers depend on the order. Listings show
//! services in file order.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::Notifier;
use crate::unix_socket;
use crate::{
    Admin, Announce, Check, CheckAuthority, Cluster, Family, FlowSync, Forward, HashKey, Health,
    Ipvs, Listener, Mark, Proxy, ProxyHeader, Scheduler, Secret, ServerTls, ServersDns, Snat,
    Sticky, Template, Tracing, Tunnel, VirtualRouter,
};

/// The maximum weight, which is ipvsadm's limit.
pub const MAX_WEIGHT: u32 = 65_535;

/// Position in the configuration file, for messages. [`diff`](crate::diff()) and hashes ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Source {
    /// Line, from 1; 0 = not from a file.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// File index; 0 = the main file, others = included files.
    pub file: u32,
}

/// Values that differ only in their positions have the same hash, so inserting a line does not count as a change.
impl Hash for Source {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A complete configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Desired {
    /// File names, indexed by [`Source::file`]; the name of the main file is empty. Without `include`, the list is
    /// empty.
    pub files: Vec<String>,
    /// The director itself.
    pub node: Node,
    /// Flow timeouts.
    pub timeouts: Timeouts,
    /// IPVS settings.
    pub ipvs: Ipvs,
    /// Each `[check.NAME]` with its name, in file order. Pools and servers contain copies of the checks that they
    /// reference; this list is for external server lists, which may also reference checks.
    pub checks: Vec<(String, Check)>,
    /// The CA files of all checks that verify certificates, in file order.
    pub check_authorities: Vec<CheckAuthority>,
    /// Pools in file order, names unique.
    pub pools: Vec<Pool>,
    /// Layer 4 services in file order, names unique.
    pub services: Vec<Service>,
    /// Proxy services in file order; each name is unique among these and the layer 4 services.
    pub proxies: Vec<Proxy>,
    /// Virtual routers in file order, names unique.
    pub vrrp: Vec<VirtualRouter>,
    /// BGP announcement of VIPs; `None` = off.
    pub announce: Option<Announce>,
    /// Flow synchronization; `None` = off.
    pub sync: Option<FlowSync>,
    /// The group of directors that share state in etcd; `None` = no group.
    pub cluster: Option<Cluster>,
    /// Receivers of messages about state changes, in file order, names unique.
    pub notifiers: Vec<Notifier>,
    /// Traces of proxied requests; `None` = off.
    pub tracing: Option<Tracing>,
}

impl Desired {
    /// Returns the name of the file that contains a position; `main` is the name of the main file.
    pub fn file_name<'a>(&'a self, source: Source, main: &'a str) -> &'a str {
        let name = self
            .files
            .get(source.file as usize)
            .map_or("", String::as_str);
        if name.is_empty() { main } else { name }
    }

    /// Returns whether a position is in the part of the configuration that the group of directors published.
    pub fn is_published(&self, source: Source) -> bool {
        let file = self.files.get(source.file as usize);
        let group = self.cluster.as_ref().map(|cluster| cluster.name.as_str());
        file.and_then(|name| name.strip_prefix(Cluster::PUBLISHED))
            .is_some_and(|name| Some(name) == group)
    }

    /// Returns why a server that is not in the configuration cannot be added to a pool; `None` if it can be added. Only
    /// pools that the group published are restricted, and only with `[cluster.publish]`.
    pub fn unpublishable_reason(&self, pool: &Pool, server: IpAddr) -> Option<String> {
        let publish = self.cluster.as_ref()?.publish.as_ref()?;
        (self.is_published(pool.source) && !publish.permits_server(server))
            .then(|| format!("{server} is not in `servers` of [cluster.publish]"))
    }

    /// Returns why a server that another director of the group has added must not be added to one of this director's
    /// pools; `None` = it may be added. `address` is the server's address, if it has one. `[cluster.publish]` limits
    /// what the group adds to any pool, including the director's own pools. Without it, the group can add servers only
    /// to pools of proxy services.
    pub fn unshareable_reason(&self, pool: &str, address: Option<IpAddr>) -> Option<&'static str> {
        let publish = self.cluster.as_ref().and_then(|it| it.publish.as_ref());
        match publish {
            Some(publish) => {
                let is_permitted = address.is_some_and(|address| publish.permits_server(address));
                (!is_permitted).then_some("is not in `servers` of [cluster.publish]")
            }
            None => {
                let mut services = self.services.iter();
                let has_layer4_service = services.any(|service| service.pool == pool);
                has_layer4_service.then_some(
                    "cannot be added to a pool of a layer 4 service without [cluster.publish]",
                )
            }
        }
    }

    /// Returns the `[check.NAME]` with this name.
    pub fn check(&self, name: &str) -> Option<&Check> {
        let mut checks = self.checks.iter();
        checks
            .find(|(check_name, _)| check_name == name)
            .map(|(_, check)| check)
    }

    /// Returns the pool with this name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// Returns the layer 4 service with this name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// Returns all secrets in the configuration.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let cookies = self
            .pools
            .iter()
            .filter_map(|pool| pool.sticky.as_ref()?.secret.as_ref());
        let tickets = self.proxies.iter().filter_map(|proxy| proxy.tls.as_ref());
        let sync = self.sync.iter().map(|sync| &sync.key);
        let group = self.cluster.iter();
        let group = group.flat_map(|it| it.password.iter().chain(&it.group_key));
        cookies
            .chain(tickets.flat_map(|tls| &tls.ticket_keys))
            .chain(sync)
            .chain(group)
    }

    /// Returns whether a virtual router manages the address. If so, only the virtual router adds it to an interface.
    pub fn is_vrrp_address(&self, address: IpAddr) -> bool {
        let managed = self.vrrp.iter().flat_map(VirtualRouter::managed_addresses);
        managed
            .into_iter()
            .any(|network| network.address == address)
    }

    /// Returns whether a virtual router manages the address on this interface. `has_source` returns whether the
    /// interface has an address, for a virtual router without `interface`.
    pub fn is_vrrp_address_on(
        &self,
        interface: &str,
        address: IpAddr,
        has_source: impl Fn(IpAddr) -> bool,
    ) -> bool {
        let mut routers = self.vrrp.iter();
        routers.any(|router| {
            let is_on_interface = match router.interface_of(address) {
                Some(name) => name == interface,
                None => router.source.is_some_and(&has_source),
            };
            is_on_interface && router.managed_addresses().any(|it| it.address == address)
        })
    }

    /// Returns the VIPs of layer 4 services that `[announce]` covers. Routers send packets for these VIPs to this
    /// director, so they need not be on an interface.
    pub fn announced_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let covered = |service: &&Service| {
            let announce = self.announce.as_ref();
            announce.is_some_and(|announce| announce.covers(&service.name))
        };
        let services = self.services.iter().filter(covered);
        let listeners = services.flat_map(|service| &service.listen);
        listeners.map(|listener| listener.address)
    }

    /// Returns the addresses that proxy services listen on, except unspecified, loopback and multicast addresses.
    pub fn proxy_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let listeners = self.proxies.iter().flat_map(|proxy| &proxy.listen);
        listeners
            .map(SocketAddr::ip)
            .filter(|ip| !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast())
    }

    /// Returns the proxy service with this name.
    pub fn proxy(&self, name: &str) -> Option<&Proxy> {
        self.proxies.iter().find(|proxy| proxy.name == name)
    }
}

/// `[node]`: the director itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// Interfaces that the data plane attaches to; `None` = derived from the routes to VIPs and servers.
    pub interfaces: Option<Vec<String>>,
    /// Hook that the data plane attaches to.
    pub attach: Attach,
    /// Whether Weir balances this machine's own connections to its layer 4 services at connect time.
    pub balance_own: bool,
    /// Whether Weir estimates the latency of layer 4 servers.
    pub latency: bool,
    /// Interface to which missing VIPs are added; `None` = VIPs are not added.
    pub vip_interface: Option<String>,
    /// HTTP API, metrics and dashboard over TCP; `None` = Unix socket only.
    pub admin: Option<Admin>,
    /// Group of the runtime directory and of the control socket; `None` = the group of the process.
    pub socket_group: Option<String>,
    /// Control socket mode.
    pub socket_mode: SocketMode,
    /// Flow table capacity.
    pub max_flows: u32,
    /// Maximum number of servers in all services together.
    pub max_servers: u32,
    /// Maximum number of services, including services created by ipvsadm.
    pub max_services: u32,
    /// Maximum number of new flow entries per CPU per second. Further SYNs and datagrams are balanced by hash without
    /// an entry.
    pub syn_budget: u32,
    /// How long proxied connections may continue after SIGTERM.
    pub drain_timeout: Duration,
    /// Which series `/metrics` contains.
    pub metrics: Metrics,
}

impl Node {
    /// Minimum and maximum `max_flows`.
    pub const MAX_FLOWS_RANGE: (u32, u32) = (1 << 10, 1 << 26);
    /// Minimum and maximum `max_servers`.
    pub const MAX_SERVERS_RANGE: (u32, u32) = (1, 1 << 20);
    /// Minimum and maximum `max_services`.
    pub const MAX_SERVICES_RANGE: (u32, u32) = (1, 1 << 18);
    /// Minimum and maximum `syn_budget`; 0 = only UDP flows with `nat` get an entry.
    pub const SYN_BUDGET_RANGE: (u32, u32) = (0, 100_000_000);
}

named_enum! {
    /// Hook that the data plane attaches to on an interface.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Attach {
        /// Native XDP if the driver supports it, else generic XDP; tc on devices with partial checksums.
        #[default]
        Auto = "auto",
        /// Always XDP.
        Xdp = "xdp",
        /// Always tc.
        Tc = "tc",
    }
}

named_enum! {
    /// Which series `/metrics` contains.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Metrics {
        /// Histograms for services, routes and pools; sums, counts and quantiles for servers.
        #[default]
        Default = "default",
        /// Also histograms for servers.
        Full = "full",
    }
}

named_enum! {
    /// Control socket mode. Other users never have access, because they cannot enter its directory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum SocketMode {
        /// Owner only.
        #[default]
        Owner = "0600",
        /// Owner and group.
        Group = "0660",
    }
}

impl SocketMode {
    /// Returns whether the group may use the socket.
    pub const fn is_for_group(self) -> bool {
        matches!(self, Self::Group)
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            interfaces: None,
            attach: Attach::default(),
            balance_own: false,
            latency: true,
            vip_interface: None,
            admin: None,
            socket_group: None,
            socket_mode: SocketMode::default(),
            max_flows: 1 << 20,
            max_servers: 16_384,
            max_services: 4_096,
            syn_budget: 125_000,
            drain_timeout: Duration::from_secs(10),
            metrics: Metrics::default(),
        }
    }
}

/// `[timeouts]`: flow idle timeouts in whole seconds, as in ipvsadm's `--set`.
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
    /// The maximum that ipvsadm accepts: 31 days.
    pub const MAX: Duration = Duration::from_secs(31 * 86_400);
}

/// Returns the kernel's defaults (net/netfilter/ipvs/ip_vs_proto_tcp.c, ip_vs_proto_udp.c).
impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp: Duration::from_secs(900),
            tcp_fin: Duration::from_secs(120),
            udp: Duration::from_secs(300),
        }
    }
}

named_enum! {
    /// Response to a client when no server is available.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub enum NoServer {
        /// ICMP port unreachable, rate-limited.
        #[default]
        Reject = "reject",
        /// Silent drop.
        Drop = "drop",
    }
}

named_enum! {
    /// What happens to the flows of a removed server.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub enum OnRemove {
        /// The flows continue.
        #[default]
        Keep = "keep",
        /// Further packets are rejected with a reset.
        Reset = "reset",
        /// The next packet of each flow is scheduled to another server.
        Reschedule = "reschedule",
    }
}

named_enum! {
    /// The measurement that adjusts the weights of a pool's servers in layer 4 services.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Adapt {
        /// None: the weights are not adjusted.
        #[default]
        None = "none",
        /// The servers' latency.
        Latency = "latency",
    }
}

/// `[pool.NAME]`: a group of interchangeable servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Name, unique among pools.
    pub name: String,
    /// Scheduler; `None` = the service's default, which is [`Scheduler::L4_DEFAULT`] at layer 4.
    pub scheduler: Option<Scheduler>,
    /// The measurement that adjusts the weights.
    pub adapt: Adapt,
    /// Servers in file order, without duplicate addresses and ports.
    pub servers: Vec<Server>,
    /// The servers in another version of the group's configuration, for the second hop; `None` = none. Never part of a
    /// file.
    pub other_version: Option<OtherVersion>,
    /// Absolute path to a file with additional servers, maintained by another program.
    pub servers_file: Option<String>,
    /// DNS names of additional servers, in file order.
    pub servers_dns: Vec<ServersDns>,
    /// The sorry server, used when no other server is available, unless its own checks fail.
    pub sorry: Option<Server>,
    /// Response to clients when no server, including the sorry server, is available.
    pub no_server: NoServer,
    /// What happens to the flows of a removed server.
    pub on_remove: OnRemove,
    /// TLS to the servers, for proxy services; `None` = no TLS.
    pub tls: Option<ServerTls>,
    /// Whether proxy services use HTTP/2 for connections to the servers.
    pub http2: bool,
    /// Checks of servers that have none of their own.
    pub checks: Vec<Check>,
    /// Health policy.
    pub health: Health,
    /// Key for the `hash` scheduler.
    pub hash_key: HashKey,
    /// How long a request of a proxy service waits for a server that has reached its `max_connections`.
    pub queue_timeout: Duration,
    /// Session affinity for `http` services.
    pub sticky: Option<Sticky>,
    /// PROXY protocol header that proxy services send to servers.
    pub proxy_protocol: Option<ProxyHeader>,
    /// `Host` for requests to the servers; `None` = the client's.
    pub host: Option<Template>,
    /// Position of the pool's table.
    pub source: Source,
}

impl Pool {
    /// Default of `queue_timeout`.
    pub const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
    /// Maximum length of `host`, in bytes.
    pub const MAX_HOST_BYTES: usize = 255;

    /// Returns whether `host` may contain a byte: a letter, a digit, or one of `-._:[]`.
    pub const fn may_be_in_host(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
    }

    /// Returns whether the literal text of `host` may contain a byte. Bytes that servers may reject are allowed, but
    /// not bytes that end the host in a URL.
    pub const fn may_be_in_host_text(byte: u8) -> bool {
        byte.is_ascii_graphic() && !matches!(byte, b'/' | b'?' | b'#' | b'@' | b'{' | b'}')
    }

    /// Creates an empty pool with default settings.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            scheduler: None,
            adapt: Adapt::default(),
            servers: Vec::new(),
            other_version: None,
            servers_file: None,
            servers_dns: Vec::new(),
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
            host: None,
            source: Source::default(),
        }
    }

    /// Returns the scheduler that layer 4 services use for this pool.
    pub fn l4_scheduler(&self) -> Scheduler {
        self.scheduler.unwrap_or(Scheduler::L4_DEFAULT)
    }

    /// Returns the server with this name.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// Returns the checks of one of the pool's servers: its own checks, or the pool's checks if it has none. A sorry
    /// server has only its own checks, because it does not respond like the other servers.
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

/// The servers that a pool has in another version of the group's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OtherVersion {
    /// The servers with their configured weights. No override applies to a server with an empty name.
    pub servers: Vec<Server>,
    /// Whether the table of these servers replaces the second hop's table. If false, it is used only if the director
    /// does not have the table from before the last change.
    pub replaces: bool,
}

/// One server in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// The address as written in the file, including the port. `weir server POOL/ADDRESS` uses this name.
    pub name: String,
    /// Address. For a server on a Unix socket, [`unix_socket::stand_in`], which only identifies the server.
    pub address: IpAddr,
    /// Port; `None` = the port that the client used; 0 = a Unix socket.
    pub port: Option<u16>,
    /// Absolute path to the Unix socket on which the server listens; `None` = it listens on `address` and `port`.
    pub unix: Option<Arc<str>>,
    /// Configured weight, 0 to [`MAX_WEIGHT`]; 0 = quiesced.
    pub weight: u32,
    /// Number of connections at which the server gets no new flows (IPVS's upper threshold); 0 = no limit.
    pub max_connections: u32,
    /// Number of connections below which a server that has reached `max_connections` gets new flows again; 0 = three
    /// quarters of `max_connections`.
    pub min_connections: u32,
    /// Used only when no other server in the pool is available; proxy services only.
    pub backup: bool,
    /// Value of the pool's `sticky` cookie for this server; `None` = a keyed hash of the name.
    pub cookie: Option<String>,
    /// Overrides the service's setting.
    pub forward: Option<Forward>,
    /// Overrides the service's setting.
    pub tunnel: Option<Tunnel>,
    /// Overrides the pool's checks; see [`Pool::checks_of`].
    pub checks: Option<Vec<Check>>,
    /// Position of the address.
    pub source: Source,
}

impl Server {
    /// Creates a server with weight 1 and the service's forwarding method.
    pub fn new(name: impl Into<String>, address: IpAddr, port: Option<u16>) -> Self {
        Self {
            name: name.into(),
            address,
            port,
            unix: None,
            weight: 1,
            max_connections: 0,
            min_connections: 0,
            backup: false,
            cookie: None,
            forward: None,
            tunnel: None,
            checks: None,
            source: Source::default(),
        }
    }

    /// Creates a server on the Unix socket at `path`, with weight 1.
    pub fn on_unix_socket(path: &str) -> Self {
        Self {
            unix: Some(path.into()),
            ..Self::new(
                format!("{}{path}", unix_socket::PREFIX),
                unix_socket::stand_in(path),
                Some(0),
            )
        }
    }

    /// Returns the IP address; `None` if the server listens on a Unix socket.
    pub fn ip(&self) -> Option<IpAddr> {
        self.unix.is_none().then_some(self.address)
    }

    /// Returns this server's forwarding method in a service.
    pub fn forward_in(&self, service: &Service) -> Forward {
        self.forward.unwrap_or(service.forward)
    }

    /// Returns this server's encapsulation in a service.
    pub fn tunnel_in(&self, service: &Service) -> Tunnel {
        self.tunnel.unwrap_or(service.tunnel)
    }
}

/// Persistence: all clients in a network are sent to the same server (ipvsadm's `-p` and `-M`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Persistence {
    /// How long a client stays assigned to its server.
    pub timeout: Duration,
    /// Prefix length of an IPv4 client network, 1 to 32.
    pub netmask: u8,
    /// Prefix length of an IPv6 client network, 1 to 128.
    pub netmask6: u8,
}

/// Formats the settings as `5m /32 /128`.
impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timeout = crate::diff::duration(&self.timeout);
        write!(f, "{timeout} /{} /{}", self.netmask, self.netmask6)
    }
}

impl Persistence {
    /// The maximum that ipvsadm accepts: 31 days.
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(31 * 86_400);
}

/// Returns IPVS's defaults: 5 minutes, single clients.
impl Default for Persistence {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(300),
            netmask: 32,
            netmask6: 128,
        }
    }
}

named_enum! {
    /// How a client on this machine is identified.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum LocalClient {
        /// By its cgroup.
        #[default]
        Cgroup = "cgroup",
        /// By its user.
        Uid = "uid",
    }
}

/// `[service.NAME]`: a layer 4 virtual service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Service {
    /// Name, unique among services.
    pub name: String,
    /// Listeners in file order, not shared with other services; at least one, or a mark.
    pub listen: Vec<Listener>,
    /// Firewall marks in file order, not shared with other services.
    pub marks: Vec<Mark>,
    /// Forwarding method of servers that do not set one.
    pub forward: Forward,
    /// Encapsulation for `tunnel` servers that do not set one.
    pub tunnel: Tunnel,
    /// SNAT for `nat` servers; `None` = the client's address is kept.
    pub snat: Option<Snat>,
    /// DSCP in `l3dsr` packets, 0 to 63; 0 = packets are not marked.
    pub dscp: u8,
    /// Pool name.
    pub pool: String,
    /// Whether to replicate the kernel's IPVS exactly.
    pub strict_ipvs: bool,
    /// Persistence; `None` = every flow is scheduled.
    pub persistence: Option<Persistence>,
    /// Whether to schedule each UDP packet separately (ipvsadm's `-o`).
    pub one_packet: bool,
    /// With `socket`, the path of the cgroup whose processes are the clients; `None` = the root of cgroup2.
    pub cgroup: Option<String>,
    /// With `socket` and persistence, how a client is identified.
    pub persistent_client: LocalClient,
    /// Position of the service's table.
    pub source: Source,
}

impl Service {
    /// Default DSCP for `l3dsr` services.
    pub const DEFAULT_DSCP: u8 = 1;

    /// Creates a service without listeners, with default settings.
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
            cgroup: None,
            persistent_client: LocalClient::default(),
            source: Source::default(),
        }
    }

    /// Returns the addresses, then the marks, as written in the configuration.
    pub fn listener_names(&self) -> Vec<String> {
        let addresses = self.listen.iter().map(ToString::to_string);
        addresses
            .chain(self.marks.iter().map(ToString::to_string))
            .collect()
    }

    /// Returns the address family of the first listener or mark.
    pub fn family(&self) -> Option<Family> {
        let first = self.listen.first().map(Listener::family);
        first.or_else(|| self.marks.first().map(|mark| mark.family))
    }
}
