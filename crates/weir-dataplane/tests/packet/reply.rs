//! Tests, with and without snat, that replies from nat servers reach the client with the VIP as their source.

use weir_abi::{DEST_SNAT, Forward, HOP_READY, Reason, State};
use weir_flow::PacketMeta;
use weir_sched::Kind;

use crate::bench::{Bench, CLIENT_MAC, DIRECTOR_MAC, INGRESS, NewServer, Xdp, next_hop_macs};
use crate::wire::{ACK, Case, FIN, RST, SYN, SYN_ACK, Shape, at};

const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 9, 9];

/// VIP, client, server and snat source address, for each family.
const FAMILIES: [[&str; 4]; 2] = [
    ["192.0.2.10", "198.51.100.7", "10.0.0.5", "10.0.0.1"],
    ["2001:db8::10", "2001:db8:1::7", "fd00::5", "fd00::1"],
];

fn build_server_packet(
    shape: &Shape,
    src: std::net::SocketAddr,
    dst: std::net::SocketAddr,
) -> Vec<u8> {
    shape.build((SERVER_MAC, DIRECTOR_MAC), src, dst)
}

/// Returns the packets of a connection: for each, whether the client sends it, the packet itself, and the resulting
/// state.
fn dialogue() -> [(bool, Shape, State); 9] {
    let ack = Shape::tcp(ACK);
    let mut syn_ack = Shape::tcp(SYN_ACK);
    syn_ack.tcp_options = &[2, 4, 5, 180];
    let (mut data, mut options, mut wrong_checksum) = (ack, ack, ack);
    (data.payload, data.tos) = (b"hello", 2);
    options.ip_options = true;
    wrong_checksum.bad_checksum = true;
    [
        (true, Shape::tcp(SYN), State::SynRecv),
        (false, syn_ack, State::SynRecv),
        (true, ack, State::Established),
        (false, data, State::Established),
        (false, options, State::Established),
        (false, wrong_checksum, State::Established),
        (false, Shape::tcp(FIN), State::FinWait),
        (true, Shape::tcp(FIN), State::TimeWait),
        (false, ack, State::TimeWait),
    ]
}

#[test]
fn replies_come_from_the_vip() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.learn_clients();
    for [vip, client, server, _] in FAMILIES {
        let row = NewServer::new(Forward::Nat, server).port(8080);
        let (_, dests) = bench.serve(Kind::Rr, (vip, 80), &[row]);
        let (client, vip, server) = (at(client, 1000), at(vip, 80), at(server, 8080));
        for (step, (request, shape, state)) in dialogue().into_iter().enumerate() {
            let name = format!("step {step} {vip}");
            let case = if request {
                let out = shape
                    .forwarded()
                    .build(next_hop_macs(dests[0]), client, server);
                Case::new(name, shape.arriving(client, vip)).sends(out)
            } else {
                let out = shape
                    .forwarded()
                    .build((DIRECTOR_MAC, CLIENT_MAC), vip, client);
                Case::new(name, build_server_packet(&shape, server, client)).sends(out)
            };
            case.check(&mut bench);
            assert_eq!(state_of(&bench), state, "step {step} {vip}");
        }
    }
    bench.assert_same_state();
}

#[test]
fn udp_replies_have_a_checksum_only_if_the_server_sent_one() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.learn_clients();
    for [vip, client, server, _] in FAMILIES {
        let row = NewServer::new(Forward::Nat, server).port(8080);
        bench.serve(Kind::Rr, (vip, 80), &[row]);
        let (client, vip, server) = (at(client, 1001), at(vip, 80), at(server, 8080));
        for no_checksum in [false, true] {
            let mut shape = Shape::udp();
            shape.no_checksum = no_checksum;
            bench.send(&shape.arriving(client, vip));
            let out = shape
                .forwarded()
                .build((DIRECTOR_MAC, CLIENT_MAC), vip, client);
            let frame = build_server_packet(&shape, server, client);
            let case = Case::new(format!("udp {vip}"), frame).sends(out);
            case.check(&mut bench);
        }
    }
    bench.assert_same_state();
}

/// Returns the state of the TCP flow to the last added server.
fn state_of(bench: &Bench) -> State {
    let flows = bench.plane.maps().flows.walk();
    let latest = flows
        .filter(|flow| flow.meta().kind == 1 && flow.cold.proto == 6)
        .max_by_key(|flow| flow.dest());
    State::from_number(latest.unwrap().meta().state).unwrap()
}

#[test]
fn snat_hides_the_client() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.learn_clients();
    for [vip, client, server, source] in FAMILIES {
        let server_row = NewServer::new(Forward::Nat, server)
            .port(8080)
            .row(|row| row.flags |= DEST_SNAT);
        let (service, dests) = bench.serve(Kind::Rr, (vip, 80), &[server_row]);
        bench.add_snat(service, &[source], (20_000, 20_063));
        let mut used_ports = std::collections::BTreeSet::new();
        for port in 1000..1040 {
            let shape = Shape {
                payload: b"snat",
                ..Shape::tcp(SYN)
            };
            let out = bench
                .send(&shape.arriving(at(client, port), at(vip, 80)))
                .frame;
            let tuple = weir_wire::Packet::parse(&out)
                .unwrap()
                .five_tuple()
                .unwrap();
            assert_eq!(tuple.src, source.parse::<std::net::IpAddr>().unwrap());
            assert!(
                (20_000..=20_063).contains(&tuple.sport),
                "port {}",
                tuple.sport
            );
            assert!(
                used_ports.insert(tuple.sport),
                "port {} is used twice",
                tuple.sport
            );
            let expected = shape.forwarded().build(
                next_hop_macs(dests[0]),
                at(source, tuple.sport),
                at(server, 8080),
            );
            assert_eq!(out, expected, "only addresses and ports differ");
            let reply = Shape::tcp(SYN_ACK);
            let forwarded_reply =
                reply
                    .forwarded()
                    .build((DIRECTOR_MAC, CLIENT_MAC), at(vip, 80), at(client, port));
            let frame = build_server_packet(&reply, at(server, 8080), at(source, tuple.sport));
            Case::new(format!("reply to {port} {vip}"), frame)
                .sends(forwarded_reply)
                .check(&mut bench);
            let next_frame = bench
                .send(&Shape::tcp(ACK).arriving(at(client, port), at(vip, 80)))
                .frame;
            assert_eq!(
                weir_wire::Packet::parse(&next_frame)
                    .unwrap()
                    .five_tuple()
                    .unwrap()
                    .sport,
                tuple.sport
            );
        }
        bench.assert_same_state();
    }
}

#[test]
fn flows_without_a_free_snat_port_are_dropped() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let [vip, client, server, source] = FAMILIES[0];
    let row = NewServer::new(Forward::Nat, server).row(|row| row.flags |= DEST_SNAT);
    let (service, _) = bench.serve(Kind::Rr, (vip, 80), &[row]);
    let syn = |port| Shape::tcp(SYN).arriving(at(client, port), at(vip, 80));
    Case::new("no address", syn(999))
        .drops(Reason::DropNoPlace)
        .check(&mut bench);
    bench.add_snat(service, &[source], (20_000, 20_001));
    let mut exhausted = 0;
    for port in 1000..1020 {
        let outcome = bench.send(&syn(port));
        exhausted += usize::from(outcome.counted == [Reason::DropSnatExhausted]);
    }
    assert_eq!(exhausted, 18, "two ports are sufficient for two flows");
    bench.assert_same_state();
}

#[test]
fn two_services_do_not_share_a_reverse_tuple() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let [_, client, server, _] = FAMILIES[0];
    let first_server = NewServer::new(Forward::Nat, server).port(8080);
    bench.serve(Kind::Rr, ("192.0.2.10", 80), &[first_server]);
    bench.serve(Kind::Rr, ("192.0.2.11", 80), &[first_server]);
    let servers = [
        first_server,
        NewServer::new(Forward::Nat, "10.0.0.6").port(8080),
    ];
    bench.serve(Kind::Sh, ("192.0.2.12", 80), &servers);
    let syn = |vip: &str| Shape::tcp(SYN).arriving(at(client, 1000), at(vip, 80));
    assert_eq!(bench.send(&syn("192.0.2.10")).counted, []);
    Case::new("reverse tuple in use", syn("192.0.2.11"))
        .drops(Reason::DropNatConflict)
        .check(&mut bench);
    let out = bench.send(&syn("192.0.2.12"));
    if out.verdict == Xdp::Tx {
        let dst = weir_wire::Packet::parse(&out.frame)
            .unwrap()
            .five_tuple()
            .unwrap()
            .dst;
        assert_eq!(dst.to_string(), "10.0.0.6", "the server with a free tuple");
    }
    bench.assert_same_state();
}

#[test]
fn reverse_tuple_of_a_closed_connection_can_be_used_by_another_vip() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let [_, client, server, _] = FAMILIES[0];
    let nat = NewServer::new(Forward::Nat, server).port(8080);
    let vips = ["192.0.2.10", "192.0.2.11"];
    let services = vips.map(|vip| bench.serve(Kind::Rr, (vip, 80), &[nat]).0);
    let from_client = |vip: &str, flags| Shape::tcp(flags).arriving(at(client, 1000), at(vip, 80));
    let reply = |flags| build_server_packet(&Shape::tcp(flags), at(server, 8080), at(client, 1000));
    bench.send(&from_client(vips[0], SYN));
    bench.send(&reply(SYN_ACK));
    bench.send(&from_client(vips[0], ACK));
    bench.send(&from_client(vips[0], FIN));
    let half_closed = bench.send(&from_client(vips[1], SYN));
    assert_eq!(half_closed.counted, [Reason::DropNatConflict]);
    bench.send(&reply(FIN));
    let outcome = bench.send(&from_client(vips[1], SYN));
    assert_eq!((outcome.verdict, outcome.counted), (Xdp::Tx, vec![]));
    let forwarded = bench.send(&reply(SYN_ACK)).frame;
    let tuple = weir_wire::Packet::parse(&forwarded)
        .unwrap()
        .five_tuple()
        .unwrap();
    assert_eq!(tuple.src.to_string(), vips[1]);
    let remaining_services: Vec<u32> = bench
        .plane
        .maps()
        .flows
        .walk()
        .map(|flow| flow.cold.service)
        .collect();
    assert_eq!(remaining_services, [services[1]; 2]);
    bench.assert_same_state();
}

#[test]
fn reverse_tuple_conflict_selects_another_nat_server() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let [vip, client, server, _] = FAMILIES[0];
    let conflicting = NewServer::new(Forward::Nat, server).port(8080);
    let other = NewServer::new(Forward::Nat, "10.0.0.6").port(8080);
    let [third, fourth] =
        ["10.0.0.7", "10.0.0.8"].map(|address| NewServer::new(Forward::Direct, address));
    bench.serve(Kind::Rr, ("192.0.2.11", 80), &[conflicting]);
    let servers = [conflicting, other, third, fourth];
    bench.serve(Kind::Rr, (vip, 80), &servers);
    for port in 1000..1064 {
        bench.send(&Shape::tcp(SYN).arriving(at(client, port), at("192.0.2.11", 80)));
        bench.send(&Shape::tcp(SYN).arriving(at(client, port), at(vip, 80)));
    }
    let flows: Vec<_> = bench.plane.maps().flows.walk().collect();
    let forward = |dest: u32| bench.plane.maps().dests.get(dest).unwrap().forward;
    for flow in &flows {
        let paired = flow.cold.peer != weir_abi::NO_INDEX;
        assert_eq!(paired, forward(flow.dest()) == Forward::Nat as u8);
    }
    assert!(
        flows.len() > 64 * 3,
        "too few entries, so not every conflict was resolved: {}",
        flows.len()
    );
    bench.assert_same_state();
}

#[test]
fn server_packets_that_match_no_flow_pass() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let [vip, client, server, _] = FAMILIES[0];
    bench.serve(
        Kind::Rr,
        (vip, 80),
        &[NewServer::new(Forward::Nat, server).port(8080)],
    );
    bench.send(&Shape::tcp(SYN).arriving(at(client, 1000), at(vip, 80)));
    for (name, src, dst) in [
        (
            "another port of the server",
            at(server, 8081),
            at(client, 1000),
        ),
        (
            "another port of the client",
            at(server, 8080),
            at(client, 1001),
        ),
        ("another client", at(server, 8080), at("198.51.100.8", 1000)),
    ] {
        let frame = build_server_packet(&Shape::tcp(SYN_ACK), src, dst);
        Case::new(name, frame)
            .passes(Reason::PassNotOurs)
            .check(&mut bench);
    }
    bench.assert_same_state();
}

#[test]
fn reply_without_known_next_hop_passes() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let [vip, client, server, _] = FAMILIES[0];
    bench.serve(Kind::Rr, (vip, 80), &[NewServer::new(Forward::Nat, server)]);
    bench.send(&Shape::tcp(SYN).arriving(at(client, 1000), at(vip, 80)));
    let reply = Shape::tcp(SYN_ACK);
    let outcome = bench.send(&build_server_packet(
        &reply,
        at(server, 80),
        at(client, 1000),
    ));
    assert_eq!(
        outcome.meta,
        Some(PacketMeta {
            ifindex: INGRESS,
            next_hop: None
        })
    );
    assert_eq!(outcome.counted, [Reason::PassToTc]);
    assert_eq!(
        outcome.frame,
        build_server_packet(&reply.forwarded(), at(vip, 80), at(client, 1000))
    );
    bench.assert_same_state();
}

#[test]
fn reply_with_ttl_1_is_dropped() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let [vip, client, server, _] = FAMILIES[0];
    bench.serve(Kind::Rr, (vip, 80), &[NewServer::new(Forward::Nat, server)]);
    bench.send(&Shape::tcp(SYN).arriving(at(client, 1000), at(vip, 80)));
    let expiring = Shape {
        ttl: 1,
        ..Shape::tcp(SYN_ACK)
    };
    let outcome = bench.send(&build_server_packet(
        &expiring,
        at(server, 80),
        at(client, 1000),
    ));
    assert_eq!(outcome.counted, [Reason::DropTtl]);
    bench.assert_same_state();
}

#[test]
fn server_reset_ends_the_flow() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.learn_clients();
    let [vip, client, server, _] = FAMILIES[0];
    bench.serve(
        Kind::Rr,
        (vip, 80),
        &[NewServer::new(Forward::Nat, server).hop(|hop| hop.flags |= HOP_READY)],
    );
    bench.send(&Shape::tcp(SYN).arriving(at(client, 1000), at(vip, 80)));
    assert_eq!(bench.plane.maps().live(1).unwrap().active, 1);
    bench.send(&build_server_packet(
        &Shape::tcp(RST),
        at(server, 80),
        at(client, 1000),
    ));
    let live = bench.plane.maps().live(1).unwrap();
    assert_eq!((live.active, live.inactive), (0, 1));
    assert_eq!(state_of(&bench), State::Close);
    bench.assert_same_state();
}
