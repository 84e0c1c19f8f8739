//! Encapsulates packets for tunnel servers.
//!
//! weir-wire builds the headers. This module determines their contents: TTL and traffic class, which it copies from the
//! inner packet (RFC 6040, ingress); DF; and the GUE source port, which distributes flows across several paths.

use weir_abi::{Dest, TUNNEL_CSUM, TUNNEL_REMCSUM, Tunnel};
use weir_wire::checksum::{pseudo_header, udp_checksum_field, update_u16};
use weir_wire::{Encapsulation, EtherType, GueChecksum, IpBuilder, IpProtocol, Packet};

use crate::edit::{read_u16, ttl, write_u16};
use crate::family::Family;
use crate::parse::{Layout, PacketClass};

/// Returns the number of bytes that the server's tunnel adds to an IP packet.
pub(crate) fn overhead(dest: &Dest) -> usize {
    let ip = if dest.family == 4 { 20 } else { 40 };
    let len = |flag: u8, with: usize, without: usize| {
        if dest.tunnel_flags & flag != 0 {
            with
        } else {
            without
        }
    };
    ip + match Tunnel::from_number(dest.tunnel) {
        Some(Tunnel::Gue) => 8 + len(TUNNEL_REMCSUM, 12, 4),
        Some(Tunnel::Gre) => len(TUNNEL_CSUM, 8, 4),
        Some(Tunnel::Ipip) | None => 0,
    }
}

fn traffic_class(frame: &[u8], layout: &Layout) -> u8 {
    let first = read_u16(frame, layout.l3);
    match layout.family {
        Family::V4 => first as u8,
        Family::V6 => (first >> 4) as u8,
    }
}

/// The transport checksum of an inner packet with a complete segment: the value in the packet, and the correct value.
struct Segment {
    checksum_offset: usize,
    claimed: u16,
    correct: u16,
    /// Whether the IP header has neither options nor extension headers.
    has_plain_header: bool,
}

impl Segment {
    fn from_inner(inner: &[u8], layout: &Layout) -> Option<Self> {
        let l4 = layout.l4 - layout.l3;
        let segment = inner.get(l4..)?;
        let field = match layout.protocol {
            _ if layout.class != PacketClass::Plain => return None,
            IpProtocol::TCP => 16,
            IpProtocol::UDP if usize::from(read_u16(segment, 4)) == segment.len() => 6,
            _ => return None,
        };
        let claimed = read_u16(segment, field);
        if layout.protocol == IpProtocol::UDP && claimed == 0 {
            return None;
        }
        let mut zeroed = segment.to_vec();
        write_u16(&mut zeroed, field, 0);
        let (src, dst) = (layout.src.to_ip(), layout.dst.to_ip());
        let pseudo = pseudo_header(src, dst, layout.protocol, segment.len());
        Some(Self {
            checksum_offset: l4 + field,
            claimed,
            correct: pseudo.bytes(&zeroed).checksum(),
            has_plain_header: l4 == if layout.family == Family::V4 { 20 } else { 40 },
        })
    }
}

/// Returns the inner packet with a correct checksum, because the outer checksum is computed as if the inner one were
/// correct. The data plane derives the outer checksum from the inner one without summing the data. If the inner
/// checksum is wrong, the outer one is wrong too, and the server drops the packet either way.
fn with_correct_checksum(inner: &[u8], segment: Option<&Segment>) -> Vec<u8> {
    let mut corrected = inner.to_vec();
    if let Some(segment) = segment.filter(|segment| segment.has_plain_header) {
        write_u16(&mut corrected, segment.checksum_offset, segment.correct);
    }
    corrected
}

/// Encapsulates `inner` in the tunnel to `dest`. `hash` selects the GUE source port.
fn encapsulate(outer: IpBuilder, inner: &[u8], layout: &Layout, dest: &Dest, hash: u64) -> Vec<u8> {
    let csum = dest.tunnel_flags & TUNNEL_CSUM != 0;
    let remote = dest.tunnel_flags & TUNNEL_REMCSUM != 0;
    let segment = Segment::from_inner(inner, layout);
    let gue = |checksum| Encapsulation::Gue {
        sport: 0xc000 | (hash & 0x3fff) as u16,
        dport: dest.tunnel_port.get(),
        checksum,
    };
    let encapsulation = match Tunnel::from_number(dest.tunnel) {
        Some(Tunnel::Gre) => Encapsulation::Gre { checksum: csum },
        Some(Tunnel::Gue) if remote => {
            return encapsulate_remote(outer, inner, segment, dest, &gue);
        }
        Some(Tunnel::Gue) if csum => gue(GueChecksum::Full),
        Some(Tunnel::Gue) => gue(GueChecksum::None),
        Some(Tunnel::Ipip) | None => Encapsulation::Ipip,
    };
    let mut packet = outer.encapsulate(
        encapsulation,
        &with_correct_checksum(inner, segment.as_ref()),
    );
    let inner_offset = packet.len() - inner.len();
    packet.truncate(inner_offset);
    packet.extend(inner);
    packet
}

/// Encapsulates `inner` in GUE with remote checksum offload: the receiver completes the inner checksum. The outer
/// checksum is needed too, because a completed checksum is always correct and would hide corruption.
fn encapsulate_remote(
    outer: IpBuilder,
    inner: &[u8],
    segment: Option<Segment>,
    dest: &Dest,
    gue: &dyn Fn(GueChecksum) -> Encapsulation,
) -> Vec<u8> {
    let checksum = if segment.is_some() {
        GueChecksum::Remote
    } else {
        GueChecksum::None
    };
    let mut packet = outer.encapsulate(gue(checksum), inner);
    let udp_offset = if dest.family == 4 { 20 } else { 40 };
    let (src, dst) = (dest.tunnel_source.to_ip(), dest.addr.to_ip());
    write_u16(&mut packet, udp_offset + 6, 0);
    let datagram = packet.get(udp_offset..).unwrap_or_default();
    let mut sum = pseudo_header(src, dst, IpProtocol::UDP, datagram.len())
        .bytes(datagram)
        .checksum();
    if let Some(segment) = segment.filter(|segment| segment.has_plain_header) {
        sum = update_u16(sum, !segment.correct, !segment.claimed);
    }
    write_u16(&mut packet, udp_offset + 6, udp_checksum_field(sum));
    packet
}

/// Inserts the outer headers before the IP packet. Keeps the frame's Ethernet header, its VLAN tags and any trailing
/// bytes.
pub(crate) fn push_headers(frame: &mut Vec<u8>, layout: &Layout, dest: &Dest, hash: u64) {
    let (l3, end) = (layout.l3, layout.l3 + layout.ip_len);
    let inner = frame.get(l3..end).unwrap_or_default().to_vec();
    let outer = Packet::ip(dest.tunnel_source.to_ip(), dest.addr.to_ip())
        .ttl(ttl(frame, layout))
        .tos(traffic_class(frame, layout))
        .dont_fragment();
    let mut outer = encapsulate(outer, &inner, layout, dest, hash);
    let kind = if dest.family == 4 {
        EtherType::IPV4
    } else {
        EtherType::IPV6
    };
    if dest.family != 4 {
        // The flow label distributes flows across several paths at routers that hash only outer headers (RFC 6438).
        let label = (hash >> 44) as u32 & 0xf_ffff;
        let first = read_u16(&outer, 0) & 0xfff0 | (label >> 16) as u16;
        write_u16(&mut outer, 0, first);
        write_u16(&mut outer, 2, label as u16);
    }
    write_u16(frame, l3 - 2, kind.0);
    frame.splice(l3..end.min(frame.len()), outer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use weir_abi::{Be16, Forward};

    fn dest(tunnel: Tunnel, flags: u8, server: &str, source: &str) -> Dest {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        Dest {
            addr: ip(server).into(),
            tunnel_source: ip(source).into(),
            forward: Forward::Tunnel as u8,
            tunnel: tunnel as u8,
            tunnel_flags: flags,
            tunnel_port: Be16::new(6080),
            family: if ip(server).is_ipv4() { 4 } else { 6 },
            ..Dest::default()
        }
    }

    /// Encapsulates a frame in every kind of tunnel, and asserts that the checksums are valid if `valid` is true, and
    /// invalid otherwise.
    fn check_checksums(frame: &[u8], valid: bool) {
        let layout = crate::parse(frame).unwrap();
        for (server, source) in [("10.0.0.5", "10.0.0.1"), ("fd00::5", "fd00::1")] {
            for (tunnel, flags) in [
                (Tunnel::Ipip, 0),
                (Tunnel::Gre, TUNNEL_CSUM),
                (Tunnel::Gue, TUNNEL_CSUM),
                (Tunnel::Gue, TUNNEL_REMCSUM),
            ] {
                let mut out = frame.to_vec();
                let hash = 0xabcd_ef01_2345_6789;
                push_headers(
                    &mut out,
                    &layout,
                    &dest(tunnel, flags, server, source),
                    hash,
                );
                let parsed = Packet::parse(&out).unwrap();
                let outer = parsed.ip().unwrap();
                assert_eq!((outer.ttl(), outer.tos()), (9, 0xb9));
                let text = weir_wire::describe(&out);
                assert_eq!(
                    parsed.has_valid_checksums(),
                    valid,
                    "{tunnel:?} {flags}: {text}"
                );
                if tunnel == Tunnel::Gue {
                    let ports = outer.ports();
                    assert_eq!(ports, Some((0xc000 | (hash & 0x3fff) as u16, 6080)));
                }
                if let weir_wire::IpHeader::V6(header, _) = &outer.ip {
                    assert_eq!(u64::from(header.flow_label), hash >> 44);
                }
                // The receiver completes the inner checksum.
                if flags & TUNNEL_REMCSUM == 0 {
                    assert_eq!(&out[out.len() - layout.ip_len..], &frame[layout.l3..]);
                }
            }
        }
    }

    #[test]
    fn checksums_of_tunnels_are_valid_if_the_inner_one_is() {
        let link = || Packet::ethernet([2, 0, 0, 0, 0, 1].into(), [2, 0, 0, 0, 0, 2].into());
        for (src, dst) in [
            ("198.51.100.1", "192.0.2.10"),
            ("2001:db8::1", "2001:db8::10"),
        ] {
            let ip = |text: &str| text.parse::<IpAddr>().unwrap();
            let packet = || link().ip(ip(src), ip(dst)).ttl(9).tos(0xb9);
            check_checksums(&packet().tcp(1000, 80).payload(b"hello").build(), true);
            check_checksums(&packet().udp(1000, 80).payload(b"odd").build(), true);
            check_checksums(&packet().tcp(1000, 80).bad_checksum().build(), false);
        }
        let v4 = link().ipv4([198, 51, 100, 1].into(), [192, 0, 2, 10].into());
        let without_checksum = v4
            .ttl(9)
            .tos(0xb9)
            .udp(1000, 80)
            .payload(b"odd")
            .zero_udp_checksum();
        check_checksums(&without_checksum.build(), true);
    }

    #[test]
    fn outer_headers_have_the_expected_length_and_fields() {
        let frame = Packet::ethernet([2, 0, 0, 0, 0, 1].into(), [2, 0, 0, 0, 0, 2].into())
            .vlan(3)
            .ipv4([198, 51, 100, 1].into(), [192, 0, 2, 10].into())
            .ttl(9)
            .tos(0xb9)
            .tcp(1000, 80)
            .payload(b"hello")
            .build();
        let layout = crate::parse(&frame).unwrap();
        for (server, source) in [("10.0.0.5", "10.0.0.1"), ("fd00::5", "fd00::1")] {
            for (tunnel, flags) in [
                (Tunnel::Ipip, 0),
                (Tunnel::Gre, 0),
                (Tunnel::Gre, TUNNEL_CSUM),
                (Tunnel::Gue, 0),
                (Tunnel::Gue, TUNNEL_CSUM),
                (Tunnel::Gue, TUNNEL_REMCSUM),
            ] {
                let dest = dest(tunnel, flags, server, source);
                let mut out = frame.clone();
                push_headers(&mut out, &layout, &dest, 0xabcd_ef01_2345_6789);
                assert_eq!(
                    out.len(),
                    frame.len() + overhead(&dest),
                    "{tunnel:?} {flags}"
                );
                let parsed = Packet::parse(&out).unwrap();
                let outer = parsed.ip().unwrap();
                assert_eq!((outer.ttl(), outer.tos()), (9, 0xb9));
                let inner = parsed.inner().unwrap();
                assert_eq!(inner.ports(), Some((1000, 80)));
                assert_eq!(out[..12], frame[..12]);
            }
        }
    }

    /// Returns the checksum's offset, whether it is correct, and whether the header is plain.
    fn segment_of(frame: &[u8]) -> Option<(usize, bool, bool)> {
        let layout = crate::parse(frame).unwrap();
        let inner = &frame[layout.l3..layout.l3 + layout.ip_len];
        let segment = Segment::from_inner(inner, &layout)?;
        let is_correct = segment.claimed == segment.correct;
        Some((
            segment.checksum_offset,
            is_correct,
            segment.has_plain_header,
        ))
    }

    #[test]
    fn complete_segments_have_a_checksum_at_their_protocols_offset() {
        let link = || Packet::ethernet([2, 0, 0, 0, 0, 1].into(), [2, 0, 0, 0, 0, 2].into());
        let v4 = || link().ipv4([198, 51, 100, 1].into(), [192, 0, 2, 10].into());
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let v6 = || link().ip(ip("2001:db8::1"), ip("2001:db8::10"));
        let mut zero_tcp_checksum = v4().tcp(1000, 80).build();
        write_u16(&mut zero_tcp_checksum, 14 + 20 + 16, 0);
        for (frame, expected) in [
            (v4().tcp(1000, 80).build(), (36, true, true)),
            (v4().udp(1000, 80).payload(b"odd").build(), (26, true, true)),
            (v6().tcp(1000, 80).build(), (56, true, true)),
            (v6().udp(1000, 80).payload(b"odd").build(), (46, true, true)),
            (
                v4().options(&[1, 1, 1, 1]).udp(1000, 80).build(),
                (30, true, false),
            ),
            // In TCP, zero is a checksum like any other.
            (zero_tcp_checksum, (36, false, true)),
        ] {
            let text = weir_wire::describe(&frame);
            assert_eq!(segment_of(&frame), Some(expected), "{text}");
        }
    }

    #[test]
    fn fragments_padded_datagrams_and_datagrams_without_checksum_have_no_segment() {
        let link = || Packet::ethernet([2, 0, 0, 0, 0, 1].into(), [2, 0, 0, 0, 0, 2].into());
        let v4 = || link().ipv4([198, 51, 100, 1].into(), [192, 0, 2, 10].into());
        let mut padded = v4().udp(1000, 80).payload(b"odd").build();
        write_u16(&mut padded, 14 + 20 + 4, 8);
        let mut first_tcp_fragment = v4().tcp(1000, 80).build();
        write_u16(&mut first_tcp_fragment, 14 + 6, 0x2000);
        let mut first_udp_fragment = v4().udp(1000, 80).build();
        write_u16(&mut first_udp_fragment, 14 + 6, 0x2000);
        let without_checksum = v4().udp(1000, 80).zero_udp_checksum().build();
        for frame in [
            padded,
            first_tcp_fragment,
            first_udp_fragment,
            without_checksum,
        ] {
            assert_eq!(segment_of(&frame), None, "{frame:02x?}");
        }
    }
}
