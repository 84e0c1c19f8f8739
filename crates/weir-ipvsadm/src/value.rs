//! Defines ipvsadm's data types: services, servers and their keys. Keys are equal if the kernel considers them equal.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_model::TunnelKind;

/// Transport protocol of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP (`-t`).
    Tcp,
    /// UDP (`-u`).
    Udp,
    /// SCTP (`--sctp-service`).
    Sctp,
}

impl Protocol {
    /// Returns the IANA protocol number in the IP header.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// Returns the text in a listing.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Returns the protocol's name in `/etc/services`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Returns the option that selects a service of this protocol.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Tcp => "-t",
            Self::Udp => "-u",
            Self::Sctp => "--sctp-service",
        }
    }
}

/// The key of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceKey {
    /// A VIP, protocol and port.
    Address {
        /// Transport protocol.
        protocol: Protocol,
        /// The VIP.
        address: IpAddr,
        /// Port; 0 means all ports that have no separate service.
        port: u16,
    },
    /// A firewall mark.
    Mark {
        /// Mark, 1 to 2³²−1.
        mark: u32,
        /// Whether the service is for IPv6 packets; otherwise, it is for IPv4 packets.
        v6: bool,
    },
}

impl ServiceKey {
    /// Returns whether the service is for IPv6 packets.
    pub const fn is_v6(&self) -> bool {
        match self {
            Self::Address { address, .. } => address.is_ipv6(),
            Self::Mark { v6, .. } => *v6,
        }
    }

    /// Returns the protocol for port names in a listing, or `None` for a mark, which has no protocol in the kernel.
    pub const fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Address { protocol, .. } => Some(*protocol),
            Self::Mark { .. } => None,
        }
    }
}

/// Persistence granularity: the set of clients that share a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mask {
    /// IPv4 netmask, in host byte order.
    V4(u32),
    /// IPv6 prefix length, 1 to 128.
    V6(u8),
}

/// Persistence settings (`-p` and `-M`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Persistence {
    /// Timeout in seconds, 1 to 2678400 (31 days).
    pub timeout_s: u32,
    /// The set of clients that share a template.
    pub mask: Mask,
}

/// A virtual service, as given to `-A` and `-E`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Service {
    /// Key of the service.
    pub key: ServiceKey,
    /// Name of the scheduler, at most 15 bytes.
    pub scheduler: String,
    /// Scheduler flags: bit 0 `flag-1` (fallback), bit 1 `flag-2` (port), bit 2 `flag-3`.
    pub flags: u8,
    /// Persistence (`-p`).
    pub persistence: Option<Persistence>,
    /// Name of the persistence engine; empty if there is none.
    pub engine: String,
    /// Whether each packet is scheduled separately (`-o`).
    pub one_packet: bool,
}

impl Service {
    /// Bit of `flag-1`: `sh-fallback`, `mh-fallback`.
    pub const FLAG_1: u8 = 1;
    /// Bit of `flag-2`: `sh-port`, `mh-port`.
    pub const FLAG_2: u8 = 2;
    /// Bit of `flag-3`.
    pub const FLAG_3: u8 = 4;
}

/// Forwarding method of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forward {
    /// NAT (`-m`).
    Masq,
    /// Direct routing (`-g`), the default.
    Route,
    /// Tunneling (`-i`).
    Tunnel,
    /// L3DSR, which only Weir supports; ipvsadm has no option for it.
    L3dsr,
}

impl Forward {
    /// Returns the text in a listing.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Masq => "Masq",
            Self::Route => "Route",
            Self::Tunnel => "Tunnel",
            Self::L3dsr => "L3dsr",
        }
    }

    /// Returns the option that selects the method, or `None` if ipvsadm does not support the method.
    pub const fn option(self) -> Option<&'static str> {
        match self {
            Self::Masq => Some("-m"),
            Self::Route => Some("-g"),
            Self::Tunnel => Some("-i"),
            Self::L3dsr => None,
        }
    }
}

/// Encapsulation (`--tun-…` options). Every server has one, but only `-i` uses it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Tunnel {
    /// Type (`--tun-type`).
    pub kind: TunnelKind,
    /// Destination port (`--tun-port`); 0 if there is none.
    pub port: u16,
    /// Checksum mode: 0 for `--tun-nocsum`, 1 for `--tun-csum`, 2 for `--tun-remcsum`.
    pub checksum: u8,
}

/// The key of a server within its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerKey {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
}

/// The kernel's maximum weight (ip_vs_ctl.c: a weight is an `int`, and negative ones are rejected). The released
/// ipvsadm 1.31 accepts at most 65535; later versions and Debian's build accept this maximum.
pub const MAX_WEIGHT: u32 = i32::MAX as u32;

/// A real server, as given to `-a` and `-e`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Server {
    /// Key of the server.
    pub key: ServerKey,
    /// Forwarding method.
    pub forward: Forward,
    /// Weight, 0 to [`MAX_WEIGHT`]; 0 means quiesced.
    pub weight: u32,
    /// Number of connections at which the server stops getting new ones; 0 means no limit.
    pub upper: u32,
    /// Number of connections below which a server that has reached `upper` gets new connections again.
    pub lower: u32,
    /// Encapsulation.
    pub tunnel: Tunnel,
}

/// A server as given to `-e`, with flags for the options that were given. For all other options, a server in weir.toml
/// keeps its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServerEdit {
    /// The server; options that were not given have their defaults.
    pub server: Server,
    /// Whether `-g`, `-i` or `-m` was given.
    pub forward: bool,
    /// Whether `-x` or `-y` was given.
    pub thresholds: bool,
    /// Whether a `--tun-…` option was given.
    pub tunnel: bool,
}

/// Timeouts (`--set`); 0 means unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Timeouts {
    /// Timeout of established TCP connections, in seconds.
    pub tcp_s: u32,
    /// Timeout of TCP connections after a FIN, in seconds.
    pub tcp_fin_s: u32,
    /// Timeout of UDP flows, in seconds.
    pub udp_s: u32,
}

impl Timeouts {
    /// Replaces the timeouts that are not 0 in `new`.
    pub fn update(&mut self, new: &Self) {
        for (timeout, seconds) in [
            (&mut self.tcp_s, new.tcp_s),
            (&mut self.tcp_fin_s, new.tcp_fin_s),
            (&mut self.udp_s, new.udp_s),
        ] {
            if seconds != 0 {
                *timeout = seconds;
            }
        }
    }
}

/// Role of a synchronization daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncDaemon {
    /// Sends connections to backups.
    Master,
    /// Receives connections from the master.
    Backup,
}
