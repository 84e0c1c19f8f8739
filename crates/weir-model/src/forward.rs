//! Defines the forwarding methods and their settings.
//!
//! The module contains only the layer 4 methods, which the data plane implements.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::listener::Family;

named_enum! {
    /// Forwarding method for a service or one of its servers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Forward {
        /// Rewrites the destination address and port; replies return through the director (IPVS `-m`).
        Nat = "nat",
        /// Rewrites only the destination MAC address (IPVS `-g`).
        Direct = "direct",
        /// Encapsulates packets (IPVS `-i`).
        Tunnel = "tunnel",
        /// Rewrites the destination address, marks packets with a DSCP, and routes them.
        L3dsr = "l3dsr",
        /// Replaces the destination address when a client on this machine connects or sends.
        Socket = "socket",
    }
}

impl Forward {
    /// Returns whether the server and the listener must have the same address family. Only a tunnel can carry packets
    /// of one family in packets of the other.
    pub const fn needs_same_family(self) -> bool {
        match self {
            Self::Nat | Self::Direct | Self::L3dsr | Self::Socket => true,
            Self::Tunnel => false,
        }
    }

    /// Returns whether packets pass through the director. With `Socket`, the server is selected before a packet is
    /// sent.
    pub const fn handles_packets(self) -> bool {
        match self {
            Self::Nat | Self::Direct | Self::Tunnel | Self::L3dsr => true,
            Self::Socket => false,
        }
    }

    /// Returns whether packets reach the server with the VIP as destination or with a DSCP. If so, the server must be
    /// configured for the VIP (`weir real-server up`).
    pub const fn needs_server_configuration(self) -> bool {
        match self {
            Self::Direct | Self::Tunnel | Self::L3dsr => true,
            Self::Nat | Self::Socket => false,
        }
    }

    /// Returns whether the destination port is rewritten to the server's port. Otherwise, packets keep the port that
    /// the client used.
    pub const fn rewrites_port(self) -> bool {
        match self {
            Self::Nat | Self::Socket => true,
            Self::Direct | Self::Tunnel | Self::L3dsr => false,
        }
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

named_enum! {
    /// Encapsulation for `forward = "tunnel"`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub enum TunnelKind {
        /// IP in IP: protocol 4 or 41, RFC 2003, RFC 4213, RFC 2473.
        #[default]
        Ipip = "ipip",
        /// Generic UDP encapsulation, as implemented by the kernel's fou module with `gue`.
        Gue = "gue",
        /// Generic routing encapsulation, RFC 2784.
        Gre = "gre",
    }
}

impl fmt::Display for TunnelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Serializes the name.
impl Serialize for TunnelKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TunnelKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let kind = Self::ALL.into_iter().find(|kind| kind.as_str() == name);
        kind.ok_or_else(|| serde::de::Error::custom(format!("unknown tunnel type {name:?}")))
    }
}

named_enum! {
    /// Encapsulation checksum: ipvsadm's `--tun-nocsum`, `--tun-csum` and `--tun-remcsum`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub enum TunnelChecksum {
        /// No checksum in the outer header.
        #[default]
        None = "none",
        /// Checksum over the encapsulated packet: the outer UDP checksum for GUE, the header checksum for GRE.
        Full = "full",
        /// GUE's remote checksum offload.
        Remote = "remote",
    }
}

/// Encapsulation settings for `forward = "tunnel"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tunnel {
    /// Encapsulation.
    pub kind: TunnelKind,
    /// GUE UDP destination port; ignored for the other kinds.
    pub port: u16,
    /// Checksum; `Full` for GUE and GRE, `Remote` for GUE only.
    pub checksum: TunnelChecksum,
}

impl Tunnel {
    /// Default GUE port.
    pub const DEFAULT_PORT: u16 = 6080;

    /// Returns the maximum number of bytes that the outer headers add to an IP packet for a server of this address
    /// family.
    pub const fn overhead(self, server: Family) -> u32 {
        let ip = match server {
            Family::V4 => 20,
            Family::V6 => 40,
        };
        let tunnel_header = match (self.kind, self.checksum) {
            (TunnelKind::Ipip, _) => 0,
            (TunnelKind::Gue, TunnelChecksum::Remote) => 20,
            (TunnelKind::Gue, TunnelChecksum::None | TunnelChecksum::Full) => 12,
            (TunnelKind::Gre, TunnelChecksum::Full) => 8,
            (TunnelKind::Gre, TunnelChecksum::None | TunnelChecksum::Remote) => 4,
        };
        ip + tunnel_header
    }
}

/// Returns `ipip`.
impl Default for Tunnel {
    fn default() -> Self {
        Self {
            kind: TunnelKind::Ipip,
            port: Self::DEFAULT_PORT,
            checksum: TunnelChecksum::None,
        }
    }
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        if self.kind == TunnelKind::Gue {
            write!(f, " port {}", self.port)?;
        }
        match self.checksum {
            TunnelChecksum::None => Ok(()),
            checksum @ (TunnelChecksum::Full | TunnelChecksum::Remote) => {
                write!(f, " checksum {}", checksum.as_str())
            }
        }
    }
}

/// Source address translation for `forward = "nat"`: servers reply to the director without needing a route through it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snat {
    /// Source addresses; empty = the director's own address, selected by the route to the server.
    pub addresses: Vec<IpAddr>,
    /// First and last source port, inclusive.
    pub ports: (u16, u16),
}

impl Snat {
    /// Default of [`ports`](Self::ports): below the kernel's default `ip_local_port_range`, 32768 to 60999, and above
    /// most registered service ports.
    pub const DEFAULT_PORTS: (u16, u16) = (20_000, 32_767);
}

/// Returns the setting `snat = true`: the director's own addresses and the default ports.
impl Default for Snat {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            ports: Self::DEFAULT_PORTS,
        }
    }
}

impl fmt::Display for Snat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.addresses.is_empty() {
            f.write_str("the director's addresses")?;
        }
        for (index, address) in self.addresses.iter().enumerate() {
            write!(f, "{}{address}", if index == 0 { "" } else { ", " })?;
        }
        write!(f, " ports {}-{}", self.ports.0, self.ports.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_includes_all_outer_headers() {
        let (none, full) = (TunnelChecksum::None, TunnelChecksum::Full);
        for (kind, checksum, expected) in [
            (TunnelKind::Ipip, none, (20, 40)),
            (TunnelKind::Gue, none, (32, 52)),
            (TunnelKind::Gue, full, (32, 52)),
            (TunnelKind::Gue, TunnelChecksum::Remote, (40, 60)),
            (TunnelKind::Gre, none, (24, 44)),
            (TunnelKind::Gre, full, (28, 48)),
        ] {
            let tunnel = Tunnel {
                kind,
                checksum,
                ..Tunnel::default()
            };
            let overhead = (tunnel.overhead(Family::V4), tunnel.overhead(Family::V6));
            assert_eq!(overhead, expected, "{tunnel}");
        }
    }
}
