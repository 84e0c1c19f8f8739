//! Parses a frame like the data plane: family, offsets, ports, and class.
//!
//! weir-wire parses well-formed packets; this parser also determines the drop reason of malformed ones. It does not
//! verify checksums, because the data plane updates checksums incrementally.

use weir_abi::{Addr, Reason};
use weir_wire::{EtherType, IpProtocol, TcpFlags};

use crate::family::Family;

/// The class of a packet, which determines how the data plane handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketClass {
    /// A complete TCP or UDP packet.
    Plain,
    /// ICMP for IPv4, ICMPv6 for IPv6.
    Icmp,
    /// The first fragment of a datagram, which contains the ports.
    FragmentFirst,
    /// A later fragment, without ports.
    FragmentLater,
    /// A protocol that is not balanced.
    OtherProtocol,
}

/// Addresses, ports and offsets of a frame. Offsets are from the frame's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Address family.
    pub family: Family,
    /// Source address.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
    /// Source port, host order; 0 = none.
    pub sport: u16,
    /// Destination port, host order; 0 = none.
    pub dport: u16,
    /// Protocol after all extension headers.
    pub protocol: IpProtocol,
    /// TCP control bits.
    pub tcp_flags: TcpFlags,
    /// Class of the packet.
    pub class: PacketClass,
    /// Offset of the IP header.
    pub l3: usize,
    /// Offset of the transport header.
    pub l4: usize,
    /// Length in bytes from `l3` to the end of the IP packet, according to its header.
    pub ip_len: usize,
}

/// Why parsing stopped, and the addresses that were parsed before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The packet's final reason if the address filter accepts it.
    pub reason: Reason,
    /// Source and destination, if parsing reached them.
    pub addresses: Option<(Addr, Addr)>,
}

impl ParseError {
    const fn without_addresses(reason: Reason) -> Self {
        Self {
            reason,
            addresses: None,
        }
    }
}

const VLAN_TAGS_MAX: usize = 2;
const EXTENSION_HEADERS_MAX: usize = 4;
/// Maximum offset of parsed extension headers, in bytes.
const EXTENSION_OFFSET_MAX: usize = 512;
/// Maximum offset of parsed transport headers, in bytes.
const TRANSPORT_OFFSET_MAX: usize = 1024;

fn byte(frame: &[u8], offset: usize) -> u8 {
    frame.get(offset).copied().unwrap_or(0)
}

fn read_u16(frame: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([byte(frame, offset), byte(frame, offset + 1)])
}

fn read_ipv4(frame: &[u8], offset: usize) -> Addr {
    core::net::Ipv4Addr::from([0, 1, 2, 3].map(|index| byte(frame, offset + index))).into()
}

fn read_ipv6(frame: &[u8], offset: usize) -> Addr {
    Addr::from_octets(core::array::from_fn(|index| byte(frame, offset + index)))
}

/// Parses a frame.
///
/// # Errors
/// Fails if the packet is not IP, is truncated or malformed, or has too many extension headers.
pub fn parse(frame: &[u8]) -> Result<Layout, ParseError> {
    if frame.len() < 14 {
        return Err(ParseError::without_addresses(Reason::DropTooShort));
    }
    let (mut kind, mut l3) = (EtherType(read_u16(frame, 12)), 14);
    for _ in 0..VLAN_TAGS_MAX {
        if !kind.is_vlan() {
            break;
        }
        if frame.len() < l3 + 4 {
            return Err(ParseError::without_addresses(Reason::DropTooShort));
        }
        kind = EtherType(read_u16(frame, l3 + 2));
        l3 += 4;
    }
    match kind {
        EtherType::IPV4 => parse_ipv4(frame, l3),
        EtherType::IPV6 => parse_ipv6(frame, l3),
        _ => Err(ParseError::without_addresses(Reason::PassNotIp)),
    }
}

fn parse_ipv4(frame: &[u8], l3: usize) -> Result<Layout, ParseError> {
    if frame.len() < l3 + 20 {
        return Err(ParseError::without_addresses(Reason::DropTooShort));
    }
    let header_len = usize::from(byte(frame, l3) & 15) * 4;
    let ip_len = usize::from(read_u16(frame, l3 + 2));
    let fragment = read_u16(frame, l3 + 6);
    let class = match fragment {
        _ if fragment & 0x1fff != 0 => PacketClass::FragmentLater,
        _ if fragment & 0x2000 != 0 => PacketClass::FragmentFirst,
        _ => PacketClass::Plain,
    };
    let layout = Layout {
        family: Family::V4,
        src: read_ipv4(frame, l3 + 12),
        dst: read_ipv4(frame, l3 + 16),
        sport: 0,
        dport: 0,
        protocol: IpProtocol(byte(frame, l3 + 9)),
        tcp_flags: TcpFlags::NONE,
        class,
        l3,
        l4: l3 + header_len,
        ip_len,
    };
    if byte(frame, l3) >> 4 != 4 || header_len < 20 {
        return Err(layout.error(Reason::DropMalformed));
    }
    if ip_len < header_len {
        return Err(layout.error(Reason::DropBadLength));
    }
    layout.with_ports(frame)
}

fn parse_ipv6(frame: &[u8], l3: usize) -> Result<Layout, ParseError> {
    if frame.len() < l3 + 40 {
        return Err(ParseError::without_addresses(Reason::DropTooShort));
    }
    let mut layout = Layout {
        family: Family::V6,
        src: read_ipv6(frame, l3 + 8),
        dst: read_ipv6(frame, l3 + 24),
        sport: 0,
        dport: 0,
        protocol: IpProtocol(byte(frame, l3 + 6)),
        tcp_flags: TcpFlags::NONE,
        class: PacketClass::Plain,
        l3,
        l4: l3 + 40,
        ip_len: 40 + usize::from(read_u16(frame, l3 + 4)),
    };
    if byte(frame, l3) >> 4 != 6 {
        return Err(layout.error(Reason::DropMalformed));
    }
    layout.skip_extensions(frame)?;
    if layout.class == PacketClass::FragmentLater {
        return Ok(layout);
    }
    if layout.l4 - l3 > layout.ip_len {
        return Err(layout.error(Reason::DropBadLength));
    }
    layout.with_ports(frame)
}

const fn is_extension(protocol: IpProtocol) -> bool {
    matches!(
        protocol,
        IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DEST_OPTS | IpProtocol::FRAGMENT
    )
}

impl Layout {
    /// Returns the tuple of the packet's flow.
    #[must_use]
    pub const fn tuple(&self) -> crate::Tuple {
        crate::Tuple {
            src: self.src,
            dst: self.dst,
            sport: self.sport,
            dport: self.dport,
            protocol: self.protocol.0,
            family: self.family,
        }
    }

    /// Returns whether the frame has a VLAN tag.
    #[must_use]
    pub const fn is_tagged(&self) -> bool {
        self.l3 > 14
    }

    const fn error(&self, reason: Reason) -> ParseError {
        ParseError {
            reason,
            addresses: Some((self.src, self.dst)),
        }
    }

    /// Skips extension headers (RFC 8200 section 4). AH and ESP are treated as transport protocols.
    fn skip_extensions(&mut self, frame: &[u8]) -> Result<(), ParseError> {
        for _ in 0..EXTENSION_HEADERS_MAX {
            if !is_extension(self.protocol) {
                break;
            }
            if self.l4 > EXTENSION_OFFSET_MAX {
                return Err(self.error(Reason::PassHeaders));
            }
            if frame.len() < self.l4 + 8 {
                return Err(self.error(Reason::DropTooShort));
            }
            let (header, offset) = (self.protocol, self.l4);
            self.protocol = IpProtocol(byte(frame, offset));
            if header != IpProtocol::FRAGMENT {
                self.l4 += (usize::from(byte(frame, offset + 1)) + 1) * 8;
                continue;
            }
            self.l4 += 8;
            // Without offset and "more fragments", this is an atomic fragment (RFC 6946), which is handled like an
            // ordinary packet.
            let fragment = read_u16(frame, offset + 2);
            if fragment & !7 != 0 {
                self.class = PacketClass::FragmentLater;
                break;
            }
            if fragment & 1 != 0 {
                self.class = PacketClass::FragmentFirst;
            }
        }
        let has_more_extensions =
            is_extension(self.protocol) && self.class != PacketClass::FragmentLater;
        if has_more_extensions || self.l4 > TRANSPORT_OFFSET_MAX {
            return Err(self.error(Reason::PassHeaders));
        }
        Ok(())
    }

    fn with_ports(mut self, frame: &[u8]) -> Result<Self, ParseError> {
        if self.class == PacketClass::FragmentLater {
            return Ok(self);
        }
        let available = self.ip_len - (self.l4 - self.l3);
        let has_header = match self.protocol {
            IpProtocol::TCP => {
                let header_len = usize::from(byte(frame, self.l4 + 12) >> 4) * 4;
                self.tcp_flags = TcpFlags(byte(frame, self.l4 + 13));
                self.require_bytes(frame, 20)?;
                header_len >= 20 && header_len <= available
            }
            IpProtocol::UDP => {
                let length = usize::from(read_u16(frame, self.l4 + 4));
                self.require_bytes(frame, 8)?;
                // A first fragment contains only a part of the datagram.
                let is_complete = self.class == PacketClass::Plain;
                available >= 8 && (!is_complete || (length >= 8 && length <= available))
            }
            _ => {
                let icmp = match self.family {
                    Family::V4 => IpProtocol::ICMP,
                    Family::V6 => IpProtocol::ICMPV6,
                };
                self.class = if self.protocol == icmp {
                    PacketClass::Icmp
                } else {
                    PacketClass::OtherProtocol
                };
                return Ok(self);
            }
        };
        if !has_header {
            return Err(self.error(match self.class {
                PacketClass::FragmentFirst => Reason::DropFragmentTiny,
                _ => Reason::DropBadLength,
            }));
        }
        self.sport = read_u16(frame, self.l4);
        self.dport = read_u16(frame, self.l4 + 2);
        Ok(self)
    }

    const fn require_bytes(&self, frame: &[u8], bytes: usize) -> Result<(), ParseError> {
        if frame.len() < self.l4 + bytes {
            return Err(self.error(Reason::DropTooShort));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::Packet;

    fn frame() -> weir_wire::EthernetBuilder {
        Packet::ethernet([2, 0, 0, 0, 0, 1].into(), [2, 0, 0, 0, 0, 2].into())
    }

    #[test]
    fn well_formed_packets_are_parsed_like_weir_wire() {
        let (src, dst) = ("2001:db8::1", "2001:db8::2");
        let packets = [
            frame()
                .ipv4([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
                .options(&[1, 1, 1])
                .udp(7, 9)
                .build(),
            frame()
                .vlan(5)
                .service_vlan(6)
                .ipv4([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
                .tcp(7, 9)
                .build(),
            frame()
                .ipv6(src.parse().unwrap(), dst.parse().unwrap())
                .hop_by_hop()
                .dest_opts()
                .tcp(7, 9)
                .build(),
            frame()
                .ipv6(src.parse().unwrap(), dst.parse().unwrap())
                .fragment_header(1, 0, false)
                .udp(7, 9)
                .build(),
        ];
        for packet in packets {
            let layout = parse(&packet).unwrap();
            let tuple = Packet::parse(&packet).unwrap().five_tuple().unwrap();
            assert_eq!(
                (layout.src.to_ip(), layout.dst.to_ip()),
                (tuple.src, tuple.dst)
            );
            assert_eq!((layout.sport, layout.dport), (tuple.sport, tuple.dport));
            assert_eq!(layout.protocol, tuple.protocol);
            assert_eq!(layout.l3 + layout.ip_len, packet.len());
            assert_eq!(layout.class, PacketClass::Plain);
        }
    }

    #[test]
    fn truncated_packets_do_not_panic() {
        let complete = frame()
            .ipv6(
                "2001:db8::1".parse().unwrap(),
                "2001:db8::2".parse().unwrap(),
            )
            .hop_by_hop()
            .fragment_header(1, 0, true)
            .dest_opts()
            .tcp(7, 9)
            .build();
        for end in 0..complete.len() {
            if let Ok(layout) = parse(&complete[..end]) {
                assert!(layout.l4 <= end);
            }
        }
    }
}
