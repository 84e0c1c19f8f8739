//! The fluent builder, from the outermost header inwards; each step offers only the headers that can follow.
//!
//! Lengths and checksums are computed unless they are overridden (`bad_checksum`, `total_length`, …). An override
//! changes only that field, and checksums that cover it are computed afterwards, so that a packet has only the
//! requested faults. Building never fails: values that do not fit a field are truncated, as documented for each step.

pub(crate) mod announcement;
pub(crate) mod fragment;
pub(crate) mod ipv4;
pub(crate) mod ipv6;
pub(crate) mod link;
pub(crate) mod network;
pub(crate) mod transport;
pub(crate) mod tunnel;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::put;
use crate::checksum::{Sum, udp_field};
use crate::{EthernetBuilder, IpBuilder, Ipv4Builder, Ipv6Builder, MacAddr, Packet};

impl Packet {
    /// Starts a frame.
    #[must_use]
    pub fn ethernet(src: MacAddr, dst: MacAddr) -> EthernetBuilder {
        EthernetBuilder::new(src, dst)
    }

    /// Starts an IPv4 packet without a frame, for tunnels.
    #[must_use]
    pub fn ipv4(src: Ipv4Addr, dst: Ipv4Addr) -> Ipv4Builder {
        Ipv4Builder::new(None, src, dst)
    }

    /// Starts an IPv6 packet without a frame.
    #[must_use]
    pub fn ipv6(src: Ipv6Addr, dst: Ipv6Addr) -> Ipv6Builder {
        Ipv6Builder::new(None, src, dst)
    }

    /// Starts an IP packet of the addresses' family without a frame. Of mixed addresses, the IPv4 one is mapped into
    /// IPv6.
    #[must_use]
    pub fn ip(src: IpAddr, dst: IpAddr) -> IpBuilder {
        IpBuilder::new(None, src, dst)
    }
}

/// The value for a checksum field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChecksumChoice {
    #[default]
    Right,
    Wrong,
    Exactly(u16),
}

impl ChecksumChoice {
    /// Writes the field at `offset` of `covered`; the checksum also covers `pseudo_header`.
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

/// An invalid checksum that is neither equivalent to `right` nor zero, which means "none" in UDP.
const fn wrong(right: u16) -> u16 {
    match right ^ 0x0101 {
        0 => 0x0202,
        other => other,
    }
}
