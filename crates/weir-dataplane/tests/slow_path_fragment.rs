//! Tests that fragments are forwarded like their first fragment.

mod support;
mod testbed;

use std::net::IpAddr;

use testbed::{
    CLIENT_PORT, PORT, SERVER_MAC, SERVER_PORT, Setup, Testbed, XDP_DROP, XDP_PASS, frame, tcp,
    tcp_packet, udp_packet,
};
use weir_abi::{Forward, Reason};
use weir_wire::{IpHeader, IpProtocol};

/// Returns the frames of a datagram's three fragments.
fn parts(packet: &[u8], id: u32) -> Vec<Vec<u8>> {
    let parts = frame().fragments(packet, 600, id).unwrap();
    assert_eq!(parts.len(), 3);
    parts
}

fn request(testbed: &Testbed) -> Vec<u8> {
    udp_packet(testbed.net.client, testbed.net.vip, CLIENT_PORT, PORT, 1400)
}

/// Reassembles the datagram from the frames, without the IP headers.
fn reassemble(frames: &[testbed::PacketOutcome]) -> Vec<u8> {
    frames
        .iter()
        .flat_map(|out| {
            let ip = out.ip();
            let fragment = ip.fragment.expect("the packet is a fragment");
            let header = match &ip.ip {
                IpHeader::V4(_) => 20,
                IpHeader::V6(..) => 48,
            };
            assert!(fragment.offset_bytes % 8 == 0);
            out.frame[ip.range.start + header..ip.range.end].to_vec()
        })
        .collect()
}

/// Returns whether the checksum of the reassembled UDP datagram is correct for these addresses.
fn has_valid_udp_checksum(src: IpAddr, dst: IpAddr, datagram: &[u8]) -> bool {
    let sum = weir_wire::checksum::pseudo_header(src, dst, IpProtocol::UDP, datagram.len());
    sum.bytes(datagram).is_valid()
}

#[test]
fn every_fragment_goes_to_the_server_of_the_first() {
    for v6 in [false, true] {
        for forward in [
            Forward::Direct,
            Forward::Tunnel,
            Forward::L3dsr,
            Forward::Nat,
        ] {
            let Some(testbed) = Setup::new(v6, forward).open() else {
                return;
            };
            let net = testbed.net;
            let outcomes: Vec<_> = parts(&request(&testbed), 7)
                .iter()
                .map(|part| testbed.send(part))
                .collect();
            for out in &outcomes {
                let outer = out.sent();
                assert_eq!(out.parsed.ethernet.dst.octets(), SERVER_MAC, "{forward:?}");
                let expected = if forward == Forward::Direct {
                    net.vip
                } else {
                    net.server
                };
                assert_eq!(outer.dst(), expected, "{forward:?}");
                if let Some(inner) = outer.inner() {
                    assert_eq!((inner.src(), inner.dst()), (net.client, net.vip));
                    assert!(inner.fragment.is_some());
                } else {
                    assert_eq!(outer.ttl(), 63);
                }
            }
            if forward != Forward::Tunnel {
                let destination = if forward == Forward::Direct {
                    net.vip
                } else {
                    net.server
                };
                let datagram = reassemble(&outcomes);
                assert!(
                    has_valid_udp_checksum(net.client, destination, &datagram),
                    "{forward:?}"
                );
                let port = if forward == Forward::Nat {
                    SERVER_PORT
                } else {
                    PORT
                };
                assert_eq!(datagram[2..4], port.to_be_bytes());
            }
            assert_eq!(testbed.plane.maps().traffic(1).unwrap().packets_in, 3);
            assert_eq!(
                testbed.plane.maps().flows.walk().count(),
                if forward == Forward::Nat { 2 } else { 1 }
            );
        }
    }
}

#[test]
fn fragmented_replies_are_translated_with_nat_and_snat() {
    for v6 in [false, true] {
        for snat in [false, true] {
            let setup = Setup::new(v6, Forward::Nat);
            let Some(testbed) = (if snat { setup.snat() } else { setup }).open() else {
                return;
            };
            let net = testbed.net;
            let request = testbed.send(&frame().ip_packet(&udp_packet(
                net.client,
                net.vip,
                CLIENT_PORT,
                PORT,
                10,
            )));
            let (source, sport) = (request.sent().src(), request.ip().ports().unwrap().0);
            let answer = udp_packet(net.server, source, SERVER_PORT, sport, 1400);
            let outcomes: Vec<_> = parts(&answer, 9)
                .iter()
                .map(|part| testbed.send(part))
                .collect();
            for out in &outcomes {
                let ip = out.sent();
                assert_eq!((ip.src(), ip.dst()), (net.vip, net.client));
            }
            assert!(has_valid_udp_checksum(
                net.vip,
                net.client,
                &reassemble(&outcomes)
            ));
            assert_eq!(testbed.plane.maps().traffic(1).unwrap().packets_out, 3);
        }
    }
}

#[test]
fn fragment_that_arrives_before_the_first_is_dropped() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Direct).open() else {
            return;
        };
        let parts = parts(&request(&testbed), 7);
        assert_eq!(testbed.send(&parts[1]).verdict, XDP_DROP);
        assert_eq!(testbed.count(Reason::DropFragmentEarly), 1);
        testbed.send(&parts[0]).sent();
        testbed.send(&parts[1]).sent();
        let other_parts = parts_of_id(&testbed, 8);
        assert_eq!(testbed.send(&other_parts[2]).verdict, XDP_DROP);
        assert_eq!(testbed.count(Reason::DropFragmentEarly), 2);
    }
}

fn parts_of_id(testbed: &Testbed, id: u32) -> Vec<Vec<u8>> {
    parts(&request(testbed), id)
}

#[test]
fn expired_fragment_record_is_ignored() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open() else {
        return;
    };
    let parts = parts(&request(&testbed), 7);
    testbed.send(&parts[0]).sent();
    let records = testbed.plane.maps().fragments.elements().unwrap();
    let [(key, record)] = records[..] else {
        panic!("{records:?}")
    };
    assert_eq!((record.dest, record.reverse), (1, 0));
    let expired_record = weir_abi::Fragment {
        tick: record.tick.wrapping_sub(40),
        ..record
    };
    testbed
        .plane
        .maps()
        .fragments
        .set(&key, &expired_record)
        .unwrap();
    assert_eq!(testbed.send(&parts[1]).verdict, XDP_DROP);
    assert_eq!(testbed.count(Reason::DropFragmentEarly), 1);
}

#[test]
fn tcp_fragments_go_to_the_server_of_the_first() {
    let Some(testbed) = Setup::new(false, Forward::Nat).open() else {
        return;
    };
    let net = testbed.net;
    testbed.start_flow();
    let packet = tcp_packet(net.client, net.vip, CLIENT_PORT, PORT, 1400);
    for part in parts(&packet, 3) {
        assert_eq!(testbed.send(&part).sent().dst(), net.server);
    }
}

#[test]
fn fragments_pass_to_the_stack_if_the_first_did() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Direct).open() else {
            return;
        };
        let net = testbed.net;
        let to_other_port = udp_packet(net.client, net.vip, CLIENT_PORT, 53, 1400);
        for part in parts(&to_other_port, 5) {
            let out = testbed.send(&part);
            assert_eq!((out.verdict, &out.frame), (XDP_PASS, &part));
        }
        assert_eq!(testbed.count(Reason::PassNoService), 3);
    }
}

#[test]
fn foreign_fragments_pass_unchanged() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Nat).open() else {
            return;
        };
        let net = testbed.net;
        let from_server = udp_packet(net.server, net.router, 53, 5353, 1400);
        let to_snat = udp_packet(net.router, net.snat, 53, 5353, 1400);
        for packet in [from_server, to_snat] {
            for part in parts(&packet, 11).iter().rev() {
                let out = testbed.send(part);
                assert_eq!((out.verdict, &out.frame), (XDP_PASS, part));
            }
        }
        assert_eq!(testbed.count(Reason::DropFragmentEarly), 0);
        let echo = weir_wire::Packet::ip(net.client, net.vip)
            .echo_request(1, 1)
            .payload(&[5; 1400])
            .build();
        for part in parts(&echo, 12) {
            assert_eq!(testbed.send(&part).verdict, XDP_PASS);
        }
    }
}

#[test]
fn fragments_to_removed_server_are_dropped() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open() else {
        return;
    };
    let parts = parts(&request(&testbed), 7);
    testbed.send(&parts[0]).sent();
    testbed
        .plane
        .maps()
        .dests
        .set(1, &weir_abi::Dest::default())
        .unwrap();
    assert_eq!(testbed.send(&parts[1]).verdict, XDP_DROP);
    assert_eq!(testbed.count(Reason::DropServerGone), 1);
}

#[test]
fn fragments_of_a_rejected_datagram_are_dropped() {
    let Some(testbed) = (Setup {
        servers: false,
        ..Setup::new(false, Forward::Direct)
    })
    .open() else {
        return;
    };
    let parts = parts(&request(&testbed), 7);
    let reject = testbed.send(&parts[0]);
    assert_eq!(reject.sent().protocol, IpProtocol::ICMP);
    assert_eq!(testbed.send(&parts[1]).verdict, XDP_DROP);
    assert_eq!(
        (
            testbed.count(Reason::RejectNoServer),
            testbed.count(Reason::DropFragmentEarly)
        ),
        (1, 1)
    );
}

#[test]
fn local_server_gets_all_fragments() {
    let mut setup = Setup::new(false, Forward::Nat);
    setup.dest.flags |= weir_abi::DEST_LOCAL;
    let Some(testbed) = setup.open() else { return };
    for part in parts(&request(&testbed), 7) {
        let out = testbed.send(&part);
        assert_eq!(
            (out.verdict, out.ip().dst()),
            (XDP_PASS, testbed.net.server)
        );
    }
    assert_eq!(testbed.count(Reason::PassLocalServer), 3);
}

#[test]
fn unfragmented_packets_create_no_record() {
    let Some(testbed) = Setup::new(false, Forward::Nat).open() else {
        return;
    };
    testbed.start_flow();
    testbed
        .send(&tcp(
            testbed.net.client,
            testbed.net.vip,
            CLIENT_PORT,
            PORT,
            weir_wire::TcpFlags::ACK,
        ))
        .sent();
    assert!(
        testbed
            .plane
            .maps()
            .fragments
            .elements()
            .unwrap()
            .is_empty()
    );
}
