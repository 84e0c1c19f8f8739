//! Tests accessors of decoded packets, faults in IPv6 packets, and the texts of messages, protocols and errors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_wire::{
    FiveTuple, HeaderOptions, Icmpv4Message, Icmpv6Message, IpProtocol, Layer, LengthField,
    MacAddr, Packet, ParseError, TcpFlags, fragment,
};

const V4_SRC: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const V4_DST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const V6_SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const V6_DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 10);

fn mac(last: u8) -> MacAddr {
    MacAddr::new([2, 0, 0, 0, 0, last])
}

fn tuple(src: IpAddr, dst: IpAddr, sport: u16, dport: u16, protocol: IpProtocol) -> FiveTuple {
    FiveTuple {
        src,
        dst,
        sport,
        dport,
        protocol,
    }
}

#[test]
fn packet_has_the_five_tuple_of_the_outer_header() {
    let link = || Packet::ethernet(mac(1), mac(2));
    let (src, dst) = (IpAddr::from(V4_SRC), IpAddr::from(V4_DST));
    let inner = Packet::ipv4(V4_SRC, V4_DST)
        .tcp(40_000, 80)
        .flags(TcpFlags::SYN)
        .build();
    let outer = |frame: Vec<u8>| {
        let packet = Packet::parse(&frame).unwrap();
        (
            packet.five_tuple(),
            packet.tcp().is_some(),
            packet.inner().is_some(),
            packet.quoted().is_some(),
        )
    };
    let tcp = tuple(src, dst, 1, 2, IpProtocol::TCP);
    let udp = tuple(src, dst, 1, 2, IpProtocol::UDP);
    assert_eq!(
        outer(link().ip(src, dst).tcp(1, 2).build()),
        (Some(tcp), true, false, false)
    );
    assert_eq!(
        outer(link().ip(src, dst).udp(1, 2).build()),
        (Some(udp), false, false, false)
    );
    assert_eq!(
        outer(link().ip(src, dst).ipip(&inner).build()),
        (None, false, true, false)
    );
    let gue = tuple(src, dst, 5000, 6080, IpProtocol::UDP);
    assert_eq!(
        outer(link().ip(src, dst).gue(5000, 6080, &inner).build()),
        (Some(gue), false, true, false)
    );
    assert_eq!(
        outer(link().ip(src, dst).port_unreachable(&inner).build()),
        (None, false, false, true)
    );
    let frame = link().ip(src, dst).ipip(&inner).build();
    let tunnel = Packet::parse(&frame).unwrap();
    let inner_packet = tunnel.inner().unwrap();
    assert_eq!(
        inner_packet.five_tuple(),
        Some(tuple(src, dst, 40_000, 80, IpProtocol::TCP))
    );
    assert_eq!(inner_packet.tcp().unwrap().flags, TcpFlags::SYN);
}

#[test]
fn quoted_packet_has_ports_if_they_are_complete() {
    let original = Packet::ipv4(V4_SRC, V4_DST).tcp(40_000, 80).build();
    for (length, expected) in [
        (28, Some((40_000, 80))),
        (24, Some((40_000, 80))),
        (23, None),
    ] {
        let error = Packet::ipv4(V4_DST, V4_SRC)
            .port_unreachable(&original[..length])
            .build();
        let datagram = Packet::parse_ip(&error).unwrap();
        let quoted = datagram.quoted().expect("quoted packet is decoded");
        assert_eq!(quoted.ports(), expected, "{length} bytes");
    }
}

#[test]
fn ipv6_faults_change_only_their_field() {
    let valid = Packet::ipv6(V6_SRC, V6_DST)
        .ttl(9)
        .udp(1, 2)
        .payload(b"abc")
        .build();
    assert_eq!(valid[7], 9);
    let differences = |changed_packet: Vec<u8>| -> Vec<usize> {
        assert_eq!(changed_packet.len(), valid.len());
        (0..valid.len())
            .filter(|index| changed_packet[*index] != valid[*index])
            .collect()
    };
    let ip = || Packet::ipv6(V6_SRC, V6_DST).ttl(9);
    let version = ip().version(4).udp(1, 2).payload(b"abc").build();
    assert_eq!((differences(version.clone()), version[0]), (vec![0], 0x40));
    let length = ip()
        .payload_length(0x1234)
        .udp(1, 2)
        .payload(b"abc")
        .build();
    assert_eq!(
        (differences(length.clone()), &length[4..6]),
        (vec![4, 5], &[0x12, 0x34][..])
    );
    let checksum = ip().udp(1, 2).payload(b"abc").checksum(0xabcd).build();
    assert_eq!(&checksum[46..48], [0xab, 0xcd]);
}

#[test]
fn ip_builder_builds_packets_of_both_families() {
    for (src, dst) in [
        (IpAddr::from(V4_SRC), IpAddr::from(V4_DST)),
        (IpAddr::from(V6_SRC), IpAddr::from(V6_DST)),
    ] {
        let ip = || Packet::ethernet(mac(1), mac(2)).ip(src, dst);
        let frame = ip()
            .dont_fragment()
            .fragment(7, 16, true)
            .raw(IpProtocol::UDP, &[0; 8])
            .build();
        let packet = Packet::parse(&frame).unwrap();
        let datagram = packet.ip().unwrap();
        assert_eq!((datagram.src(), datagram.dst()), (src, dst));
        assert_eq!(datagram.ports(), None, "a later fragment");
        let reply = ip().echo_reply(7, 9).build();
        let text = weir_wire::describe(&reply);
        assert!(text.contains("echo reply, id 7, seq 9"), "{text}");
    }
    let builder = Packet::ethernet(mac(1), mac(2))
        .ip(V4_SRC.into(), V4_DST.into())
        .dont_fragment();
    let frame = builder.udp(1, 2).build();
    assert_eq!(frame[20] & 0x40, 0x40, "DF");
}

#[test]
fn fragments_are_wrapped_in_frames() {
    let link = Packet::ethernet(mac(1), mac(2));
    for packet in [
        Packet::ipv4(V4_SRC, V4_DST)
            .udp(1, 2)
            .payload(&[7; 3000])
            .build(),
        Packet::ipv6(V6_SRC, V6_DST)
            .udp(1, 2)
            .payload(&[7; 3000])
            .build(),
    ] {
        let parts = fragment(&packet, 1500, 7).unwrap();
        let frames = link.fragments(&packet, 1500, 7).unwrap();
        assert_eq!(parts.len(), 3);
        let expected: Vec<Vec<u8>> = parts.iter().map(|part| link.ip_packet(part)).collect();
        assert_eq!(frames, expected);
        for (part, frame) in parts.iter().zip(&frames) {
            assert!(part.len() <= 1500);
            assert_eq!(&frame[14..], part.as_slice());
        }
    }
    // Either no data fits, or the packet is already a fragment.
    for packet in [
        Packet::ipv6(V6_SRC, V6_DST)
            .udp(1, 2)
            .payload(&[7; 3000])
            .build(),
        Packet::ipv6(V6_SRC, V6_DST)
            .fragment_header(7, 0, true)
            .udp(1, 2)
            .payload(&[7; 3000])
            .build(),
    ] {
        let mtu = if packet[6] == IpProtocol::UDP.0 {
            50
        } else {
            1500
        };
        let error = fragment(&packet, mtu, 7).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("ipv6: the packet cannot be fragmented for an MTU of {mtu} bytes")
        );
    }
}

#[test]
fn icmp_messages_have_texts() {
    for (message, text) in [
        (
            Icmpv4Message::EchoReply { id: 1, seq: 2 },
            "icmp echo reply, id 1, seq 2",
        ),
        (
            Icmpv4Message::Unreachable { code: 3 },
            "icmp unreachable, code 3",
        ),
        (
            Icmpv4Message::TimeExceeded { code: 1 },
            "icmp time exceeded, code 1",
        ),
        (
            Icmpv4Message::ParameterProblem {
                code: 1,
                pointer: 8,
            },
            "icmp parameter problem, code 1, at 8",
        ),
    ] {
        assert_eq!(message.to_string(), text);
    }
    for (message, text) in [
        (
            Icmpv6Message::EchoReply { id: 1, seq: 2 },
            "icmpv6 echo reply, id 1, seq 2",
        ),
        (
            Icmpv6Message::Unreachable { code: 4 },
            "icmpv6 unreachable, code 4",
        ),
        (
            Icmpv6Message::PacketTooBig { mtu: 1280 },
            "icmpv6 packet too big, mtu 1280",
        ),
        (
            Icmpv6Message::TimeExceeded { code: 1 },
            "icmpv6 time exceeded, code 1",
        ),
    ] {
        assert_eq!(message.to_string(), text);
    }
}

#[test]
fn protocols_flags_and_addresses_have_texts() {
    for (protocol, name) in [
        (IpProtocol::HOP_BY_HOP, "hop-by-hop"),
        (IpProtocol::ICMP, "icmp"),
        (IpProtocol::IPIP, "ipip"),
        (IpProtocol::TCP, "tcp"),
        (IpProtocol::UDP, "udp"),
        (IpProtocol::IPV6, "ipv6"),
        (IpProtocol::ROUTING, "routing"),
        (IpProtocol::FRAGMENT, "fragment"),
        (IpProtocol::GRE, "gre"),
        (IpProtocol::ESP, "esp"),
        (IpProtocol::AH, "ah"),
        (IpProtocol::ICMPV6, "icmpv6"),
        (IpProtocol::NO_NEXT_HEADER, "nothing"),
        (IpProtocol::DEST_OPTS, "dest-opts"),
        (IpProtocol::SCTP, "sctp"),
        (IpProtocol(200), "protocol 200"),
    ] {
        assert_eq!(protocol.to_string(), name);
    }
    let v4 = Packet::ipv4(V4_SRC, V4_DST).udp(1, 2).build();
    let v6 = Packet::ipv6(V6_SRC, V6_DST).udp(1, 2).build();
    for (packet, outer_protocol) in [
        (v4.as_slice(), Some(IpProtocol::IPIP)),
        (v6.as_slice(), Some(IpProtocol::IPV6)),
        (&[0x10], None),
        (&[], None),
    ] {
        assert_eq!(IpProtocol::for_inner_packet(packet), outer_protocol);
    }
    let mut flags = TcpFlags::SYN;
    flags |= TcpFlags::ACK;
    assert_eq!(flags, TcpFlags::SYN | TcpFlags::ACK);
    assert!(flags.contains(TcpFlags::ACK) && !flags.contains(TcpFlags::ACK | TcpFlags::FIN));
    assert!(flags.intersects(TcpFlags::ACK | TcpFlags::FIN) && !flags.intersects(TcpFlags::FIN));
    assert_eq!(
        (flags.to_string(), TcpFlags::NONE.to_string()),
        ("SYN|ACK".into(), "no flags".into())
    );
    assert!(MacAddr::new([0x33, 0x33, 0, 0, 0, 1]).is_multicast() && !mac(1).is_multicast());
    assert_eq!(HeaderOptions::default(), HeaderOptions::EMPTY);
}

#[test]
fn incomplete_packet_without_a_frame_causes_an_error_for_its_version() {
    let too_short = |layer, needed, available| ParseError::TooShort {
        layer,
        needed,
        available,
    };
    let bad_version = |version| ParseError::BadVersion {
        layer: Layer::Ipv4,
        version,
    };
    for (bytes, expected) in [
        (&[][..], too_short(Layer::Ipv4, 20, 0)),
        (&[0x45], too_short(Layer::Ipv4, 20, 1)),
        (&[0x60, 0], too_short(Layer::Ipv6, 40, 2)),
        (&[0x5f], bad_version(5)),
        (&[0x0f, 0x45], bad_version(0)),
    ] {
        assert_eq!(Packet::parse_ip(bytes), Err(expected), "{bytes:?}");
    }
}

#[test]
fn errors_contain_their_layer_and_field() {
    for (layer, name) in [
        (Layer::Ethernet, "ethernet"),
        (Layer::Vlan, "vlan"),
        (Layer::Arp, "arp"),
        (Layer::Ipv4, "ipv4"),
        (Layer::Ipv6, "ipv6"),
        (Layer::Ipv6Extension, "ipv6 extension header"),
        (Layer::Tcp, "tcp"),
        (Layer::Udp, "udp"),
        (Layer::Icmpv4, "icmp"),
        (Layer::Icmpv6, "icmpv6"),
        (Layer::Ndp, "ndp"),
        (Layer::Gre, "gre"),
        (Layer::Gue, "gue"),
    ] {
        let error = ParseError::BadVersion { layer, version: 9 };
        assert_eq!(error.to_string(), format!("{name}: unsupported version 9"));
    }
    for (field, name) in [
        (LengthField::HeaderLength, "header length"),
        (LengthField::TotalLength, "total length"),
        (LengthField::PayloadLength, "payload length"),
        (LengthField::DataOffset, "data offset"),
        (LengthField::DatagramLength, "length"),
        (LengthField::OptionLength, "option length"),
        (LengthField::AddressLength, "address length"),
    ] {
        let error = ParseError::BadLength {
            layer: Layer::Tcp,
            field,
            bytes: 1,
            min: 2,
            max: 3,
        };
        assert_eq!(
            error.to_string(),
            format!("tcp: {name} is 1 bytes, expected 2 to 3")
        );
    }
}
