//! Tests GUE and GRE checksums, and remote checksum offload, for every kind of inner packet.

mod support;
mod testbed;

use testbed::{
    CLIENT_PORT, PORT, PacketOutcome, Setup, Testbed, frame, net, tcp_packet, udp_packet,
};
use weir_abi::{Forward, Tunnel};
use weir_wire::{ChecksumState, Datagram, Packet, TcpFlags, Transport, TunnelHeader};

fn open(v6: bool, v6_outside: bool, tunnel: Tunnel, flags: u8) -> Option<Testbed> {
    let mut setup = Setup::new(v6, Forward::Tunnel);
    let outer_net = net(v6_outside);
    setup.dest.addr = outer_net.server.into();
    setup.dest.tunnel_source = outer_net.director.into();
    setup.dest.family = if v6_outside { 6 } else { 4 };
    (setup.dest.tunnel, setup.dest.tunnel_flags) = (tunnel as u8, flags);
    setup.hop_mtu = 0;
    setup.open()
}

/// Returns packets of one flow for each method of computing the checksum: deferred, partial, byte by byte.
fn packets(testbed: &Testbed) -> Vec<Vec<u8>> {
    let (client, vip) = (testbed.net.client, testbed.net.vip);
    let mut packets: Vec<Vec<u8>> = [0, 1, 2, 3, 31, 1400]
        .map(|length| tcp_packet(client, vip, CLIENT_PORT, PORT, length))
        .to_vec();
    packets
        .extend([0, 1, 700, 1399].map(|length| udp_packet(client, vip, CLIENT_PORT, PORT, length)));
    packets.push(
        Packet::ip(client, vip)
            .udp(CLIENT_PORT, PORT)
            .payload(&[9; 77])
            .zero_udp_checksum()
            .build(),
    );
    packets.push(tcp_packet(client, vip, CLIENT_PORT, PORT, 8900));
    match (client, vip) {
        (std::net::IpAddr::V4(client), std::net::IpAddr::V4(vip)) => {
            packets.push(
                Packet::ipv4(client, vip)
                    .options(&[1, 1, 1, 1])
                    .udp(CLIENT_PORT, PORT)
                    .payload(&[1; 99])
                    .build(),
            );
        }
        (std::net::IpAddr::V6(client), std::net::IpAddr::V6(vip)) => {
            packets.push(
                Packet::ipv6(client, vip)
                    .dest_opts()
                    .udp(CLIENT_PORT, PORT)
                    .payload(&[1; 99])
                    .build(),
            );
        }
        _ => unreachable!(),
    }
    packets
}

/// Asserts that the inner packet has the addresses, ports, length and checksum state of the sent packet. Returns the
/// inner packet.
fn inner_packet<'a>(out: &'a PacketOutcome, sent: &[u8]) -> &'a Datagram {
    let inner = out
        .sent()
        .inner()
        .unwrap_or_else(|| panic!("{}", weir_wire::describe(&out.frame)));
    let original = Packet::parse_ip(sent).unwrap();
    assert_eq!(
        (inner.src(), inner.dst(), inner.ports()),
        (original.src(), original.dst(), original.ports())
    );
    assert_eq!(inner.range.len(), sent.len());
    assert_eq!(inner.transport_checksum, original.transport_checksum);
    inner
}

fn check_all_families(flags: u8, tunnel: Tunnel, check: impl Fn(&PacketOutcome, &Datagram)) {
    for (v6, v6_outside) in [(false, false), (true, true), (true, false), (false, true)] {
        let Some(testbed) = open(v6, v6_outside, tunnel, flags) else {
            return;
        };
        testbed.start_flow();
        for packet in packets(&testbed) {
            let out = testbed.send(&frame().ip_packet(&packet));
            let inner = inner_packet(&out, &packet);
            check(&out, inner);
        }
    }
}

#[test]
fn gue_full_checksum_is_valid() {
    check_all_families(weir_abi::TUNNEL_CSUM, Tunnel::Gue, |out, _| {
        assert_eq!(out.ip().transport_checksum, ChecksumState::Valid);
    });
}

#[test]
fn gue_sends_no_checksum_unless_configured() {
    check_all_families(0, Tunnel::Gue, |out, _| {
        assert_eq!(out.ip().transport_checksum, ChecksumState::Absent)
    });
}

#[test]
fn gre_checksum_is_valid_or_absent_as_configured() {
    check_all_families(weir_abi::TUNNEL_CSUM, Tunnel::Gre, |out, _| {
        assert_eq!(out.ip().transport_checksum, ChecksumState::Valid);
    });
    check_all_families(0, Tunnel::Gre, |out, _| {
        assert_eq!(out.ip().transport_checksum, ChecksumState::Absent)
    });
}

#[test]
fn gue_remote_checksum_is_used_only_for_valid_inner_checksums() {
    check_all_families(weir_abi::TUNNEL_REMCSUM, Tunnel::Gue, |out, inner| {
        let Transport::Tunnel {
            header: TunnelHeader::Gue(_, gue),
            ..
        } = &out.ip().transport
        else {
            panic!()
        };
        let deferrable = inner.transport_checksum == ChecksumState::Valid;
        assert_eq!(gue.remote_checksum.is_some(), deferrable);
        assert_eq!(out.ip().transport_checksum, ChecksumState::Valid);
    });
}

#[test]
fn checksums_of_fragments_and_errors_are_correct() {
    for flags in [weir_abi::TUNNEL_CSUM, weir_abi::TUNNEL_REMCSUM] {
        for v6 in [false, true] {
            let Some(testbed) = open(v6, true, Tunnel::Gue, flags) else {
                return;
            };
            let (client, vip) = (testbed.net.client, testbed.net.vip);
            let datagram = udp_packet(client, vip, CLIENT_PORT, PORT, 1400);
            for part in frame().fragments(&datagram, 600, 4).unwrap() {
                assert_eq!(
                    testbed.send(&part).sent().transport_checksum,
                    ChecksumState::Valid
                );
            }
            let quoted = udp_packet(vip, client, PORT, CLIENT_PORT, 51);
            let error = frame()
                .ip(testbed.net.router, vip)
                .port_unreachable(&quoted)
                .build();
            assert_eq!(
                testbed.send(&error).sent().transport_checksum,
                ChecksumState::Valid
            );
        }
    }
}

#[test]
fn wrong_inner_checksum_is_not_corrected() {
    for flags in [weir_abi::TUNNEL_CSUM, weir_abi::TUNNEL_REMCSUM] {
        let Some(testbed) = open(false, false, Tunnel::Gue, flags) else {
            return;
        };
        testbed.start_flow();
        let bad = frame()
            .ip(testbed.net.client, testbed.net.vip)
            .tcp(CLIENT_PORT, PORT)
            .flags(TcpFlags::ACK)
            .payload(&[1, 2, 3])
            .bad_checksum()
            .build();
        let out = testbed.send(&bad);
        assert_eq!(
            out.ip().transport_checksum,
            ChecksumState::Invalid,
            "the outer checksum must not hide the wrong inner checksum"
        );
    }
}
