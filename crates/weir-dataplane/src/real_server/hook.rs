//! Defines a hook: one direction of one interface.

use std::fmt;

use aya::programs::TcAttachType;

/// Direction of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the network to this host.
    Ingress,
    /// From this host to the network.
    Egress,
}

impl Direction {
    /// Returns the name in pins and output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    pub(super) const fn program(self) -> &'static str {
        match self {
            Self::Ingress => "weir_rs_ingress",
            Self::Egress => "weir_rs_egress",
        }
    }

    pub(super) const fn tc(self) -> TcAttachType {
        match self {
            Self::Ingress => TcAttachType::Ingress,
            Self::Egress => TcAttachType::Egress,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One direction of one interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hook {
    /// The interface's index, which is part of the pins' names because interface names can be reassigned.
    pub ifindex: u32,
    /// The interface's current name.
    pub interface: String,
    /// The direction.
    pub direction: Direction,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.interface, self.direction)
    }
}
