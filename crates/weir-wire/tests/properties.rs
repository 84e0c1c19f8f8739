//! Tests the parsers and builders with random input.
//!
//! No parser panics, built packets are parsed to the same fields, and fragments are reassembled to the original packet.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use weir_wire::{
    ArpPacket, ChecksumState, Content, Datagram, EthernetView, Extension, FragmentHeader, GreView,
    GueChecksum, GueView, HeaderOptions, Icmpv4View, Icmpv6View, IpHeader, IpProtocol, Ipv4View,
    Ipv6Chain, Ipv6View, MacAddr, NeighborMessage, Packet, RemoteChecksum, TcpFlags, TcpView,
    TunnelHeader, UdpView, describe, diff, encap_gre, encap_gue, encap_ipip, fragment,
};

const SRC: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 1]);
const DST: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 2]);

/// Generates two addresses of the same family.
fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(a, b)| (IpAddr::V4(a.into()), IpAddr::V4(b.into()))),
        any::<(u128, u128)>().prop_map(|(a, b)| (IpAddr::V6(a.into()), IpAddr::V6(b.into()))),
    ]
}

/// Generates complete IP packets with TCP, UDP or ICMP.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let kinds = (
        0..4u8,
        any::<u16>(),
        any::<u16>(),
        vec(any::<u8>(), 0..900),
        vec(any::<u8>(), 0..41),
    );
    (addresses(), kinds, any::<u8>()).prop_map(
        |((src, dst), (kind, a, b, payload, options), ttl)| {
            let ip = Packet::ip(src, dst).ttl(ttl).tos(ttl.rotate_left(3));
            match kind {
                0 => ip
                    .tcp(a, b)
                    .flags(TcpFlags(ttl))
                    .options(&options)
                    .payload(&payload)
                    .build(),
                // A datagram to port 6080 would be parsed as GUE.
                1 => ip.udp(a, b & 0x0fff).payload(&payload).build(),
                2 => ip
                    .udp(a, b & 0x0fff)
                    .payload(&payload)
                    .zero_udp_checksum()
                    .build(),
                _ => ip.echo_request(a, b).payload(&payload).build(),
            }
        },
    )
}

fn parse_with_all_parsers(bytes: &[u8]) {
    let _ = EthernetView::new(bytes).map(|view| (view.header(), view.payload().len()));
    let _ = ArpPacket::parse(bytes);
    let _ = NeighborMessage::parse(bytes);
    for view in [Ipv4View::new(bytes), Ipv4View::from_quoted(bytes)]
        .into_iter()
        .flatten()
    {
        let _ = (view.header(), view.payload(), view.is_checksum_valid());
    }
    for view in [Ipv6View::new(bytes), Ipv6View::from_quoted(bytes)]
        .into_iter()
        .flatten()
    {
        let _ = (view.header(), view.payload());
    }
    let _ = TcpView::new(bytes).map(|view| (view.header(), view.payload().len()));
    let _ = UdpView::new(bytes).map(|view| (view.header(), view.payload().len()));
    let _ = Icmpv4View::new(bytes).map(|view| (view.message(), view.is_checksum_valid()));
    let _ = Icmpv6View::new(bytes).map(|view| view.message());
    let _ = GreView::new(bytes).map(|view| (view.header(), view.is_checksum_valid()));
    let _ = GueView::new(bytes).map(|view| (view.header(), view.payload().len()));
    for next in [
        IpProtocol::HOP_BY_HOP,
        IpProtocol::FRAGMENT,
        IpProtocol::DEST_OPTS,
    ] {
        let _ = Ipv6Chain::parse(next, bytes);
    }
    let _ = HeaderOptions::new(bytes);
    let _ = Packet::parse_ip(bytes);
    let _ = fragment(bytes, 576, 1);
    assert!(!describe(bytes).is_empty());
    if let Ok(parsed) = Packet::parse(bytes)
        && let Some(datagram) = parsed.ip()
    {
        assert_ranges_lie_within(datagram, bytes.len());
    }
}

fn assert_ranges_lie_within(datagram: &Datagram, end: usize) {
    assert!(
        datagram.range.start <= datagram.payload.start
            && datagram.payload.start <= datagram.payload.end
    );
    assert!(datagram.payload.end <= datagram.range.end && datagram.range.end <= end);
    for nested in datagram.inner().into_iter().chain(datagram.quoted()) {
        assert!(nested.range.start > datagram.range.start);
        assert_ranges_lie_within(nested, datagram.range.end);
    }
}

/// Returns the IP packet that the fragments contain, without IPv6 fragment headers.
fn reassemble(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut content = Vec::new();
    for part in parts {
        let datagram = Packet::parse_ip(part).unwrap();
        let info = datagram.fragment.unwrap();
        assert_eq!(info.offset_bytes, content.len());
        assert_eq!(
            (info.id, info.more),
            (7, !std::ptr::eq(part, parts.last().unwrap()))
        );
        assert_ne!(datagram.header_checksum, ChecksumState::Invalid);
        let header_len = match &datagram.ip {
            IpHeader::V4(header) => header.header_len(),
            IpHeader::V6(..) => Ipv6View::HEADER_LEN + FragmentHeader::LEN,
        };
        content.extend(&part[header_len..]);
    }
    let first = Packet::parse_ip(&parts[0]).unwrap();
    let ip = Packet::ip(first.src(), first.dst())
        .ttl(first.ttl())
        .tos(first.tos());
    ip.raw(first.protocol, &content).build()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]

    #[test]
    fn random_bytes_never_cause_a_panic(bytes in vec(any::<u8>(), 0..200)) {
        parse_with_all_parsers(&bytes);
    }

    #[test]
    fn random_bytes_after_each_ethertype_never_cause_a_panic(
        mut bytes in vec(any::<u8>(), 14..200), kind in 0usize..5, version in prop_oneof![Just(0x45), Just(0x60)],
        protocol in prop_oneof![Just(0), Just(1), Just(4), Just(17), Just(41), Just(44), Just(47), Just(58), Just(60)],
    ) {
        bytes[12..14].copy_from_slice(&[[8, 0], [8, 6], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8]][kind]);
        let lengths: [(usize, u8); 6] = [(14, version), (16, 0), (17, 60), (18, 0), (23, protocol), (20, protocol)];
        for (offset, value) in lengths {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte = value;
            }
        }
        parse_with_all_parsers(&bytes);
    }

    #[test]
    fn changed_or_truncated_packet_never_causes_a_panic(
        packet in packets(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(), wrap in 0u8..5, (src, dst) in addresses(),
    ) {
        let packet = match wrap {
            0 => packet,
            1 => encap_ipip(src, dst, &packet),
            2 => encap_gre(src, dst, true, &packet),
            3 => encap_gue(src, dst, (50000, 6080), GueChecksum::Remote, &packet),
            _ => Packet::ip(src, dst).port_unreachable(&packet).build(),
        };
        let mut frame = Packet::ethernet(SRC, DST).vlan(3).ip_packet(&packet);
        for (change, value) in changes {
            let index = change.index(frame.len());
            frame[index] = value;
        }
        parse_with_all_parsers(&frame);
        frame.truncate(cut.index(frame.len()));
        parse_with_all_parsers(&frame);
    }

    #[test]
    fn built_packet_parses_to_its_fields(packet in packets(), tags in 0usize..3, padding in 0usize..50) {
        let link = (0..tags).fold(Packet::ethernet(SRC, DST).padding(padding), |link, tag| link.vlan(tag as u16));
        let frame = link.ip_packet(&packet);
        let parsed = Packet::parse(&frame).unwrap();
        let datagram = parsed.ip().unwrap();
        prop_assert_eq!(&frame[datagram.range.clone()], &packet[..]);
        prop_assert_eq!(parsed.ethernet.tags.len(), tags);
        prop_assert!(parsed.has_valid_checksums(), "{}", describe(&frame));
        prop_assert_eq!(diff(&frame, &frame), None);
    }

    #[test]
    fn diff_and_checksum_report_a_single_changed_bit(packet in packets(), bit in any::<prop::sample::Index>()) {
        let link = Packet::ethernet(SRC, DST);
        let frame = link.ip_packet(&packet);
        let mut changed_frame = frame.clone();
        let bit = bit.index(packet.len() * 8);
        changed_frame[14 + bit / 8] ^= 1 << (bit % 8);
        prop_assert!(diff(&frame, &changed_frame).is_some());
        if let (Ok(before), Ok(after)) = (Packet::parse(&frame), Packet::parse(&changed_frame))
            && let (Content::Ip(before), Content::Ip(after)) = (&before.content, &after.content)
            && before.transport_checksum == ChecksumState::Valid
            && after.transport_checksum == ChecksumState::Valid
            && matches!(after.ip, IpHeader::V4(_))
            && before.protocol == after.protocol
        {
            prop_assert!(!after.has_valid_checksums(), "{}", describe(&changed_frame));
        }
    }

    #[test]
    fn tunnels_contain_the_inner_packet(
        packet in packets(), (src, dst) in addresses(), kind in 0u8..6, sport: u16,
    ) {
        let gue = |checksum| encap_gue(src, dst, (sport, 6080), checksum, &packet);
        let outer = match kind {
            0 => encap_ipip(src, dst, &packet),
            1 => encap_gre(src, dst, false, &packet),
            2 => encap_gre(src, dst, true, &packet),
            3 => gue(GueChecksum::None),
            4 => gue(GueChecksum::Full),
            _ => gue(GueChecksum::Remote),
        };
        let datagram = Packet::parse_ip(&outer).unwrap();
        prop_assert!(datagram.has_valid_checksums(), "{}", datagram);
        let inner = datagram.inner().unwrap();
        let original = Packet::parse_ip(&packet).unwrap();
        prop_assert_eq!(&inner.ip, &original.ip);
        prop_assert_eq!(&inner.transport, &original.transport);
        prop_assert_eq!(inner.transport_checksum, original.transport_checksum);
        let mut received = outer[inner.range.clone()].to_vec();
        if let weir_wire::Transport::Tunnel { header: TunnelHeader::Gue(_, header), .. } = &datagram.transport
            && let Some(remote) = header.remote_checksum
        {
            prop_assert_eq!(kind, 5);
            let RemoteChecksum { start, offset } = remote;
            prop_assert!(usize::from(start) < usize::from(offset) && usize::from(offset) < received.len());
            prop_assert_ne!(&received, &packet);
            remote.complete(&mut received);
        }
        prop_assert!(equals_except_udp_zero(&received, &packet, &original), "{:?}", diff(&received, &packet));
    }

    #[test]
    fn fragments_contain_the_complete_packet(packet in packets(), mtu in 68usize..700) {
        // IP options can differ between the first and later fragments, so these packets have none.
        match fragment(&packet, mtu, 7) {
            Ok(parts) if parts.len() == 1 => prop_assert_eq!(&parts[0], &packet),
            Ok(parts) => {
                prop_assert!(parts.iter().all(|part| part.len() <= mtu));
                let complete = reassemble(&parts);
                prop_assert_eq!(&complete, &packet);
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn fragments_contain_the_per_fragment_headers(payload in vec(any::<u8>(), 600..900), with_routing: bool) {
        let builder = Packet::ipv6(1u128.into(), 2u128.into()).hop_by_hop();
        let builder = if with_routing { builder.routing(0) } else { builder };
        let packet = builder.dest_opts().udp(1, 2).payload(&payload).build();
        let parts = fragment(&packet, 400, 7).unwrap();
        prop_assert!(parts.len() > 1);
        let mut content = Vec::<u8>::new();
        for part in &parts {
            prop_assert!(part.len() <= 400);
            let parsed = Packet::parse_ip(part).unwrap();
            let IpHeader::V6(_, chain) = &parsed.ip else { panic!("not IPv6") };
            let mut expected = vec![IpProtocol::HOP_BY_HOP];
            expected.extend(with_routing.then_some(IpProtocol::ROUTING));
            expected.push(IpProtocol::FRAGMENT);
            prop_assert_eq!(&chain.headers[..expected.len()], &expected[..]);
            content.extend(&part[40 + expected.len() * 8..]);
        }
        let dest_opts = &packet[40 + if with_routing { 16 } else { 8 }..];
        prop_assert_eq!(&content[..], dest_opts);
    }

    #[test]
    fn extension_headers_with_any_content_are_parsed(contents in vec(vec(any::<u8>(), 0..2100), 0..9)) {
        let builder = contents.iter().fold(Packet::ipv6(1u128.into(), 2u128.into()), |builder, content| {
            builder.extension(Extension::DestOpts(content.clone()))
        });
        let packet = builder.tcp(1, 2).build();
        let datagram = Packet::parse_ip(&packet);
        if contents.len() > Ipv6Chain::MAX_HEADERS {
            prop_assert!(datagram.is_err());
        } else {
            let datagram = datagram.unwrap();
            prop_assert_eq!(datagram.ports(), Some((1, 2)));
            prop_assert_eq!(datagram.transport_checksum, ChecksumState::Valid);
        }
    }
}

/// Returns whether packets are equal, except that the received UDP checksum may be zero where all ones were sent: the
/// receiver of a remote checksum writes a completed checksum of zero as zero.
fn equals_except_udp_zero(received: &[u8], packet: &[u8], original: &Datagram) -> bool {
    if received == packet {
        return true;
    }
    let checksum_offset = original.payload.start - 2;
    original.protocol == IpProtocol::UDP
        && received[checksum_offset..checksum_offset + 2] == [0, 0]
        && packet[checksum_offset..checksum_offset + 2] == [0xff, 0xff]
        && received[..checksum_offset] == packet[..checksum_offset]
        && received[checksum_offset + 2..] == packet[checksum_offset + 2..]
}
