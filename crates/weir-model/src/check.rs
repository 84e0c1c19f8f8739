//! Health checks: what is asked of a server, how often, and what becomes of the answer.
//!
//! A [`Check`] says what to do and not to whom: the same one serves every server of every pool that names it. Which port it
//! goes to follows from the check, the server and the listeners, in that order ([`Check::port`]).

mod health;
mod probe;
mod timing;

use std::collections::HashMap;
use std::net::IpAddr;

pub use self::health::{Health, Require};
pub use self::probe::{DnsRecord, Http, Probe, Script};
pub use self::timing::{OnFailure, Start, Timing};
use crate::{Desired, Forward, Ports, Server, Service, Tunnel};

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
                for pool in proxy.pools() {
                    ports.entry(pool).or_insert(listen.port());
                }
            }
        }
        ports
    }
}
