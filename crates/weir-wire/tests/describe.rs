//! Tests the descriptions of packets, which failing tests print.

use insta::assert_snapshot;
use weir_wire::{
    ArpOperation, ArpPacket, EtherType, EthernetBuilder, GueChecksum, Icmpv4Message, Icmpv6Message,
    IpProtocol, Ipv4Builder, Ipv6Builder, MacAddr, NeighborMessage, Packet, TcpFlags, describe,
    diff,
};

const MAC: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 9]);

fn link() -> EthernetBuilder {
    Packet::ethernet(
        MacAddr::new([2, 0, 0, 0, 0, 1]),
        MacAddr::new([2, 0, 0, 0, 0, 2]),
    )
}

fn v4(link: EthernetBuilder) -> Ipv4Builder {
    link.ipv4([192, 0, 2, 1].into(), [192, 0, 2, 10].into())
}

fn v6(link: EthernetBuilder) -> Ipv6Builder {
    link.ipv6(
        "2001:db8::1".parse().unwrap(),
        "2001:db8::a".parse().unwrap(),
    )
}

fn inner() -> Vec<u8> {
    Packet::ipv4([198, 51, 100, 7].into(), [192, 0, 2, 10].into())
        .ttl(63)
        .tcp(40000, 80)
        .flags(TcpFlags::PSH | TcpFlags::ACK)
        .seq(100)
        .ack_no(200)
        .payload(b"GET / HTTP/1.1\r\n\r\n")
        .build()
}

#[test]
fn plain_packets_are_described() {
    let tcp = v4(link().service_vlan(7).vlan(10))
        .options(&[7, 3, 4])
        .dont_fragment()
        .tos(0x2e)
        .tcp(40000, 80)
        .flags(TcpFlags::SYN)
        .options(&[2, 4, 5, 0xb4])
        .build();
    assert_snapshot!("tcp", describe(&tcp));
    let udp = v6(link())
        .flow_label(0x12345)
        .hop_by_hop()
        .dest_opts()
        .udp(5353, 53)
        .payload(&[0; 40])
        .build();
    assert_snapshot!("udp", describe(&udp));
    let sctp = v4(link()).raw(IpProtocol::SCTP, &[1, 2, 3]).build();
    assert_snapshot!("sctp", describe(&sctp));
    assert_snapshot!(
        "unknown_type",
        describe(&link().frame(EtherType(0x88cc), &[0; 9]))
    );
}

#[test]
fn faults_are_described() {
    assert_snapshot!(
        "bad_checksums",
        describe(&v4(link()).bad_checksum().tcp(1, 2).bad_checksum().build())
    );
    assert_snapshot!(
        "no_checksum",
        describe(&v4(link()).udp(1, 2).zero_udp_checksum().build())
    );
    assert_snapshot!(
        "bad_length",
        describe(&v4(link()).total_length(99).udp(1, 2).build())
    );
    assert_snapshot!("too_short", describe(b"hello"));
}

#[test]
fn fragments_are_described() {
    assert_snapshot!(
        "first_fragment",
        describe(&v4(link()).id(7).fragment(0, true).udp(1, 2).build())
    );
    let later = v6(link())
        .fragment_header(7, 1448, false)
        .raw(IpProtocol::TCP, b"tail")
        .build();
    assert_snapshot!("later_fragment", describe(&later));
}

#[test]
fn tunnels_are_described() {
    assert_snapshot!("ipip", describe(&v6(link()).ipip(&inner()).build()));
    assert_snapshot!(
        "gre",
        describe(&v4(link()).gre(&inner()).checksum().build())
    );
    let gue = |checksum| {
        describe(
            &v4(link())
                .gue(50000, 6080, &inner())
                .checksum(checksum)
                .build(),
        )
    };
    assert_snapshot!("gue_full", gue(GueChecksum::Full));
    assert_snapshot!("gue_remote", gue(GueChecksum::Remote));
}

#[test]
fn icmp_messages_are_described() {
    assert_snapshot!(
        "echo",
        describe(&v4(link()).echo_request(7, 1).payload(b"ping").build())
    );
    assert_snapshot!(
        "quoted_in_full",
        describe(&v4(link()).too_big(1400, &inner()).build())
    );
    assert_snapshot!(
        "quoted_beginning",
        describe(&v4(link()).port_unreachable(&inner()[..28]).build())
    );
    assert_snapshot!(
        "quoted_rubbish",
        describe(&v6(link()).time_exceeded(b"rubbish").build())
    );
    let redirect = Icmpv4Message::Redirect {
        code: 1,
        gateway: [192, 0, 2, 254].into(),
    };
    assert_snapshot!(
        "redirect",
        describe(&v4(link()).icmp4(redirect).payload(&inner()).build())
    );
    let problem = Icmpv6Message::ParameterProblem {
        code: 1,
        pointer: 40,
    };
    assert_snapshot!(
        "parameter_problem",
        describe(&v6(link()).icmp6(problem).build())
    );
}

#[test]
fn neighbor_messages_are_described() {
    let request = ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: MAC,
        sender: [192, 0, 2, 1].into(),
        target_mac: MacAddr::ZERO,
        target: [192, 0, 2, 10].into(),
    };
    assert_snapshot!("arp_request", describe(&link().arp(&request)));
    let reply = ArpPacket {
        operation: ArpOperation::Reply,
        ..request
    };
    assert_snapshot!("arp_reply", describe(&link().arp(&reply)));
    let target = "2001:db8::a".parse().unwrap();
    let solicitation = NeighborMessage::Solicitation {
        target,
        source_mac: Some(MAC),
    };
    assert_snapshot!(
        "solicitation",
        describe(&v6(link()).neighbor(&solicitation).build())
    );
    let advertisement = NeighborMessage::Advertisement {
        target,
        target_mac: Some(MAC),
        router: false,
        solicited: true,
        overrides: true,
    };
    assert_snapshot!(
        "advertisement",
        describe(&v6(link()).neighbor(&advertisement).build())
    );
}

#[test]
fn differences_are_described() {
    let packet = |ttl, payload: &[u8]| v4(link()).ttl(ttl).tcp(1, 2).payload(payload).build();
    assert_snapshot!(
        "diff",
        diff(&packet(64, b"same"), &packet(63, b"same")).unwrap()
    );
    let long = |last| [vec![b'x'; 40], vec![last]].concat();
    assert_snapshot!(
        "diff_longer",
        diff(&packet(64, b""), &packet(64, &long(1))).unwrap()
    );
    assert_eq!(diff(&packet(1, b"a"), &packet(1, b"a")), None);
}
