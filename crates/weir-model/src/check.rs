//! Defines health checks: probe, target, timing, and reaction to a failure.
//!
//! A [`Check`] does not name a server: it applies to every server of every pool that uses it. The target port comes
//! from the check, the server or the listeners, in that order ([`Check::port`]).

mod health;
mod probe;
mod timing;

use std::collections::HashMap;
use std::net::IpAddr;

pub use self::health::{Health, Require};
pub use self::probe::{
    DatagramProbe, DirectorProbe, DnsRecord, ExchangeStep, Http, Medium, Probe, ProbeKind, Script,
};
pub use self::timing::{OnFailure, Start, Timing};
use crate::{Desired, Forward, Ports, Server, Service, Source, Tunnel};

/// One check for a pool or a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Check {
    /// Type of probe.
    pub probe: Probe,
    /// Probe target and source, if they differ from the defaults.
    pub target: ProbeTarget,
    /// Intervals, timeout and thresholds.
    pub timing: Timing,
    /// State before the first result.
    pub start: Start,
    /// Reaction to a failed server.
    pub on_failure: OnFailure,
}

impl Check {
    /// Creates a check with default settings.
    pub fn new(probe: Probe) -> Self {
        Self {
            probe,
            target: ProbeTarget::default(),
            timing: Timing::default(),
            start: Start::default(),
            on_failure: OnFailure::default(),
        }
    }

    /// Returns the target port of this check for a server: the check's port, the server's port, or `listening`, which
    /// comes from [`Desired::check_ports`]. `None` if there is no port, or if the probe does not use one.
    pub fn port(&self, server: &Server, listening: Option<u16>) -> Option<u16> {
        self.probe
            .needs_port()
            .then_some(self.target.port.or(server.port).or(listening))?
    }
}

/// Probe target and source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProbeTarget {
    /// Overrides the server's address.
    pub address: Option<IpAddr>,
    /// Overrides the server's port and the listener's port.
    pub port: Option<u16>,
    /// Source address; `None` = selected by the kernel.
    pub source: Option<IpAddr>,
    /// Outgoing interface; `None` = selected by the kernel.
    pub interface: Option<String>,
    /// PROXY protocol header that probes send first.
    pub proxy_protocol: Option<ProxyHeader>,
    /// Path that probes take.
    pub via: Via,
    /// TLS settings; `None` = no TLS.
    pub tls: Option<CheckTls>,
}

/// Certificate verification of a TLS probe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckTls {
    /// Whether the certificate is verified.
    pub verify: bool,
    /// PEM file with CA certificates; `None` = the system's CA certificates.
    pub ca: Option<String>,
    /// Name to send as SNI and to verify in the certificate; `None` = verify the address and send no SNI.
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

/// The CA file of a check that verifies certificates, and its position. A [`Check`] has no position, because a check
/// that moves to another line is the same check.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckAuthority {
    /// PEM file with CA certificates; `None` = the system's CA certificates.
    pub ca: Option<String>,
    /// Position of `ca`, or of the check's `kind`.
    pub source: Source,
}

named_enum! {
    /// Path that probes take to a server.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Via {
        /// Directly to the server's address.
        #[default]
        Server = "server",
        /// Through the forwarding method of each layer 4 service that uses the pool, with the VIP as destination.
        Path = "path",
        /// On both paths; both probes must pass.
        Both = "both",
    }
}

impl Via {
    /// Returns whether probes use a service's forwarding path.
    pub const fn uses_forwarding_path(self) -> bool {
        matches!(self, Self::Path | Self::Both)
    }
}

/// A probe's forwarding path through a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProbePath {
    /// The VIP: with `direct`, `tunnel` and `l3dsr`, the destination that the server sees; with `nat` without SNAT, the
    /// source of the probes.
    pub vip: IpAddr,
    /// Target port: that of the check; with `nat`, that of the server; otherwise that of the listener.
    pub port: u16,
    /// Forwarding method for the server.
    pub forward: Forward,
    /// Encapsulation for `tunnel`.
    pub tunnel: Tunnel,
    /// DSCP for `l3dsr`.
    pub dscp: u8,
    /// Whether the VIP is the source of the probes: with `nat` without SNAT, replies must return through the director.
    pub source_is_vip: bool,
}

named_enum! {
    /// Version of the PROXY protocol header (HAProxy's proxy-protocol.txt).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ProxyHeader {
        /// Text header; probes send `PROXY TCP4 …` with their own addresses.
        V1 = "v1",
        /// Binary header; probes send the LOCAL command.
        V2 = "v2",
    }
}

impl Check {
    /// Returns the forwarding path of this check's probes to a server through a service. `None` if the service does not
    /// handle packets, if it has no listener for the probe's protocol and the server's family, or if that listener has
    /// several ports and the check sets no port.
    pub fn probe_path(&self, service: &Service, server: &Server) -> Option<ProbePath> {
        let protocol = self.probe.protocol()?;
        let forward = server.forward_in(service);
        if !forward.handles_packets() {
            return None;
        }
        let matches = |address: &IpAddr| address.is_ipv4() == server.address.is_ipv4();
        let listeners = service
            .listen
            .iter()
            .filter(|listener| listener.protocol == protocol && matches(&listener.address));
        listeners
            .filter_map(|listener| {
                let port = self.target.port.or(match listener.ports {
                    Ports::One(port) => Some(port),
                    Ports::Range(..) | Ports::Any => None,
                })?;
                let server_port = server.port.filter(|_| forward.rewrites_port());
                Some(ProbePath {
                    vip: listener.address,
                    port: self.target.port.or(server_port).unwrap_or(port),
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
    /// Returns the layer 4 services by pool, in file order.
    pub fn services_by_pool(&self) -> HashMap<&str, Vec<&Service>> {
        let mut by_pool: HashMap<&str, Vec<&Service>> = HashMap::new();
        for service in &self.services {
            by_pool.entry(&service.pool).or_default().push(service);
        }
        by_pool
    }

    /// Returns whether any check uses a service's forwarding path.
    pub fn has_path_checks(&self) -> bool {
        let use_forwarding_path = |checks: &[Check]| {
            checks
                .iter()
                .any(|check| check.target.via.uses_forwarding_path())
        };
        self.pools.iter().any(|pool| {
            let servers = pool.servers.iter().chain(&pool.sorry);
            let server_checks = servers.filter_map(|it| it.checks.as_deref());
            use_forwarding_path(&pool.checks) || server_checks.into_iter().any(use_forwarding_path)
        })
    }

    /// Returns, for each pool, the first exact port on which a service that uses the pool listens. It is the default
    /// target port of checks.
    pub fn check_ports(&self) -> HashMap<&str, u16> {
        let mut ports = HashMap::new();
        for service in &self.services {
            let port = service
                .listen
                .iter()
                .find_map(|listener| match listener.ports {
                    Ports::One(port) => Some(port),
                    Ports::Range(..) | Ports::Any => None,
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
