//! What ipvsadm speaks of: services, servers and their keys, as the kernel tells them apart.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_model::TunnelKind;

/// Transport protocol of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// `-t`.
    Tcp,
    /// `-u`.
    Udp,
    /// `--sctp-service`.
    Sctp,
}

impl Protocol {
    /// The number in the IP header (IANA protocol numbers).
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// The column of a listing.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// The name in `/etc/services`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// The option that names a service of it.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Tcp => "-t",
            Self::Udp => "-u",
            Self::Sctp => "--sctp-service",
        }
    }
}

/// What tells one service from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceKey {
    /// A VIP.
    Address {
        /// Transport protocol.
        protocol: Protocol,
        /// The VIP.
        address: IpAddr,
        /// Port; 0 = every port that has no service of its own.
        port: u16,
    },
    /// A firewall mark.
    Mark {
        /// 1 to 2³²−1.
        mark: u32,
        /// IPv6 packets, else IPv4.
        v6: bool,
    },
}

impl ServiceKey {
    /// Whether its packets are IPv6.
    pub const fn is_v6(&self) -> bool {
        match self {
            Self::Address { address, .. } => address.is_ipv6(),
            Self::Mark { v6, .. } => *v6,
        }
    }

    /// The protocol whose port names a listing uses; the kernel tells none for a mark.
    pub const fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Address { protocol, .. } => Some(*protocol),
            Self::Mark { .. } => None,
        }
    }
}

/// Granularity of persistence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mask {
    /// IPv4, host order.
    V4(u32),
    /// Length of an IPv6 prefix, 1 to 128.
    V6(u8),
}

/// `-p` and `-M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Persistence {
    /// Seconds, 1 to 31 days.
    pub timeout_s: u32,
    /// Which clients count as one.
    pub mask: Mask,
}

/// A virtual service as `-A` and `-E` describe it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Service {
    /// Its key.
    pub key: ServiceKey,
    /// Scheduler's name, at most 15 bytes.
    pub scheduler: String,
    /// Scheduler flags: bit 0 `flag-1` (fallback), bit 1 `flag-2` (port), bit 2 `flag-3`.
    pub flags: u8,
    /// `-p`.
    pub persistence: Option<Persistence>,
    /// Name of a persistence engine; empty = none.
    pub engine: String,
    /// `-o`.
    pub one_packet: bool,
}

impl Service {
    /// `flag-1`: `sh-fallback`, `mh-fallback`.
    pub const FLAG_1: u8 = 1;
    /// `flag-2`: `sh-port`, `mh-port`.
    pub const FLAG_2: u8 = 2;
    /// `flag-3`.
    pub const FLAG_3: u8 = 4;
}

/// How packets get to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forward {
    /// `-m`.
    Masq,
    /// `-g`, the default.
    Route,
    /// `-i`.
    Tunnel,
    /// Weir's own, which no option asks for.
    L3dsr,
}

impl Forward {
    /// The column of a listing.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Masq => "Masq",
            Self::Route => "Route",
            Self::Tunnel => "Tunnel",
            Self::L3dsr => "L3dsr",
        }
    }

    /// The option that asks for it.
    pub const fn option(self) -> Option<&'static str> {
        match self {
            Self::Masq => Some("-m"),
            Self::Route => Some("-g"),
            Self::Tunnel => Some("-i"),
            Self::L3dsr => None,
        }
    }
}

/// `--tun-…`; kept for every server, in force under `-i` only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Tunnel {
    /// `--tun-type`.
    pub kind: TunnelKind,
    /// `--tun-port`; 0 = none.
    pub port: u16,
    /// 0 `--tun-nocsum`, 1 `--tun-csum`, 2 `--tun-remcsum`.
    pub checksum: u8,
}

/// What tells one server of a service from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerKey {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
}

/// The kernel's greatest weight (ip_vs_ctl.c: a weight is an `int`, and one below 0 is refused). ipvsadm 1.31 as released takes
/// up to 65535; since then, and in Debian's build, up to this.
pub const MAX_WEIGHT: u32 = i32::MAX as u32;

/// A real server as `-a` and `-e` describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Server {
    /// Its key.
    pub key: ServerKey,
    /// Forwarding method.
    pub forward: Forward,
    /// 0 to [`MAX_WEIGHT`]; 0 = quiesced.
    pub weight: u32,
    /// No new connections at this many and above; 0 = no limit.
    pub upper: u32,
    /// After `upper` was reached: new connections again below this many.
    pub lower: u32,
    /// Encapsulation.
    pub tunnel: Tunnel,
}

/// What `-e` asks for, and which of it was said: for a server of the file the rest stays as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServerEdit {
    /// The whole server, defaults filled in.
    pub server: Server,
    /// `-g`, `-i` or `-m` was given.
    pub forward: bool,
    /// `-x` or `-y` was given.
    pub thresholds: bool,
    /// A `--tun-…` was given.
    pub tunnel: bool,
}

/// `--set`; 0 = as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Timeouts {
    /// Established TCP, seconds.
    pub tcp_s: u32,
    /// TCP after a FIN, seconds.
    pub tcp_fin_s: u32,
    /// UDP, seconds.
    pub udp_s: u32,
}

/// Which synchronization daemon is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncDaemon {
    /// Sends.
    Master,
    /// Receives.
    Backup,
}
