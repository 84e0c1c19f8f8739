//! Parses a frame the way the data plane does: family, offsets, ports, and class.
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

const MAX_VLAN_TAGS: usize = 2;
const MAX_EXTENSION_HEADERS: usize = 4;
/// Maximum offset of parsed extension headers, in bytes.
const MAX_EXTENSION_OFFSET: usize = 512;
/// Maximum offset of parsed transport headers, in bytes.
const MAX_TRANSPORT_OFFSET: usize = 1024;

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
    for _ in 0..MAX_VLAN_TAGS {
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
        for _ in 0..MAX_EXTENSION_HEADERS {
            if !is_extension(self.protocol) {
                break;
            }
            if self.l4 > MAX_EXTENSION_OFFSET {
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
            // If the offset and the M flag are both zero, this is an atomic fragment (RFC 6946), which is handled like
            // an ordinary packet.
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
        if has_more_extensions || self.l4 > MAX_TRANSPORT_OFFSET {
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
    fn parser_agrees_with_weir_wire_on_well_formed_packets() {
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

    const OSPF: IpProtocol = IpProtocol(89);
    const NO_NEXT_HEADER: IpProtocol = IpProtocol(59);
    const MORE_FRAGMENTS: u16 = 0x2000;

    fn ipv4(protocol: IpProtocol, fragment: u16, segment: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend(u16::try_from(20 + segment.len()).unwrap().to_be_bytes());
        frame.extend([0, 7]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, protocol.0, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend(segment);
        frame
    }

    fn ipv6(protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        frame.extend([protocol.0, 64]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        frame.extend(payload);
        frame
    }

    /// Returns an extension header with `units` times 8 bytes after the first 8 bytes (RFC 8200 section 4).
    fn extension(next: IpProtocol, units: u8) -> Vec<u8> {
        let mut header = vec![0; (usize::from(units) + 1) * 8];
        (header[0], header[1]) = (next.0, units);
        header
    }

    /// Returns a UDP header with ports 7 and 9.
    fn udp(length: u8) -> Vec<u8> {
        vec![0, 7, 0, 9, 0, length, 0, 0]
    }

    /// Returns a TCP header of 20 bytes with ports 7 and 9.
    fn tcp(data_offset: u8) -> Vec<u8> {
        let mut header = vec![0; 20];
        (header[1], header[3]) = (7, 9);
        (header[12], header[13]) = (data_offset << 4, 2);
        header
    }

    fn class_and_ports(frame: &[u8]) -> Result<(PacketClass, u16, u16), Reason> {
        parse(frame)
            .map(|layout| (layout.class, layout.sport, layout.dport))
            .map_err(|error| {
                let (src, dst) = error.addresses.expect("the IP header is complete");
                assert_ne!(src, dst);
                error.reason
            })
    }

    #[test]
    fn frame_that_ends_within_its_ethernet_header_or_tag_is_too_short() {
        let too_short = Err(ParseError::without_addresses(Reason::DropTooShort));
        let not_ip = Err(ParseError::without_addresses(Reason::PassNotIp));
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0x00, 0, 5, 0x08, 0x06]);
        for end in 0..18 {
            assert_eq!(parse(&frame[..end]), too_short, "{end}");
        }
        assert_eq!(parse(&frame), not_ip);
        frame.drain(12..16);
        assert_eq!(frame.len(), 14);
        assert_eq!(parse(&frame), not_ip);
    }

    #[test]
    fn frame_that_ends_within_its_ip_header_is_too_short() {
        for complete in [ipv4(OSPF, 0, &[]), ipv6(NO_NEXT_HEADER, &[])] {
            for end in 14..complete.len() {
                let too_short = ParseError::without_addresses(Reason::DropTooShort);
                assert_eq!(parse(&complete[..end]), Err(too_short), "{end}");
            }
            let expected = Ok((PacketClass::OtherProtocol, 0, 0));
            assert_eq!(class_and_ports(&complete), expected);
        }
    }

    #[test]
    fn wrong_version_or_length_in_ip_header_is_the_drop_reason() {
        let v4 = ipv4(IpProtocol::UDP, 0, &udp(8));
        let v6 = ipv6(IpProtocol::UDP, &udp(8));
        for (frame, offset, value, reason) in [
            (&v4, 14, 0x55, Reason::DropMalformed),
            (&v4, 14, 0x44, Reason::DropMalformed),
            (&v4, 17, 19, Reason::DropBadLength),
            (&v6, 14, 0x50, Reason::DropMalformed),
        ] {
            assert_eq!(class_and_ports(frame), Ok((PacketClass::Plain, 7, 9)));
            let mut frame = frame.clone();
            frame[offset] = value;
            assert_eq!(class_and_ports(&frame), Err(reason), "{offset} {value}");
        }
    }

    #[test]
    fn is_tagged_detects_vlan_tags() {
        let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        for (link, is_tagged) in [
            (frame(), false),
            (frame().vlan(5), true),
            (frame().service_vlan(6).vlan(5), true),
        ] {
            let packet = link.ipv4(src, dst).udp(7, 9).build();
            assert_eq!(parse(&packet).unwrap().is_tagged(), is_tagged);
        }
    }

    #[test]
    fn frame_that_ends_within_an_extension_header_is_too_short() {
        let complete = ipv6(IpProtocol::DEST_OPTS, &extension(NO_NEXT_HEADER, 0));
        for end in 54..complete.len() {
            let result = class_and_ports(&complete[..end]);
            assert_eq!(result, Err(Reason::DropTooShort), "{end}");
        }
        let layout = parse(&complete).unwrap();
        assert_eq!((layout.protocol, layout.l4), (NO_NEXT_HEADER, 62));
    }

    #[test]
    fn packet_with_headers_beyond_the_maximum_offset_is_passed() {
        // The second extension header is at 54 + 8 * (1 + first); the transport header follows it.
        for (first, second, is_parsed) in [
            (0, 0, true),
            (56, 0, true),
            (57, 0, false),
            (56, 63, true),
            (56, 64, false),
        ] {
            let mut payload = extension(IpProtocol::DEST_OPTS, first);
            payload.extend(extension(IpProtocol::UDP, second));
            payload.extend(udp(8));
            let expected = if is_parsed {
                Ok((PacketClass::Plain, 7, 9))
            } else {
                Err(Reason::PassHeaders)
            };
            let result = class_and_ports(&ipv6(IpProtocol::HOP_BY_HOP, &payload));
            assert_eq!(result, expected, "{first} {second}");
        }
    }

    #[test]
    fn packet_with_more_than_four_extension_headers_is_passed() {
        let mut payload = extension(IpProtocol::UDP, 0);
        payload.extend(udp(8));
        for count in 1..=6 {
            let expected = if count <= 4 {
                Ok((PacketClass::Plain, 7, 9))
            } else {
                Err(Reason::PassHeaders)
            };
            let result = class_and_ports(&ipv6(IpProtocol::DEST_OPTS, &payload));
            assert_eq!(result, expected, "{count}");
            payload.splice(0..0, extension(IpProtocol::DEST_OPTS, 0));
        }
    }

    #[test]
    fn offset_and_more_fragments_in_fragment_header_determine_the_class() {
        let later = (PacketClass::FragmentLater, 0, 0);
        for (next, field, expected) in [
            (IpProtocol::UDP, 0, (PacketClass::Plain, 7, 9)),
            // The receiver ignores the two reserved bits (RFC 8200 section 4.5).
            (IpProtocol::UDP, 6, (PacketClass::Plain, 7, 9)),
            (IpProtocol::UDP, 1, (PacketClass::FragmentFirst, 7, 9)),
            (IpProtocol::UDP, 8, later),
            (IpProtocol::UDP, 9, later),
            (IpProtocol::UDP, 0xfff8, later),
            // The data after the header is not an extension header.
            (IpProtocol::DEST_OPTS, 8, later),
        ] {
            let [high, low] = u16::to_be_bytes(field);
            let mut payload = vec![next.0, 0, high, low, 0, 0, 0, 7];
            payload.extend(udp(8));
            let result = class_and_ports(&ipv6(IpProtocol::FRAGMENT, &payload));
            assert_eq!(result, Ok(expected), "{next:?} {field}");
        }
    }

    #[test]
    fn udp_length_is_checked_in_complete_packets_but_not_in_first_fragments() {
        let plain = Ok((PacketClass::Plain, 7, 9));
        let first = Ok((PacketClass::FragmentFirst, 7, 9));
        for (fragment, ip_len, udp_length, expected) in [
            (0, 28, 8, plain),
            (0, 29, 8, plain),
            (0, 29, 9, plain),
            (0, 28, 7, Err(Reason::DropBadLength)),
            (0, 28, 9, Err(Reason::DropBadLength)),
            (0, 27, 8, Err(Reason::DropBadLength)),
            (MORE_FRAGMENTS, 28, 8, first),
            (MORE_FRAGMENTS, 28, 200, first),
            (MORE_FRAGMENTS, 27, 200, Err(Reason::DropFragmentTiny)),
        ] {
            let mut frame = ipv4(IpProtocol::UDP, fragment, &udp(udp_length));
            frame[17] = ip_len;
            frame.push(0);
            let result = class_and_ports(&frame);
            assert_eq!(result, expected, "{fragment} {ip_len} {udp_length}");
        }
    }

    #[test]
    fn tcp_header_must_be_at_least_20_bytes_and_fit_in_the_packet() {
        for (fragment, data_offset, expected) in [
            (0, 5, Ok((PacketClass::Plain, 7, 9))),
            (0, 4, Err(Reason::DropBadLength)),
            (0, 6, Err(Reason::DropBadLength)),
            (MORE_FRAGMENTS, 5, Ok((PacketClass::FragmentFirst, 7, 9))),
            (MORE_FRAGMENTS, 4, Err(Reason::DropFragmentTiny)),
            (MORE_FRAGMENTS, 6, Err(Reason::DropFragmentTiny)),
        ] {
            let frame = ipv4(IpProtocol::TCP, fragment, &tcp(data_offset));
            let result = class_and_ports(&frame);
            assert_eq!(result, expected, "{fragment} {data_offset}");
        }
    }

    #[test]
    fn frame_that_ends_within_its_transport_header_is_too_short() {
        for complete in [
            ipv4(IpProtocol::UDP, 0, &udp(8)),
            ipv4(IpProtocol::TCP, 0, &tcp(5)),
        ] {
            for end in 34..complete.len() {
                let result = class_and_ports(&complete[..end]);
                assert_eq!(result, Err(Reason::DropTooShort), "{end}");
            }
            let expected = Ok((PacketClass::Plain, 7, 9));
            assert_eq!(class_and_ports(&complete), expected);
        }
    }
}
