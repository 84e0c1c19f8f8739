//! Builds packets with a fluent interface, from the outermost to the innermost header.
//!
//! Each step has methods only for the headers that can follow.
//!
//! Lengths and checksums are computed unless they are overridden (`bad_checksum`, `total_length`, …). An override
//! changes only its field, and checksums that cover the field are computed afterwards, so that a packet has only the
//! requested faults. Building never fails: values that do not fit into a field are truncated, as documented for each
//! step.

pub(crate) mod address_query;
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
use crate::checksum::{Sum, udp_checksum_field};
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

    /// Starts an IP packet without a frame, with the family of the addresses. If the families differ, the IPv4 address
    /// is used as an IPv4-mapped IPv6 address.
    #[must_use]
    pub fn ip(src: IpAddr, dst: IpAddr) -> IpBuilder {
        IpBuilder::new(None, src, dst)
    }
}

/// How a checksum field is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChecksumChoice {
    #[default]
    Valid,
    Invalid,
    Value(u16),
}

impl ChecksumChoice {
    /// Writes the checksum field at `offset` in `covered`. The checksum also covers `pseudo_header`.
    fn fill(self, covered: &mut [u8], offset: usize, pseudo_header: Sum, is_udp: bool) {
        put(covered, offset, &[0, 0]);
        let computed = pseudo_header.bytes(covered).checksum();
        let valid = if is_udp {
            udp_checksum_field(computed)
        } else {
            computed
        };
        let value = match self {
            Self::Valid => valid,
            Self::Invalid => invalid_checksum(valid),
            Self::Value(value) => value,
        };
        put(covered, offset, &value.to_be_bytes());
    }
}

/// Returns an invalid checksum that is neither equivalent to `valid` nor zero, which means "no checksum" in UDP.
const fn invalid_checksum(valid: u16) -> u16 {
    match valid ^ 0x0101 {
        0 => 0x0202,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_checksum_is_neither_valid_nor_absent() {
        for valid in 0..=u16::MAX {
            let invalid = invalid_checksum(valid);
            // 0 and 0xffff are equivalent.
            let is_equivalent = invalid % u16::MAX == valid % u16::MAX;
            assert!(invalid != 0 && !is_equivalent, "{valid:#x}: {invalid:#x}");
        }
    }
}
