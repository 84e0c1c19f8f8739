//! Defines the five-tuple of a flow.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::protocol::IpProtocol;

/// Addresses, ports and protocol of a packet, in the packet's own direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Upper-layer protocol.
    pub protocol: IpProtocol,
}

impl FiveTuple {
    /// Returns the tuple of reply packets.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            protocol: self.protocol,
        }
    }
}

impl fmt::Display for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let src = SocketAddr::new(self.src, self.sport);
        let dst = SocketAddr::new(self.dst, self.dport);
        write!(f, "{} {src} > {dst}", self.protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reversed_tuple_swaps_addresses_and_ports() {
        let tuple = FiveTuple {
            src: "2001:db8::1".parse().unwrap(),
            dst: "2001:db8::2".parse().unwrap(),
            sport: 40000,
            dport: 80,
            protocol: IpProtocol::TCP,
        };
        assert_eq!(
            tuple.to_string(),
            "tcp [2001:db8::1]:40000 > [2001:db8::2]:80"
        );
        assert_eq!(
            tuple.reversed().to_string(),
            "tcp [2001:db8::2]:80 > [2001:db8::1]:40000"
        );
        assert_eq!(tuple.reversed().reversed(), tuple);
    }
}
