//! Defines a VIP of a server and its forwarding method.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_dataplane::real_server::Ports;
use weir_model::TunnelKind;

use crate::request::{TunnelArgument, VipArgument};

const ALL_PORTS: Ports = (0, u16::MAX);

/// The forwarding method of a VIP, and how the server handles the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "forward", rename_all = "lowercase")]
pub enum Role {
    /// The packets are addressed to the VIP.
    Direct,
    /// The packets are encapsulated.
    Tunnel {
        /// The encapsulation.
        tunnel: TunnelKind,
        /// The GUE UDP port; 0 for other tunnels.
        port: u16,
    },
    /// The packets are addressed to this server and carry a DSCP. With DSCP 0, replies are rewritten instead.
    L3dsr {
        /// The DSCP; 0 = none.
        dscp: u8,
    },
}

impl Role {
    /// Returns whether the VIP must be an address of `lo`.
    pub(crate) const fn needs_loopback_vip(self) -> bool {
        !matches!(self, Self::L3dsr { dscp: 0 })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Direct => f.write_str("direct"),
            Self::Tunnel { tunnel, port } => {
                write!(f, "tunnel {}", TunnelArgument { kind: tunnel, port })
            }
            Self::L3dsr { dscp } => write!(f, "l3dsr dscp {dscp}"),
        }
    }
}

/// A VIP with its ports and role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// The VIP.
    pub vip: IpAddr,
    /// First and last port; `None` = every port.
    pub ports: Option<Ports>,
    /// The role.
    #[serde(flatten)]
    pub role: Role,
}

impl Entry {
    pub(crate) fn ports_or_all(&self) -> Ports {
        self.ports.unwrap_or(ALL_PORTS)
    }

    /// Returns whether the programs for this VIP also process the packets of `other`.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let (ports, others) = (self.ports_or_all(), other.ports_or_all());
        let covers_ports = ports.0 <= others.0 && others.1 <= ports.1;
        self.vip == other.vip && self.role == other.role && covers_ports
    }

    pub(crate) fn argument(&self) -> VipArgument {
        VipArgument {
            address: self.vip,
            ports: self.ports,
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.argument(), self.role)
    }
}

/// Returns the prefix length of a single address.
pub(crate) const fn host_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
