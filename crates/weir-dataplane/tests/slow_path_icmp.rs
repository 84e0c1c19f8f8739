//! Tests that ICMP errors are assigned to the flow of the quoted packet and translated like the flow's packets.

mod support;
mod testbed;

use std::net::IpAddr;

use testbed::{
    CLIENT_PORT, PORT, PacketOutcome, SERVER_MAC, SERVER_PORT, Setup, Testbed, XDP_DROP, XDP_PASS,
    XDP_TX, frame, tcp, tcp_packet, udp_packet,
};
use weir_abi::{Forward, Reason, SETTINGS_SCHEDULE_ICMP, Tunnel};
use weir_wire::{
    Datagram, Encapsulation, GueChecksum, Icmpv4Message, Icmpv6Message, IpProtocol, Packet,
    TcpFlags, Transport,
};

const FORWARDS: [Forward; 4] = [
    Forward::Direct,
    Forward::Tunnel,
    Forward::L3dsr,
    Forward::Nat,
];

/// Returns a frame with a "too big" error about `quoted`.
fn too_big(from: IpAddr, to: IpAddr, mtu: u16, quoted: &[u8]) -> Vec<u8> {
    frame().ip(from, to).ttl(60).too_big(mtu, quoted).build()
}

fn mtu(ip: &Datagram) -> u32 {
    match &ip.transport {
        Transport::Icmp4 {
            message: Icmpv4Message::FragmentationNeeded { mtu },
            ..
        } => u32::from(*mtu),
        Transport::Icmp6 {
            message: Icmpv6Message::PacketTooBig { mtu },
            ..
        } => *mtu,
        other => panic!("not a \"too big\" error: {other:?}"),
    }
}

fn reply(testbed: &Testbed, length: usize) -> Vec<u8> {
    tcp_packet(
        testbed.net.vip,
        testbed.net.client,
        PORT,
        CLIENT_PORT,
        length,
    )
}

#[test]
fn error_about_a_reply_reaches_its_server() {
    for v6 in [false, true] {
        for forward in FORWARDS {
            let Some(testbed) = Setup::new(v6, forward).open() else {
                return;
            };
            let net = testbed.net;
            testbed.start_flow();
            let out = testbed.send(&too_big(net.router, net.vip, 1400, &reply(&testbed, 600)));
            let outer = out.sent();
            assert_eq!(out.parsed.ethernet.dst.octets(), SERVER_MAC, "{forward:?}");
            assert_eq!(outer.ttl(), 59);
            let (ip, expected) = match forward {
                Forward::Tunnel => (outer.inner().unwrap(), net.vip),
                Forward::Direct => (outer, net.vip),
                _ => (outer, net.server),
            };
            assert_eq!(
                (ip.src(), ip.dst(), mtu(ip)),
                (net.router, expected, 1400),
                "{forward:?}"
            );
            let quoted = ip.quoted().unwrap();
            let sender = if forward == Forward::Nat {
                (net.server, SERVER_PORT)
            } else {
                (net.vip, PORT)
            };
            assert_eq!(
                (quoted.src(), quoted.dst()),
                (sender.0, net.client),
                "{forward:?}"
            );
            assert_eq!(quoted.ports(), Some((sender.1, CLIENT_PORT)), "{forward:?}");
            assert_eq!(testbed.plane.maps().traffic(1).unwrap().packets_in, 2);
        }
    }
}

#[test]
fn error_forwarded_with_l3dsr_carries_the_servers_dscp() {
    for v6 in [false, true] {
        let mut setup = Setup::new(v6, Forward::L3dsr);
        setup.dest.dscp = 5;
        let Some(testbed) = setup.open() else { return };
        testbed.start_flow();
        let out = testbed.send(&too_big(
            testbed.net.router,
            testbed.net.vip,
            1400,
            &reply(&testbed, 64),
        ));
        assert_eq!(out.sent().tos() >> 2, 5);
    }
}

#[test]
fn eight_bytes_of_the_quoted_transport_header_are_enough() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Nat).open() else {
            return;
        };
        let net = testbed.net;
        testbed.start_flow();
        let short = &reply(&testbed, 600)[..if v6 { 48 } else { 28 }];
        let out = testbed.send(&too_big(net.router, net.vip, 1400, short));
        let quoted = out.sent().quoted().unwrap();
        assert_eq!(
            (quoted.src(), quoted.ports()),
            (net.server, Some((SERVER_PORT, CLIENT_PORT)))
        );
    }
}

#[test]
fn quoted_udp_with_and_without_checksum_is_translated() {
    for v6 in [false, true] {
        for zero_checksum in [false, true] {
            let Some(testbed) = Setup::new(v6, Forward::Nat).open() else {
                return;
            };
            let net = testbed.net;
            testbed
                .send(&frame().ip_packet(&udp_packet(net.client, net.vip, CLIENT_PORT, PORT, 30)))
                .sent();
            let answer = Packet::ip(net.vip, net.client)
                .udp(PORT, CLIENT_PORT)
                .payload(&[9; 33]);
            let answer = if zero_checksum {
                answer.zero_udp_checksum()
            } else {
                answer
            }
            .build();
            let out = testbed.send(
                &frame()
                    .ip(net.router, net.vip)
                    .port_unreachable(&answer)
                    .build(),
            );
            let quoted = out.sent().quoted().unwrap();
            assert_eq!(
                (quoted.src(), quoted.ports()),
                (net.server, Some((SERVER_PORT, CLIENT_PORT)))
            );
            let Transport::Udp(header) = &quoted.transport else {
                panic!("{quoted:?}")
            };
            assert_eq!(header.dst_port, CLIENT_PORT);
        }
    }
}

#[test]
fn errors_with_snat_are_translated_in_header_and_quote() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Nat).snat().open() else {
            return;
        };
        let net = testbed.net;
        let request = testbed.start_flow();
        let (source, sport) = (request.ip().src(), request.ip().ports().unwrap().0);
        assert_eq!(source, net.snat);

        let to_server = testbed.send(&too_big(net.router, net.vip, 1400, &reply(&testbed, 100)));
        let quoted = to_server.sent().quoted().unwrap();
        assert_eq!((to_server.ip().dst(), quoted.dst()), (net.server, net.snat));
        assert_eq!(quoted.ports(), Some((SERVER_PORT, sport)));

        let quoted_packet = tcp_packet(net.snat, net.server, sport, SERVER_PORT, 100);
        let to_client = testbed.send(&too_big(net.server, net.snat, 1300, &quoted_packet));
        let ip = to_client.sent();
        assert_eq!((ip.src(), ip.dst()), (net.vip, net.client));
        let quoted = ip.quoted().unwrap();
        assert_eq!((quoted.src(), quoted.dst()), (net.client, net.vip));
        assert_eq!(quoted.ports(), Some((CLIENT_PORT, PORT)));
    }
}

#[test]
fn error_about_a_request_reaches_the_client() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Nat).open() else {
            return;
        };
        let net = testbed.net;
        testbed.start_flow();
        let quoted_packet = tcp_packet(net.client, net.server, CLIENT_PORT, SERVER_PORT, 1000);
        for (from, expected_source) in [(net.server, net.vip), (net.router, net.router)] {
            let out = testbed.send(&too_big(from, net.client, 1280, &quoted_packet));
            let ip = out.sent();
            assert_eq!(
                (ip.src(), ip.dst(), mtu(ip)),
                (expected_source, net.client, 1280)
            );
            let quoted = ip.quoted().unwrap();
            assert_eq!((quoted.src(), quoted.dst()), (net.client, net.vip));
            assert_eq!(quoted.ports(), Some((CLIENT_PORT, PORT)));
        }
        assert_eq!(testbed.plane.maps().traffic(1).unwrap().packets_out, 2);
    }
}

#[test]
fn other_error_types_are_translated() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Nat).open() else {
            return;
        };
        let net = testbed.net;
        testbed.start_flow();
        let quoted_packet = reply(&testbed, 40);
        let unreachable = testbed.send(
            &frame()
                .ip(net.router, net.vip)
                .port_unreachable(&quoted_packet)
                .build(),
        );
        assert_eq!(unreachable.sent().dst(), net.server);
        let exceeded = testbed.send(
            &frame()
                .ip(net.router, net.vip)
                .time_exceeded(&quoted_packet)
                .build(),
        );
        assert_eq!(exceeded.sent().dst(), net.server);
    }
}

#[test]
fn errors_about_unknown_flows_pass_unchanged() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Nat).open() else {
            return;
        };
        let net = testbed.net;
        testbed.start_flow();
        let other_port = tcp_packet(net.vip, net.client, PORT, CLIENT_PORT + 1, 50);
        let wrong_sender = tcp_packet(net.server, net.client, PORT, CLIENT_PORT, 50);
        for quoted in [other_port, wrong_sender] {
            let input = too_big(net.router, net.vip, 1400, &quoted);
            let out = testbed.send(&input);
            assert_eq!((out.verdict, &out.frame), (XDP_PASS, &input));
        }
        assert_eq!(testbed.count(Reason::PassIcmp), 2);
        let foreign = tcp_packet(net.client, net.router, 1, 2, 50);
        assert_eq!(
            testbed
                .send(&too_big(net.director, net.client, 1400, &foreign))
                .verdict,
            XDP_PASS
        );
        assert_eq!(testbed.count(Reason::PassNotOurs), 1);
    }
}

#[test]
fn truncated_quote_is_dropped_only_at_a_vip() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Nat).open() else {
            return;
        };
        let net = testbed.net;
        testbed.start_flow();
        let quoted_packet = reply(&testbed, 40);
        for length in [0, 10, if v6 { 44 } else { 24 }] {
            assert_eq!(
                testbed
                    .send(&too_big(
                        net.router,
                        net.vip,
                        1400,
                        &quoted_packet[..length]
                    ))
                    .verdict,
                XDP_DROP
            );
            assert_eq!(
                testbed
                    .send(&too_big(
                        net.router,
                        net.client,
                        1400,
                        &quoted_packet[..length]
                    ))
                    .verdict,
                XDP_PASS
            );
        }
        assert_eq!(testbed.count(Reason::DropTooShort), 3);
    }
}

#[test]
fn error_with_expired_ttl_is_dropped_without_another_error() {
    let Some(testbed) = Setup::new(false, Forward::Nat).open() else {
        return;
    };
    let net = testbed.net;
    testbed.start_flow();
    let expiring = frame()
        .ip(net.router, net.vip)
        .ttl(1)
        .too_big(1400, &reply(&testbed, 40))
        .build();
    assert_eq!(testbed.send(&expiring).verdict, XDP_DROP);
    assert_eq!(testbed.count(Reason::DropTtl), 1);
}

#[test]
fn wrong_checksum_is_not_corrected() {
    for v6 in [false, true] {
        let Some(testbed) = Setup::new(v6, Forward::Nat).open() else {
            return;
        };
        let net = testbed.net;
        testbed.start_flow();
        let mut input = too_big(net.router, net.vip, 1400, &reply(&testbed, 40));
        let last = input.len() - 1;
        input[last] ^= 0x55;
        let out = testbed.send(&input);
        assert_eq!(out.verdict, XDP_TX);
        assert!(!out.ip().has_valid_checksums());
    }
}

#[test]
fn extension_headers_in_the_quote_are_followed() {
    let Some(testbed) = Setup::new(true, Forward::Nat).open() else {
        return;
    };
    let net = testbed.net;
    testbed.start_flow();
    let (IpAddr::V6(vip), IpAddr::V6(client)) = (net.vip, net.client) else {
        panic!()
    };
    let quoted_packet = Packet::ipv6(vip, client)
        .dest_opts()
        .tcp(PORT, CLIENT_PORT)
        .flags(TcpFlags::ACK)
        .payload(&[3; 30])
        .build();
    let out = testbed.send(&too_big(net.router, net.vip, 1400, &quoted_packet));
    let quoted = out.sent().quoted().unwrap();
    assert_eq!(
        (quoted.src(), quoted.ports()),
        (net.server, Some((SERVER_PORT, CLIENT_PORT)))
    );
}

/// Returns the tunnel variants, each with its overhead in bytes without the outer IP header.
fn tunnels() -> [(Tunnel, u8, Encapsulation, u32); 5] {
    let gue = |checksum| Encapsulation::Gue {
        sport: 50_000,
        dport: weir_wire::GUE_PORT,
        checksum,
    };
    [
        (Tunnel::Ipip, 0, Encapsulation::Ipip, 0),
        (Tunnel::Gue, 0, gue(GueChecksum::None), 12),
        (
            Tunnel::Gue,
            weir_abi::TUNNEL_REMCSUM,
            gue(GueChecksum::Remote),
            20,
        ),
        (Tunnel::Gre, 0, Encapsulation::Gre { checksum: false }, 4),
        (
            Tunnel::Gre,
            weir_abi::TUNNEL_CSUM,
            Encapsulation::Gre { checksum: true },
            8,
        ),
    ]
}

fn send_too_big_about_tunnel_packet(
    testbed: &Testbed,
    encapsulation: Encapsulation,
    v6_outside: bool,
    mtu: u16,
) -> PacketOutcome {
    let outer_net = testbed::net(v6_outside);
    let inner = tcp_packet(testbed.net.client, testbed.net.vip, CLIENT_PORT, PORT, 1000);
    let tunnel_packet =
        Packet::ip(outer_net.director, outer_net.server).encapsulate(encapsulation, &inner);
    testbed.send(&too_big(
        outer_net.router,
        outer_net.director,
        mtu,
        &tunnel_packet,
    ))
}

#[test]
fn too_big_about_tunnel_packet_is_translated_and_sent_to_client() {
    for (v6, v6_outside) in [(false, false), (true, true), (true, false), (false, true)] {
        for (tunnel, flags, encapsulation, shim) in tunnels() {
            let mut setup = Setup::new(v6, Forward::Tunnel);
            let outer_net = testbed::net(v6_outside);
            setup.dest.addr = outer_net.server.into();
            setup.dest.tunnel_source = outer_net.director.into();
            setup.dest.family = if v6_outside { 6 } else { 4 };
            (setup.dest.tunnel, setup.dest.tunnel_flags) = (tunnel as u8, flags);
            setup.settings.flags = 0;
            let Some(testbed) = setup.open() else { return };
            let net = testbed.net;
            testbed.start_flow();
            // If the kernel returns no route, the tc program sends the packet through the client's device.
            let out = send_too_big_about_tunnel_packet(&testbed, encapsulation, v6_outside, 1400);
            assert_eq!(out.verdict, XDP_PASS, "{tunnel:?}");
            assert_eq!(testbed.count(Reason::PassToTc), 1);
            let ip = out.ip();
            assert!(ip.has_valid_checksums());
            let room = 1400 - shim - if v6_outside { 40 } else { 20 };
            assert_eq!((ip.src(), ip.dst(), mtu(ip)), (net.vip, net.client, room));
            let quoted = ip.quoted().unwrap();
            assert_eq!(
                (quoted.src(), quoted.dst(), quoted.protocol),
                (net.client, net.vip, IpProtocol::TCP)
            );
            assert_eq!(quoted.ports(), Some((CLIENT_PORT, PORT)));
        }
    }
}

#[test]
fn error_about_a_foreign_tunnel_or_with_a_tiny_mtu_passes() {
    let Some(testbed) = Setup::new(false, Forward::Tunnel).open() else {
        return;
    };
    let net = testbed.net;
    testbed.start_flow();
    let inner = tcp_packet(net.client, net.vip, CLIENT_PORT, PORT, 100);
    let other_server: IpAddr = "10.0.0.77".parse().unwrap();
    let tunnel_packet =
        Packet::ip(net.director, other_server).encapsulate(Encapsulation::Ipip, &inner);
    let input = too_big(net.router, net.director, 1400, &tunnel_packet);
    let out = testbed.send(&input);
    assert_eq!((out.verdict, out.frame), (XDP_PASS, input));
    let too_small = send_too_big_about_tunnel_packet(&testbed, Encapsulation::Ipip, false, 60);
    assert_eq!(too_small.verdict, XDP_PASS);
    assert_eq!(testbed.count(Reason::PassNotOurs), 2);
}

#[test]
fn server_of_flow_without_entry_is_found_by_hash() {
    let mut setup = Setup::new(false, Forward::Direct);
    setup.settings.syn_budget = 0;
    let Some(testbed) = setup.open() else { return };
    testbed
        .send(&tcp(
            testbed.net.client,
            testbed.net.vip,
            CLIENT_PORT,
            PORT,
            TcpFlags::SYN,
        ))
        .sent();
    assert_eq!(testbed.plane.maps().flows.walk().count(), 0);
    let out = testbed.send(&too_big(
        testbed.net.router,
        testbed.net.vip,
        1400,
        &reply(&testbed, 100),
    ));
    out.sent();
    assert_eq!(out.parsed.ethernet.dst.octets(), SERVER_MAC);
}

/// With `schedule_icmp`, the error is assigned to a server, and the client's later packets go to the same server.
#[test]
fn error_about_unknown_flow_creates_flow_with_schedule_icmp() {
    for v6 in [false, true] {
        for forward in FORWARDS {
            for enabled in [false, true] {
                let mut setup = Setup::new(v6, forward);
                if enabled {
                    setup.settings.flags |= SETTINGS_SCHEDULE_ICMP;
                }
                let Some(testbed) = setup.open() else { return };
                let net = testbed.net;
                let out = testbed.send(&too_big(net.router, net.vip, 1400, &reply(&testbed, 600)));
                let live = testbed.plane.maps().live(1).unwrap();
                if !enabled {
                    assert_eq!((out.verdict, live.inactive), (XDP_PASS, 0), "{forward:?}");
                    continue;
                }
                assert_eq!(out.parsed.ethernet.dst.octets(), SERVER_MAC, "{forward:?}");
                let ip = match forward {
                    Forward::Tunnel => out.sent().inner().unwrap(),
                    _ => out.sent(),
                };
                assert_eq!(mtu(ip), 1400, "{forward:?}");
                assert_eq!((live.active, live.inactive), (0, 1), "{forward:?}");
                let quoted = ip.quoted().unwrap();
                let sender = if forward == Forward::Nat {
                    (net.server, SERVER_PORT)
                } else {
                    (net.vip, PORT)
                };
                assert_eq!(
                    (quoted.src(), quoted.ports()),
                    (sender.0, Some((sender.1, CLIENT_PORT)))
                );
                testbed.start_flow();
                let live = testbed.plane.maps().live(1).unwrap();
                assert_eq!(
                    (live.active, live.inactive, live.total),
                    (1, 0, 1),
                    "{forward:?}"
                );
            }
        }
    }
}

#[test]
fn error_about_unknown_flow_is_dropped_without_server() {
    let mut setup = Setup::new(false, Forward::Direct);
    setup.settings.flags |= SETTINGS_SCHEDULE_ICMP;
    setup.servers = false;
    let Some(testbed) = setup.open() else { return };
    let net = testbed.net;
    let out = testbed.send(&too_big(net.router, net.vip, 1400, &reply(&testbed, 64)));
    assert_eq!(out.verdict, XDP_DROP);
}
