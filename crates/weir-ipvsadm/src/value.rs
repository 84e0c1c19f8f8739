//! ipvsadm's objects: services, servers and their keys, as distinguished by the kernel.

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

    /// Its text in a listing.
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

    /// The option that names such a service.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Tcp => "-t",
            Self::Udp => "-u",
            Self::Sctp => "--sctp-service",
        }
    }
}

/// Identifies a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceKey {
    /// A VIP.
    Address {
        /// Transport protocol.
        protocol: Protocol,
        /// The VIP.
        address: IpAddr,
        /// Port; 0 = every port without a separate service.
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
    /// Returns whether its packets are IPv6.
    pub const fn is_v6(&self) -> bool {
        match self {
            Self::Address { address, .. } => address.is_ipv6(),
            Self::Mark { v6, .. } => *v6,
        }
    }

    /// The protocol for port names in a listing; the kernel has none for a mark.
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
    /// Which clients share a template.
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

/// How packets are sent to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forward {
    /// `-m`.
    Masq,
    /// `-g`, the default.
    Route,
    /// `-i`.
    Tunnel,
    /// Only in Weir; no option selects it.
    L3dsr,
}

impl Forward {
    /// Its text in a listing.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Masq => "Masq",
            Self::Route => "Route",
            Self::Tunnel => "Tunnel",
            Self::L3dsr => "L3dsr",
        }
    }

    /// The option that selects it.
    pub const fn option(self) -> Option<&'static str> {
        match self {
            Self::Masq => Some("-m"),
            Self::Route => Some("-g"),
            Self::Tunnel => Some("-i"),
            Self::L3dsr => None,
        }
    }
}

/// `--tun-…`; stored for every server, used with `-i` only.
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

/// Identifies a server of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerKey {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
}

/// The kernel's maximum weight (ip_vs_ctl.c: a weight is an `int`, and negative ones are rejected). ipvsadm 1.31 as
/// released accepts up to 65535; later versions and Debian's build accept up to this.
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

/// The values of `-e`, and which of them were given: a server of weir.toml keeps its other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServerEdit {
    /// The whole server, with defaults.
    pub server: Server,
    /// `-g`, `-i` or `-m` was given.
    pub forward: bool,
    /// `-x` or `-y` was given.
    pub thresholds: bool,
    /// A `--tun-…` was given.
    pub tunnel: bool,
}

/// `--set`; 0 = unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Timeouts {
    /// Established TCP, seconds.
    pub tcp_s: u32,
    /// TCP after a FIN, seconds.
    pub tcp_fin_s: u32,
    /// UDP, seconds.
    pub udp_s: u32,
}

impl Timeouts {
    /// Takes over the timeouts that `new` sets; 0 leaves a timeout unchanged.
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

/// Selects a synchronization daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncDaemon {
    /// Sends.
    Master,
    /// Receives.
    Backup,
}
