//! Tests the packets that clients receive after their server was removed with `on_remove = "reset"`.

use std::net::SocketAddr;

use weir_abi::{DEST_LIVE, DEST_RESET, FLOW_ACTIVE, Forward, Reason, State, Tunnel};
use weir_sched::Kind;
use weir_wire::{Packet, TcpFlags};

use crate::bench::{Bench, CLIENT_MAC, DIRECTOR_MAC, NewServer, Xdp};
use crate::route::{CLIENT4, SERVER4, VIP4, families};
use crate::tunnel::tunnel_server;
use crate::wire::{ACK, Case, FIN, RST, SYN, Shape, at};

const DATA: &[u8] = b"three words of data";

/// Returns a segment with these sequence numbers.
fn segment(ends: (SocketAddr, SocketAddr), flags: TcpFlags, seq: u32, ack: u32) -> Vec<u8> {
    let link = Packet::ethernet(CLIENT_MAC.into(), DIRECTOR_MAC.into());
    let tcp = link
        .ip(ends.0.ip(), ends.1.ip())
        .tcp(ends.0.port(), ends.1.port())
        .options(&[1, 1, 1, 1]);
    tcp.flags(flags).seq(seq).ack_no(ack).payload(DATA).build()
}

/// Starts a flow to a server, and then replaces the server. Returns the service's port and the new server's row.
fn replace_server(bench: &mut Bench, server: NewServer, vip: &str, first: &[&[u8]]) -> (u16, u32) {
    let (service, dests) = bench.serve(Kind::Rr, (vip, 80), &[server]);
    for frame in first {
        assert_eq!(bench.send(frame).verdict, Xdp::Tx);
    }
    bench.remove(service, dests[0], DEST_LIVE | DEST_RESET);
    // For the planner, this is a different server; for packets, it has the same address.
    let new_server = NewServer {
        address: "10.99.0.1".parse().unwrap(),
        ..server
    };
    (80, bench.add(service, new_server))
}

#[track_caller]
fn assert_reset(bench: &mut Bench, name: &str, frame: &[u8], seq: u32, ack: Option<u32>) {
    let outcome = bench.send(frame);
    assert_eq!(outcome.counted, [Reason::RejectRemoved], "{name}");
    assert_eq!(outcome.verdict, Xdp::Tx, "{name}");
    let (sent, reply) = (
        Packet::parse(frame).unwrap(),
        Packet::parse(&outcome.frame).unwrap(),
    );
    assert!(reply.has_valid_checksums(), "{name}");
    let (sent, reply) = (sent.five_tuple().unwrap(), reply);
    let tuple = reply.five_tuple().unwrap();
    assert_eq!(
        (tuple.src, tuple.sport, tuple.dst, tuple.dport),
        (sent.dst, sent.dport, sent.src, sent.sport),
        "{name}"
    );
    let tcp = reply.tcp().unwrap();
    let flags = match ack {
        Some(_) => TcpFlags::RST | TcpFlags::ACK,
        None => TcpFlags::RST,
    };
    assert_eq!(
        (tcp.flags, tcp.seq, tcp.ack),
        (flags, seq, ack.unwrap_or(0)),
        "{name}"
    );
    assert_eq!(outcome.frame[..6], CLIENT_MAC, "{name}");
}

fn servers(server: &str) -> [NewServer; 4] {
    [
        NewServer::new(Forward::Direct, server),
        NewServer::new(Forward::Nat, server).port(8080),
        NewServer::new(Forward::L3dsr, server),
        tunnel_server(server, Tunnel::Ipip),
    ]
}

#[test]
fn every_segment_except_a_reset_gets_a_reset() {
    for (family, vip, client, server) in families() {
        for server in servers(server) {
            let Some(mut bench) = Bench::open() else {
                return;
            };
            let name = |step: &str| format!("{:?} {family}: {step}", server.row.forward);
            let ends = (at(client, 1000), at(vip, 80));
            let syn = segment(ends, SYN, 100, 0);
            let (port, other) = replace_server(&mut bench, server, vip, &[&syn]);
            assert_eq!(port, ends.1.port());
            let data = DATA.len() as u32;
            for (step, flags, expected) in [
                ("retransmitted syn", SYN, (0, Some(101 + data))),
                ("data", ACK, (7777, None)),
                ("data again", ACK, (7777, None)),
                ("fin", FIN, (7777, None)),
                ("fin alone", TcpFlags::FIN, (0, Some(101 + data))),
                ("no flags", TcpFlags::NONE, (0, Some(100 + data))),
            ] {
                let frame = segment(ends, flags, 100, 7777);
                assert_reset(&mut bench, &name(step), &frame, expected.0, expected.1);
            }
            let frame = segment(ends, RST, 100, 0);
            Case::new(name("no reply to a reset"), frame)
                .drops(Reason::DropRemoved)
                .check(&mut bench);
            let flow = bench
                .plane
                .maps()
                .flows
                .walk()
                .find(|flow| flow.meta().kind == 1);
            let meta = flow.expect("find the flow entry").meta();
            assert_eq!(meta.state, State::Close as u8, "{}", name("state"));
            assert_eq!(meta.flags & FLOW_ACTIVE, 0, "{}", name("inactive"));
            bench.assert_same_state();
            assert_eq!(bench.send(&syn).counted, [], "{}", name("new flow"));
            assert_eq!(bench.plane.maps().live(other).unwrap().total, 1);
            bench.assert_same_state();
        }
    }
}

#[test]
fn datagrams_get_port_unreachable() {
    for (family, vip, client, server) in families() {
        for server in servers(server) {
            let Some(mut bench) = Bench::open() else {
                return;
            };
            let name = format!("{:?} {family}", server.row.forward);
            let frame = Shape::udp().arriving(at(client, 1000), at(vip, 80));
            let (_, other) = replace_server(&mut bench, server, vip, &[&frame]);
            for _ in 0..2 {
                let outcome = bench.send(&frame);
                assert_eq!(outcome.counted, [Reason::RejectRemoved], "{name}");
                assert_eq!(outcome.verdict, Xdp::Tx, "{name}");
                let reply = Packet::parse(&outcome.frame).unwrap();
                assert!(reply.has_valid_checksums(), "{name}");
                let quoted = reply.quoted().expect("parse the ICMP error");
                assert_eq!(quoted.ports(), Some((1000, 80)), "{name}");
            }
            bench.assert_same_state();
            // After the flow's entry has expired, the client is assigned to a different server.
            bench.change_settings(|settings| settings.timeouts[State::Close as usize] = u32::MAX);
            assert_eq!(bench.send(&frame).counted, [], "{name}");
            assert_eq!(bench.plane.maps().live(other).unwrap().total, 1, "{name}");
            bench.assert_same_state();
        }
    }
}

#[test]
fn resets_are_limited_by_the_reject_budget() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let ends = (at(CLIENT4, 1000), at(VIP4, 80));
    let server = NewServer::new(Forward::Direct, SERVER4);
    replace_server(&mut bench, server, VIP4, &[&segment(ends, SYN, 1, 0)]);
    bench.change_settings(|settings| settings.reject_budget = 0);
    Case::new("over the budget", segment(ends, ACK, 1, 2))
        .drops(Reason::DropRemoved)
        .check(&mut bench);
    bench.change_settings(|settings| settings.reject_budget = u32::MAX);
    assert_reset(
        &mut bench,
        "within the budget",
        &segment(ends, ACK, 1, 2),
        2,
        None,
    );
    bench.assert_same_state();
}

#[test]
fn options_are_not_copied_to_the_reply() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for (family, vip, client, server) in families() {
        let server = NewServer::new(Forward::Direct, server);
        let ends = (at(client, 1000), at(vip, 80));
        replace_server(&mut bench, server, vip, &[&segment(ends, SYN, 1, 0)]);
        let shape = Shape {
            ip_options: true,
            tags: &[5],
            padding: 6,
            payload: b"odd",
            tos: 0xb8,
            ..Shape::tcp(ACK)
        };
        let outcome = bench.send(&shape.arriving(ends.0, ends.1));
        assert_eq!(outcome.counted, [Reason::RejectRemoved], "{family}");
        let header = if ends.0.is_ipv4() { 20 } else { 40 };
        assert_eq!(outcome.frame.len(), 18 + header + 20, "{family}");
    }
    bench.assert_same_state();
}
