//! Tests malformed frames, and frames that are not for Weir.

use weir_abi::{Forward, Reason};
use weir_sched::Kind;
use weir_wire::{IpProtocol, Packet, TcpFlags};

use crate::bench::{Bench, CLIENT_MAC, DIRECTOR_MAC, NewServer};
use crate::wire::{ACK, Case, SYN, Shape, at, check_all};

const VIP4: &str = "192.0.2.10";
const VIP6: &str = "2001:db8::10";
const CLIENT4: &str = "198.51.100.7";
const CLIENT6: &str = "2001:db8:1::7";

fn bench() -> Option<Bench> {
    let mut bench = Bench::open()?;
    bench.serve(
        Kind::Rr,
        (VIP4, 80),
        &[NewServer::new(Forward::Direct, "10.0.0.5")],
    );
    bench.serve(
        Kind::Rr,
        (VIP6, 80),
        &[NewServer::new(Forward::Direct, "fd00::5")],
    );
    Some(bench)
}

fn v4() -> weir_wire::Ipv4Builder {
    Packet::ethernet(CLIENT_MAC.into(), DIRECTOR_MAC.into())
        .ipv4(CLIENT4.parse().unwrap(), VIP4.parse().unwrap())
}

fn v6() -> weir_wire::Ipv6Builder {
    Packet::ethernet(CLIENT_MAC.into(), DIRECTOR_MAC.into())
        .ipv6(CLIENT6.parse().unwrap(), VIP6.parse().unwrap())
}

#[test]
fn packets_with_inconsistent_lengths_are_dropped() {
    let Some(mut bench) = bench() else { return };
    let tcp = || v4().tcp(1000, 80).flags(SYN);
    let drops = |name: &str, frame: Vec<u8>| Case::new(name, frame).drops(Reason::DropBadLength);
    let cases = [
        drops(
            "v4 longer than the frame",
            v4().total_length(41).tcp(1, 80).flags(SYN).build(),
        ),
        drops(
            "v4 without room for tcp",
            v4().total_length(39).tcp(1, 80).flags(SYN).build(),
        ),
        drops("v4 tcp offset 4", tcp().data_offset(4).build()),
        drops(
            "v4 tcp offset beyond the packet",
            tcp().data_offset(6).build(),
        ),
        drops("v4 udp length 7", v4().udp(1, 80).length(7).build()),
        drops(
            "v4 udp length beyond the packet",
            v4().udp(1, 80).payload(b"four").length(13).build(),
        ),
        drops(
            "v6 longer than the frame",
            v6().payload_length(21).tcp(1, 80).flags(SYN).build(),
        ),
        drops(
            "v6 without room for tcp",
            v6().payload_length(19).tcp(1, 80).flags(SYN).build(),
        ),
        drops(
            "v6 udp length beyond the packet",
            v6().udp(1, 80).length(9).build(),
        ),
        drops(
            "v6 extension longer than the packet",
            v6().payload_length(7)
                .hop_by_hop()
                .tcp(1, 80)
                .flags(SYN)
                .build(),
        ),
    ];
    check_all(&mut bench, &cases);
}

#[test]
fn truncated_frames_are_dropped() {
    let Some(mut bench) = bench() else { return };
    let mut cases = Vec::new();
    for (name, whole, headers) in [
        ("v4 tcp", v4().tcp(1000, 80).flags(SYN).build(), 20),
        ("v4 udp", v4().udp(1000, 80).build(), 20),
        ("v6 tcp", v6().tcp(1000, 80).flags(SYN).build(), 40),
        (
            "v6 udp with options",
            v6().hop_by_hop().udp(1000, 80).build(),
            48,
        ),
    ] {
        for end in [whole.len() - 1, 14 + headers + 1, 14 + headers] {
            let case = Case::new(format!("{name} cut to {end}"), whole[..end].to_vec());
            cases.push(case.drops(Reason::DropTooShort));
        }
        // Without addresses, it is unknown whether the packet was for a VIP.
        let case = Case::new(
            format!("{name} with truncated header"),
            whole[..14 + 19].to_vec(),
        );
        cases.push(case.passes(Reason::PassNotOurs));
    }
    let options = v6().hop_by_hop().udp(1000, 80).build();
    cases
        .push(Case::new("v6 options cut", options[..14 + 47].to_vec()).drops(Reason::DropTooShort));
    check_all(&mut bench, &cases);
}

#[test]
fn invalid_headers_are_dropped() {
    let Some(mut bench) = bench() else { return };
    let case = |name: &str, reason, frame: Vec<u8>| Case::new(name, frame).drops(reason);
    let malformed = Reason::DropMalformed;
    let ethernet = Packet::ethernet(CLIENT_MAC.into(), DIRECTOR_MAC.into());
    let cases = [
        case(
            "v4 with version 5",
            malformed,
            v4().version(5).tcp(1, 80).build(),
        ),
        case(
            "v4 with IHL 4",
            malformed,
            v4().header_words(4).tcp(1, 80).build(),
        ),
        case(
            "v4 shorter than its header",
            Reason::DropBadLength,
            v4().total_length(19).tcp(1, 80).build(),
        ),
        case(
            "v6 with version 4",
            malformed,
            v6().version(4).tcp(1, 80).build(),
        ),
        Case::new(
            "for a different address",
            ethernet
                .ipv4(CLIENT4.parse().unwrap(), [192, 0, 2, 11].into())
                .version(5)
                .tcp(1, 80)
                .build(),
        )
        .passes(Reason::PassNotOurs),
    ];
    check_all(&mut bench, &cases);
}

#[test]
fn packets_with_too_many_headers_or_no_next_header_pass() {
    let Some(mut bench) = bench() else { return };
    let four_headers = v6().hop_by_hop().dest_opts().routing(0).dest_opts();
    let cases = [
        Case::new(
            "five headers",
            four_headers
                .clone()
                .dest_opts()
                .tcp(1, 80)
                .flags(SYN)
                .build(),
        )
        .passes(Reason::PassHeaders),
        Case::new(
            "no next header",
            v6().raw(IpProtocol::NO_NEXT_HEADER, b"").build(),
        )
        .passes(Reason::PassProtocol),
    ];
    check_all(&mut bench, &cases);
    let outcome = bench.send(&four_headers.tcp(1, 80).flags(SYN).build());
    assert_eq!(outcome.counted, [], "four headers must be parsed");
}

#[test]
fn foreign_packets_pass() {
    let Some(mut bench) = bench() else { return };
    let syn = Shape::tcp(SYN);
    let ethernet = Packet::ethernet(CLIENT_MAC.into(), DIRECTOR_MAC.into());
    let cases = [
        Case::new("arp", ethernet.frame(weir_wire::EtherType::ARP, &[0; 28]))
            .passes(Reason::PassNotIp),
        Case::new(
            "lldp",
            ethernet.frame(weir_wire::EtherType(0x88cc), &[0; 46]),
        )
        .passes(Reason::PassNotIp),
        Case::new(
            "three tags",
            Shape {
                tags: &[1, 2, 3],
                ..syn
            }
            .arriving(at(CLIENT4, 1), at(VIP4, 80)),
        )
        .passes(Reason::PassNotIp),
        Case::new(
            "a different address",
            syn.arriving(at(CLIENT4, 1), at("192.0.2.11", 80)),
        )
        .passes(Reason::PassNotOurs),
        Case::new(
            "a different v6 address",
            syn.arriving(at(CLIENT6, 1), at("2001:db8::11", 80)),
        )
        .passes(Reason::PassNotOurs),
        Case::new("bad length to a different address", {
            let ethernet = Packet::ethernet(CLIENT_MAC.into(), DIRECTOR_MAC.into());
            ethernet
                .ipv4(CLIENT4.parse().unwrap(), [192, 0, 2, 11].into())
                .total_length(999)
                .tcp(1, 2)
                .build()
        })
        .passes(Reason::PassNotOurs),
        Case::new(
            "a different port",
            syn.arriving(at(CLIENT4, 1), at(VIP4, 81)),
        )
        .passes(Reason::PassNoService),
        Case::new(
            "a different v6 port",
            syn.arriving(at(CLIENT6, 1), at(VIP6, 81)),
        )
        .passes(Reason::PassNoService),
        Case::new("gre to a vip", v4().raw(IpProtocol::GRE, &[0; 8]).build())
            .passes(Reason::PassProtocol),
        Case::new(
            "sctp to a vip",
            v4().raw(IpProtocol::SCTP, &[0; 16]).build(),
        )
        .passes(Reason::PassProtocol),
        Case::new(
            "icmpv6 in v4",
            v4().raw(IpProtocol::ICMPV6, &[0; 8]).build(),
        )
        .passes(Reason::PassProtocol),
        Case::new("esp in v6", v6().raw(IpProtocol::ESP, &[0; 16]).build())
            .passes(Reason::PassProtocol),
    ];
    check_all(&mut bench, &cases);
}

#[test]
fn packets_that_cannot_start_a_flow_pass() {
    let Some(mut bench) = bench() else { return };
    for (name, bits) in [
        ("none", 0u8),
        ("ack", 0x10),
        ("fin", 0x11),
        ("rst", 4),
        ("syn and rst", 6),
        ("psh", 8),
        ("all", 0xff),
    ] {
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let frame = Shape::tcp(TcpFlags(bits)).arriving(at(client, 1), at(vip, 80));
            Case::new(format!("{name} to {vip}"), frame)
                .passes(Reason::PassNoFlow)
                .check(&mut bench);
        }
    }
    let service = bench.add_service(Kind::Rr);
    bench.listen(service, VIP4, 81);
    let frame = Shape::tcp(ACK).arriving(at(CLIENT4, 1), at(VIP4, 81));
    Case::new("ack to a service without servers", frame)
        .passes(Reason::PassNoFlow)
        .check(&mut bench);
    for bits in [2u8, 0x12, 3, 0xc2] {
        let frame =
            Shape::tcp(TcpFlags(bits)).arriving(at(CLIENT4, u16::from(bits) + 100), at(VIP4, 80));
        assert_eq!(
            bench.send(&frame).counted,
            [],
            "{bits:#x} must start a flow"
        );
    }
    bench.assert_same_state();
}
