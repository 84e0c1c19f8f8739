//! Tests ICMP errors that the director generates, and echo replies.

mod support;
mod testbed;

use testbed::{
    CLIENT_PORT, DIRECTOR_MAC, PEER_MAC, PORT, Setup, XDP_DROP, XDP_PASS, XDP_REDIRECT, XDP_TX,
    frame, tcp, tcp_packet, udp_packet,
};
use weir_abi::{Forward, Reason};
use weir_wire::{Icmpv4Message, Icmpv6Message, IpProtocol, MacAddr, Packet, TcpFlags, Transport};

fn message(ip: &weir_wire::Datagram) -> (u8, u8) {
    match &ip.transport {
        Transport::Icmp4 { message, .. } => message.kind_and_code(),
        Transport::Icmp6 { message, .. } => message.kind_and_code(),
        other => panic!("not ICMP: {other:?}"),
    }
}

#[test]
fn client_gets_an_error_when_there_is_no_server() {
    for v6 in [false, true] {
        let Some(testbed) = (Setup {
            servers: false,
            ..Setup::new(v6, Forward::Direct)
        })
        .open() else {
            return;
        };
        let net = testbed.net;
        for input in [
            tcp(net.client, net.vip, CLIENT_PORT, PORT, TcpFlags::SYN),
            frame().ip_packet(&udp_packet(net.client, net.vip, CLIENT_PORT, PORT, 1)),
            frame().ip_packet(&udp_packet(net.client, net.vip, CLIENT_PORT, PORT, 1400)),
        ] {
            let out = testbed.send(&input);
            let ip = out.sent();
            assert_eq!((ip.src(), ip.dst(), ip.ttl()), (net.vip, net.client, 64));
            assert_eq!(message(ip), if v6 { (1, 4) } else { (3, 3) });
            assert_eq!(out.parsed.ethernet.dst, MacAddr::new(PEER_MAC));
            assert_eq!(out.parsed.ethernet.src, MacAddr::new(DIRECTOR_MAC));
            let quoted = ip.quoted().unwrap();
            assert_eq!((quoted.src(), quoted.dst()), (net.client, net.vip));
            assert_eq!(quoted.ports(), Some((CLIENT_PORT, PORT)));
            assert!(ip.range.len() <= if v6 { 1280 } else { 576 });
            let quote = out.bytes_of(quoted);
            assert_eq!(quote, &input[14..14 + quote.len()]);
        }
        assert_eq!(testbed.count(Reason::RejectNoServer), 3);
    }
}

#[test]
fn reply_keeps_vlan_tag() {
    let Some(testbed) = (Setup {
        servers: false,
        ..Setup::new(false, Forward::Direct)
    })
    .open() else {
        return;
    };
    let packet = udp_packet(testbed.net.client, testbed.net.vip, CLIENT_PORT, PORT, 10);
    let out = testbed.send(&frame().vlan(10).ip_packet(&packet));
    out.sent();
    assert_eq!(out.parsed.ethernet.tags.len(), 1);
}

#[test]
fn errors_are_limited_by_the_reject_budget() {
    let mut setup = Setup {
        servers: false,
        ..Setup::new(false, Forward::Direct)
    };
    setup.settings.reject_budget = 0;
    let Some(testbed) = setup.open() else { return };
    let out = testbed.send(&tcp(
        testbed.net.client,
        testbed.net.vip,
        CLIENT_PORT,
        PORT,
        TcpFlags::SYN,
    ));
    assert_eq!(out.verdict, XDP_DROP);
    assert_eq!(
        (
            testbed.count(Reason::DropNoServer),
            testbed.count(Reason::RejectNoServer)
        ),
        (1, 0)
    );
}

#[test]
fn packet_from_invalid_source_gets_no_reply() {
    let Some(testbed) = (Setup {
        servers: false,
        ..Setup::new(false, Forward::Direct)
    })
    .open() else {
        return;
    };
    for source in ["224.0.0.1", "255.255.255.255", "127.0.0.1", "0.0.0.0"] {
        let out = testbed.send(&tcp(
            source.parse().unwrap(),
            testbed.net.vip,
            CLIENT_PORT,
            PORT,
            TcpFlags::SYN,
        ));
        assert_eq!(out.verdict, XDP_DROP, "{source}");
    }
    let packet = udp_packet(testbed.net.client, testbed.net.vip, CLIENT_PORT, PORT, 10);
    let broadcast = Packet::ethernet(MacAddr::new(PEER_MAC), MacAddr::BROADCAST).ip_packet(&packet);
    assert_eq!(testbed.send(&broadcast).verdict, XDP_DROP);
    assert_eq!(testbed.count(Reason::DropNoServer), 5);
}

#[test]
fn packet_is_dropped_without_reply_if_no_server_is_drop() {
    let mut setup = Setup {
        servers: false,
        ..Setup::new(false, Forward::Direct)
    };
    setup.no_server = weir_model::NoServer::Drop;
    let Some(testbed) = setup.open() else { return };
    let out = testbed.send(&tcp(
        testbed.net.client,
        testbed.net.vip,
        CLIENT_PORT,
        PORT,
        TcpFlags::SYN,
    ));
    assert_eq!(out.verdict, XDP_DROP);
    assert_eq!(testbed.count(Reason::DropNoServer), 1);
}

#[test]
fn packet_above_tunnel_mtu_gets_error_with_the_mtu() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Tunnel).open() else {
            return;
        };
        let net = testbed.net;
        testbed.start_flow();
        let full = tcp_packet(
            net.client,
            net.vip,
            CLIENT_PORT,
            PORT,
            if v6 { 1440 } else { 1460 },
        );
        let out = testbed.send(&frame().ip_packet(&full));
        match &out.sent().transport {
            Transport::Icmp4 { message, .. } => {
                assert_eq!(*message, Icmpv4Message::FragmentationNeeded { mtu: 1480 });
            }
            Transport::Icmp6 { message, .. } => {
                assert_eq!(*message, Icmpv6Message::PacketTooBig { mtu: 1460 })
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            out.ip().quoted().unwrap().tcp().map(|tcp| tcp.dst_port),
            Some(PORT)
        );
        assert_eq!(testbed.count(Reason::DropTooBig), 1);
        let short = tcp_packet(
            net.client,
            net.vip,
            CLIENT_PORT,
            PORT,
            if v6 { 1400 } else { 1440 },
        );
        assert_eq!(
            testbed.send(&frame().ip_packet(&short)).sent().protocol,
            if v6 {
                IpProtocol::IPV6
            } else {
                IpProtocol::IPIP
            }
        );
    }
}

#[test]
fn ipv6_packet_too_big_reports_at_least_1280() {
    let Some(testbed) = (Setup {
        hop_mtu: 1280,
        ..Setup::new(true, Forward::Tunnel)
    })
    .open() else {
        return;
    };
    testbed.start_flow();
    let packet = tcp_packet(testbed.net.client, testbed.net.vip, CLIENT_PORT, PORT, 1220);
    let out = testbed.send(&frame().ip_packet(&packet));
    let Transport::Icmp6 { message, .. } = &out.sent().transport else {
        panic!()
    };
    assert_eq!(*message, Icmpv6Message::PacketTooBig { mtu: 1280 });
}

#[test]
fn expired_ttl_gets_time_exceeded() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Nat).open() else {
            return;
        };
        let net = testbed.net;
        let expiring = frame()
            .ip(net.client, net.vip)
            .ttl(1)
            .tcp(CLIENT_PORT, PORT)
            .flags(TcpFlags::SYN)
            .build();
        let out = testbed.send(&expiring);
        assert_eq!(message(out.sent()), if v6 { (3, 0) } else { (11, 0) });
        assert_eq!((out.ip().src(), out.ip().dst()), (net.vip, net.client));
        assert_eq!(testbed.count(Reason::DropTtl), 1);
    }
}

#[test]
fn echo_request_to_a_vip_gets_reply() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Direct).open() else {
            return;
        };
        let net = testbed.net;
        for length in [0, 1, 56, 1400] {
            let data = vec![7; length];
            let request = frame()
                .ip(net.client, net.vip)
                .ttl(3)
                .echo_request(77, 5)
                .payload(&data)
                .build();
            let out = testbed.send(&request);
            let ip = out.sent();
            assert_eq!((ip.src(), ip.dst(), ip.ttl()), (net.vip, net.client, 64));
            assert_eq!(message(ip), if v6 { (129, 0) } else { (0, 0) });
            assert_eq!(&out.frame[ip.payload.clone()], &data[..]);
            assert_eq!(out.parsed.ethernet.dst, MacAddr::new(PEER_MAC));
        }
        assert_eq!(testbed.count(Reason::TxEcho), 4);
    }
}

#[test]
fn wrong_echo_checksum_is_not_corrected() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open() else {
        return;
    };
    let request = frame()
        .ip(testbed.net.client, testbed.net.vip)
        .echo_request(1, 1)
        .bad_checksum()
        .build();
    let out = testbed.send(&request);
    assert_eq!(out.verdict, XDP_TX);
    assert!(!out.ip().has_valid_checksums());
}

#[test]
fn icmp_packets_that_get_no_reply_pass() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Nat).snat().open() else {
            return;
        };
        let net = testbed.net;
        let reply = frame().ip(net.client, net.vip).echo_reply(1, 1).build();
        assert_eq!(testbed.send(&reply).verdict, XDP_PASS);
        let fragment = frame()
            .ip(net.client, net.vip)
            .fragment(9, 0, true)
            .echo_request(1, 1)
            .payload(&[1; 64])
            .build();
        let out = testbed.send(&fragment);
        assert_eq!(out.verdict, XDP_PASS);
        assert_eq!(out.frame, fragment, "a fragment gets no reply");
        let to_snat = frame().ip(net.client, net.snat).echo_request(1, 1).build();
        assert_eq!(testbed.send(&to_snat).verdict, XDP_PASS);
        assert_eq!(testbed.count(Reason::PassIcmp), 3);
        let transit = frame()
            .ip(net.client, net.router)
            .echo_request(1, 1)
            .build();
        assert_eq!(testbed.send(&transit).verdict, XDP_PASS);
        assert_eq!(testbed.count(Reason::PassNotOurs), 1);
    }
}

#[test]
fn reply_goes_to_tc_if_xdp_cannot_send() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open() else {
        return;
    };
    testbed.plane.maps().devices.clear().unwrap();
    let request = frame()
        .ip(testbed.net.client, testbed.net.vip)
        .echo_request(1, 1)
        .build();
    let out = testbed.send(&request);
    assert_eq!(out.verdict, XDP_PASS);
    assert_eq!(
        (out.ip().src(), out.ip().dst()),
        (testbed.net.vip, testbed.net.client)
    );
    assert_eq!(testbed.count(Reason::PassToTc), 1);
}

#[test]
fn reply_is_redirected_where_tx_is_impossible() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open() else {
        return;
    };
    let devices = &testbed.plane.maps().devices;
    let (ifindex, device) = devices.elements().unwrap()[0];
    let flags = device.flags | weir_abi::DEVICE_REDIRECT;
    devices
        .set(&ifindex, &weir_abi::Device { flags, ..device })
        .unwrap();
    let request = frame()
        .ip(testbed.net.client, testbed.net.vip)
        .echo_request(1, 1)
        .build();
    let out = testbed.send(&request);
    assert_eq!(out.verdict, XDP_REDIRECT);
    assert_eq!(out.parsed.ethernet.dst, MacAddr::new(PEER_MAC));
}
