//! The fluent builder: from the outside in, each step allowing only what may follow it.
//!
//! Lengths and checksums are right unless a step is told otherwise (`bad_checksum`, `total_length`, …); those steps change
//! the one field they name, and checksums that cover it are computed afterwards, so that a packet has only the faults that
//! were asked for. Nothing here fails: what does not fit a field is cut, as each step says.

pub(crate) mod fragment;
pub(crate) mod ipv4;
pub(crate) mod ipv6;
pub(crate) mod link;
pub(crate) mod network;
pub(crate) mod transport;
pub(crate) mod tunnel;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::{Sum, udp_field};
use crate::octets::put;
use crate::{EthernetBuilder, IpBuilder, Ipv4Builder, Ipv6Builder, MacAddr, Packet};

impl Packet {
    /// Begins a frame.
    #[must_use]
    pub fn ethernet(src: MacAddr, dst: MacAddr) -> EthernetBuilder {
        EthernetBuilder::new(src, dst)
    }

    /// Begins an IPv4 packet without a frame, as tunnels carry it.
    #[must_use]
    pub fn ipv4(src: Ipv4Addr, dst: Ipv4Addr) -> Ipv4Builder {
        Ipv4Builder::new(None, src, dst)
    }

    /// Begins an IPv6 packet without a frame.
    #[must_use]
    pub fn ipv6(src: Ipv6Addr, dst: Ipv6Addr) -> Ipv6Builder {
        Ipv6Builder::new(None, src, dst)
    }

    /// Begins an IP packet of the addresses' family without a frame. Of mixed addresses, the IPv4 one is mapped into IPv6.
    #[must_use]
    pub fn ip(src: IpAddr, dst: IpAddr) -> IpBuilder {
        IpBuilder::new(None, src, dst)
    }
}

/// What goes into a checksum field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChecksumChoice {
    #[default]
    Right,
    Wrong,
    Exactly(u16),
}

impl ChecksumChoice {
    /// Fills the field at `offset` of `covered`; `pseudo_header` is what else is covered.
    fn fill(self, covered: &mut [u8], offset: usize, pseudo_header: Sum, for_udp: bool) {
        put(covered, offset, &[0, 0]);
        let computed = pseudo_header.bytes(covered).checksum();
        let right = if for_udp {
            udp_field(computed)
        } else {
            computed
        };
        let value = match self {
            Self::Right => right,
            Self::Wrong => wrong(right),
            Self::Exactly(value) => value,
        };
        put(covered, offset, &value.to_be_bytes());
    }
}

/// A checksum that no receiver takes for `right`, nor for "none" as UDP's zero is.
const fn wrong(right: u16) -> u16 {
    match right ^ 0x0101 {
        0 => 0x0202,
        other => other,
    }
}
