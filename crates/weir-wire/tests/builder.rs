//! Tests the builder: faults change only their fields, and the decoder accepts the built fragments and tunnels.

use std::net::{Ipv4Addr, Ipv6Addr};

use weir_wire::{
    ChecksumState, EtherType, GUE_PORT, GueChecksum, HeaderOptions, IpHeader, IpProtocol,
    Ipv4Builder, Ipv4Fragment, Ipv6Builder, Layer, LengthField, MacAddr, Packet, ParseError,
    TcpFlags, Transport, TunnelHeader, VlanTag, fragment,
};

const V4_SRC: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const V4_DST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const V6_SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const V6_DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 10);

fn v4() -> Ipv4Builder {
    Packet::ipv4(V4_SRC, V4_DST)
}

/// Returns the offsets at which two packets of the same length differ.
fn differences(first: &[u8], second: &[u8]) -> Vec<usize> {
    assert_eq!(first.len(), second.len());
    (0..first.len())
        .filter(|&index| first[index] != second[index])
        .collect()
}

#[test]
fn bytes_of_a_syn_match_the_rfcs() {
    let frame = Packet::ethernet(
        MacAddr::new([2, 0, 0, 0, 0, 1]),
        MacAddr::new([2, 0, 0, 0, 0, 2]),
    )
    .vlan(10)
    .ipv4(V4_SRC, V4_DST)
    .ttl(63)
    .tos(0x2e)
    .id(0x1234)
    .dont_fragment()
    .tcp(40000, 80)
    .seq(0x0102_0304)
    .flags(TcpFlags::SYN)
    .window(1024)
    .options(&[2, 4, 5, 0xb4])
    .payload(b"hi")
    .build();
    #[rustfmt::skip]
    let expected = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 10, 8, 0,
        // The checksums are constants here, so that the test detects an error that the builder and the decoder share.
        0x45, 0x2e, 0, 46, 0x12, 0x34, 0x40, 0, 63, 6, 0xa5, 0x5c, 192, 0, 2, 1, 192, 0, 2, 10,
        0x9c, 0x40, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0, 0x60, 2, 4, 0, 0x07, 0x19, 0, 0, 2, 4, 5, 0xb4, b'h', b'i',
    ];
    assert_eq!(frame, expected);
}

#[test]
fn ipv4_faults_change_only_their_field_and_the_checksum() {
    let valid = v4().tcp(1, 2).build();
    for (builder, fields) in [
        (v4().bad_checksum(), vec![10, 11]),
        (v4().version(5), vec![0, 10]),
        (v4().header_words(6), vec![0, 10]),
        (v4().total_length(41), vec![3, 11]),
    ] {
        let faulty = builder.tcp(1, 2).build();
        let changed = differences(&valid, &faulty);
        assert_eq!(changed, fields, "{changed:?}");
    }
    let datagram = Packet::parse_ip(&v4().bad_checksum().tcp(1, 2).build()).unwrap();
    assert_eq!(datagram.header_checksum, ChecksumState::Invalid);
    assert_eq!(datagram.transport_checksum, ChecksumState::Valid);
}

/// Bits beyond the width of the field are ignored.
#[test]
fn overridden_fields_have_their_values_and_the_other_bits_of_the_byte_remain() {
    for (packet, offset, expected) in [
        (v4().version(0xf5).tcp(1, 2).build(), 0, 0x55),
        (v4().header_words(0xf6).tcp(1, 2).build(), 0, 0x46),
        (v4().tcp(1, 2).data_offset(0xf7).build(), 32, 0x70),
        (v6().version(0xf4).tcp(1, 2).build(), 0, 0x4a),
        (v6().tcp(1, 2).build(), 0, 0x6a),
        (v6().tcp(1, 2).build(), 1, 0xb0),
    ] {
        assert_eq!(packet[offset], expected, "{packet:x?}");
    }
    let tagged = [VlanTag::new(0xf123), VlanTag::service(0xf123)];
    assert_eq!(tagged.map(|tag| tag.tci), [0x123; 2]);
    let priority = VlanTag {
        service: false,
        tci: 0xa123,
    };
    assert_eq!((priority.vlan(), priority.priority()), (0x123, 5));
}

fn v6() -> Ipv6Builder {
    Packet::ipv6(V6_SRC, V6_DST).tos(0xab)
}

#[test]
fn transport_faults_are_detected() {
    let state = |packet: Vec<u8>| Packet::parse_ip(&packet).unwrap().transport_checksum;
    assert_eq!(
        state(v4().tcp(1, 2).bad_checksum().build()),
        ChecksumState::Invalid
    );
    assert_eq!(
        state(v4().udp(1, 2).bad_checksum().build()),
        ChecksumState::Invalid
    );
    assert_eq!(
        state(v4().udp(1, 2).zero_udp_checksum().build()),
        ChecksumState::Absent
    );
    assert_eq!(
        state(v4().echo_request(1, 2).bad_checksum().build()),
        ChecksumState::Invalid
    );
    assert_eq!(
        state(
            Packet::ipv6(V6_SRC, V6_DST)
                .echo_request(1, 2)
                .bad_checksum()
                .build()
        ),
        ChecksumState::Invalid
    );
    assert_eq!(
        state(v4().gre(&v4().udp(1, 2).build()).bad_checksum().build()),
        ChecksumState::Invalid
    );
    let bad_length = |layer, field, bytes, max| {
        let min_len = if layer == Layer::Udp { 8 } else { 20 };
        Err(ParseError::BadLength {
            layer,
            field,
            bytes,
            min: min_len,
            max,
        })
    };
    let udp = v4().udp(1, 2).payload(b"x").length(99).build();
    assert_eq!(
        Packet::parse_ip(&udp),
        bad_length(Layer::Udp, LengthField::DatagramLength, 99, 9)
    );
    let tcp = v4().tcp(1, 2).data_offset(15).build();
    assert_eq!(
        Packet::parse_ip(&tcp),
        bad_length(Layer::Tcp, LengthField::DataOffset, 60, 20)
    );
}

#[test]
fn udp_length_below_ip_payload_is_valid() {
    let mut packet = v4().udp(1, 2).payload(b"abc").build();
    packet.extend([0; 4]);
    packet[3] += 4;
    packet[11] -= 4;
    let datagram = Packet::parse_ip(&packet).unwrap();
    assert!(datagram.has_valid_checksums());
    assert_eq!(datagram.transport_checksum, ChecksumState::Valid);
}

#[test]
fn first_later_and_atomic_fragments_are_distinguished() {
    let first = Packet::parse_ip(
        &v4()
            .id(9)
            .fragment(0, true)
            .udp(1, 2)
            .payload(&[0; 8])
            .build(),
    )
    .unwrap();
    assert_eq!(first.ports(), Some((1, 2)));
    assert_eq!(first.transport_checksum, ChecksumState::Unknown);
    let later = v4()
        .id(9)
        .fragment(16, false)
        .raw(IpProtocol::UDP, &[0; 5])
        .build();
    let later = Packet::parse_ip(&later).unwrap();
    assert_eq!(
        (
            later.ports(),
            later
                .fragment
                .map(|fragment| (fragment.id, fragment.offset_bytes, fragment.more))
        ),
        (None, Some((9, 16, false)))
    );
    let tiny = Packet::parse_ip(
        &v4()
            .fragment(0, true)
            .raw(IpProtocol::TCP, &[0, 7, 0, 8, 0, 0, 0, 0])
            .build(),
    );
    assert_eq!(
        tiny.unwrap().transport,
        Transport::Ports {
            src_port: 7,
            dst_port: 8
        }
    );
    let atomic = Packet::ipv6(V6_SRC, V6_DST)
        .fragment_header(5, 0, false)
        .tcp(1, 2)
        .build();
    let atomic = Packet::parse_ip(&atomic).unwrap();
    assert_eq!(
        (atomic.fragment, atomic.transport_checksum),
        (None, ChecksumState::Valid)
    );
    assert_eq!(Ipv4Fragment::new(13, true).offset_bytes(), 8);
}

#[test]
fn packets_that_cannot_be_fragmented_are_rejected() {
    let big = [0; 600];
    let not_fragmentable = |layer, mtu| Err(ParseError::NotFragmentable { layer, mtu });
    assert_eq!(
        fragment(
            &v4().dont_fragment().udp(1, 2).payload(&big).build(),
            500,
            1
        ),
        not_fragmentable(Layer::Ipv4, 500)
    );
    assert_eq!(
        fragment(&v4().udp(1, 2).payload(&big).build(), 27, 1),
        not_fragmentable(Layer::Ipv4, 27)
    );
    let v6 = Packet::ipv6(V6_SRC, V6_DST)
        .fragment_header(1, 0, true)
        .udp(1, 2)
        .payload(&big)
        .build();
    assert_eq!(fragment(&v6, 500, 1), not_fragmentable(Layer::Ipv6, 500));
}

#[test]
fn only_options_with_the_copied_flag_are_in_every_fragment() {
    // Record route (7) and the NOP after it are not copied; loose source route (131) is.
    let packet = v4()
        .options(&[7, 3, 4, 1, 131, 3, 4, 0])
        .udp(1, 2)
        .payload(&[0; 200])
        .build();
    let parts = fragment(&packet, 128, 1).unwrap();
    let options: Vec<_> = parts
        .iter()
        .map(|part| match Packet::parse_ip(part).unwrap().ip {
            IpHeader::V4(header) => header.options,
            IpHeader::V6(..) => HeaderOptions::EMPTY,
        })
        .collect();
    assert_eq!(options[0].as_bytes(), [7, 3, 4, 1, 131, 3, 4, 0]);
    assert!(
        options[1..]
            .iter()
            .all(|later| later.as_bytes() == [131, 3, 4, 0])
    );
    assert!(options.len() > 1);
}

#[test]
fn ipv4_address_is_mapped_to_ipv6_if_the_families_differ() {
    let packet = Packet::ip(V4_SRC.into(), V6_DST.into()).udp(1, 2).build();
    assert_eq!(
        Packet::parse_ip(&packet).unwrap().src(),
        V4_SRC.to_ipv6_mapped()
    );
}

#[test]
fn tunnel_with_invalid_payload_is_parsed() {
    let invalid = v4().raw(IpProtocol::IPIP, &[0x45, 0, 0]).build();
    let error = Some(ParseError::TooShort {
        layer: Layer::Ipv4,
        needed: 20,
        available: 3,
    });
    assert_eq!(
        Packet::parse_ip(&invalid).unwrap().transport,
        Transport::Opaque { error }
    );
    let arp_in_gre = v4().gre(&[0; 28]).protocol(EtherType::ARP).build();
    assert_eq!(
        Packet::parse_ip(&arp_in_gre).unwrap().transport,
        Transport::Opaque { error: None }
    );
    let not_gue = v4().udp(1, 6080).payload(b"\xff").build();
    assert!(matches!(
        Packet::parse_ip(&not_gue).unwrap().transport,
        Transport::Udp(_)
    ));
}

#[test]
fn tunnels_are_decoded_up_to_a_maximum_depth() {
    let nested = (0..1000).fold(v4().udp(1, 2).build(), |inner, _| v4().ipip(&inner).build());
    let outer = Packet::parse_ip(&nested).unwrap();
    let depth = std::iter::successors(outer.inner(), |datagram| datagram.inner()).count();
    assert_eq!(depth, 4);
}

#[test]
fn quoted_packets_are_decoded_up_to_a_maximum_depth() {
    let nested = (0..1000).fold(v4().udp(1, 2).build(), |quoted, _| {
        v4().port_unreachable(&quoted).build()
    });
    let outer = Packet::parse_ip(&nested).unwrap();
    let depth = std::iter::successors(outer.quoted(), |datagram| datagram.quoted()).count();
    assert_eq!(depth, 4);
}

#[test]
fn middle_fragment_is_split_into_middle_fragments() {
    let middle = v4()
        .id(7)
        .fragment(800, true)
        .raw(IpProtocol::UDP, &[0; 400])
        .build();
    let parts: Vec<_> = fragment(&middle, 220, 7)
        .unwrap()
        .iter()
        .map(|part| {
            Packet::parse_ip(part)
                .unwrap()
                .fragment
                .map(|part| (part.offset_bytes, part.more))
        })
        .collect();
    assert_eq!(parts, [Some((800, true)), Some((1000, true))]);
}

#[test]
fn wrong_inner_checksum_is_detected() {
    let outer = |inner: Vec<u8>| Packet::parse_ip(&v4().ipip(&inner).build()).unwrap();
    assert!(outer(v4().tcp(1, 2).build()).has_valid_checksums());
    assert!(!outer(v4().tcp(1, 2).bad_checksum().build()).has_valid_checksums());
    assert!(!outer(v4().bad_checksum().tcp(1, 2).build()).has_valid_checksums());
}

#[test]
fn remote_checksum_requires_an_inner_checksum() {
    let remote = |inner: &[u8]| {
        let outer = v4()
            .gue(50000, GUE_PORT, inner)
            .checksum(GueChecksum::Remote)
            .build();
        let is_changed = outer[outer.len() - inner.len()..] != *inner;
        match Packet::parse_ip(&outer).unwrap().transport {
            Transport::Tunnel {
                header: TunnelHeader::Gue(_, header),
                ..
            } => {
                assert_eq!(header.remote_checksum.is_some(), is_changed);
                header
                    .remote_checksum
                    .map(|remote| (remote.start, remote.offset))
            }
            other => panic!("no GUE: {other:?}"),
        }
    };
    let v6 = || Packet::ipv6(V6_SRC, V6_DST);
    assert_eq!(
        remote(&v4().options(&[1; 4]).tcp(1, 2).build()),
        Some((24, 40))
    );
    assert_eq!(remote(&v6().dest_opts().udp(1, 2).build()), Some((48, 54)));
    assert_eq!(remote(&v4().udp(1, 2).zero_udp_checksum().build()), None);
    assert_eq!(remote(&v4().fragment(0, true).tcp(1, 2).build()), None);
    assert_eq!(
        remote(&v6().fragment_header(1, 0, true).tcp(1, 2).build()),
        None
    );
    assert_eq!(remote(&v4().echo_request(1, 2).build()), None);
}
