//! Tests packets that the director cannot forward and quotes in an ICMP error.

use weir_abi::{Forward, Reason, Tunnel};
use weir_sched::Kind;
use weir_wire::Packet;

use crate::bench::{Bench, CLIENT_MAC, NewServer, Xdp};
use crate::route::{CLIENT4, SERVER4, SERVER6, VIP4, families};
use crate::tunnel::tunnel_server;
use crate::wire::{ACK, SYN, Shape, at};

/// Asserts that an ICMP error to the packet's sender quotes the packet.
#[track_caller]
fn assert_rejected(bench: &mut Bench, name: &str, frame: &[u8], reason: Reason) {
    let outcome = bench.send(frame);
    assert_eq!(outcome.counted, [reason], "{name}");
    assert_eq!(outcome.verdict, Xdp::Tx, "{name}");
    let (sent, reply) = (
        Packet::parse(frame).unwrap(),
        Packet::parse(&outcome.frame).unwrap(),
    );
    assert!(reply.has_valid_checksums(), "{name}");
    let (sent, reply) = (sent.ip().unwrap(), reply.ip().unwrap());
    assert_eq!(
        (reply.src(), reply.dst()),
        (sent.dst(), sent.src()),
        "{name}"
    );
    let quoted = reply.quoted().expect("parse the ICMP error");
    assert_eq!(
        (quoted.src(), quoted.ports()),
        (sent.src(), sent.ports()),
        "{name}"
    );
    assert_eq!(outcome.frame[..6], CLIENT_MAC, "{name}");
}

#[test]
fn expired_ttl_is_rejected() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for (family, vip, client, server) in families() {
        for forward in [
            Forward::Direct,
            Forward::Nat,
            Forward::L3dsr,
            Forward::Tunnel,
        ] {
            let server = match forward {
                Forward::Tunnel => tunnel_server(server, Tunnel::Ipip),
                _ => NewServer::new(forward, server),
            };
            let (port, _) = bench.serve_next(Kind::Rr, vip, &[server]);
            for ttl in [0, 1] {
                let shape = Shape {
                    ttl,
                    ..Shape::tcp(SYN)
                };
                let frame = shape.arriving(at(client, 2000), at(vip, port));
                assert_rejected(
                    &mut bench,
                    &format!("{forward:?} {family} ttl {ttl}"),
                    &frame,
                    Reason::DropTtl,
                );
            }
        }
    }
    bench.assert_same_state();
}

#[test]
fn packet_above_path_mtu_is_rejected() {
    static LONG: [u8; 1400] = [0xa5; 1400];
    let gue = |mtu: u16| tunnel_server(SERVER4, Tunnel::Gue).hop(move |hop| hop.mtu = mtu);
    let ipip = |mtu: u16| tunnel_server(SERVER6, Tunnel::Ipip).hop(move |hop| hop.mtu = mtu);
    let direct = |mtu: u16| NewServer::new(Forward::Direct, SERVER4).hop(move |hop| hop.mtu = mtu);
    let Some(mut bench) = Bench::open() else {
        return;
    };
    // The packet has 1440 bytes; GUE adds 20 + 8 + 4, IP in IPv6 adds 40.
    for (name, server, is_forwarded) in [
        ("direct exact", direct(1440), true),
        ("direct short", direct(1439), false),
        ("direct unknown", direct(0), true),
        ("gue exact", gue(1472), true),
        ("gue short", gue(1471), false),
        ("ipip exact", ipip(1480), true),
        ("ipip short", ipip(1479), false),
    ] {
        let to = at(VIP4, bench.serve_next(Kind::Rr, VIP4, &[server]).0);
        let syn = Shape::tcp(SYN).arriving(at(CLIENT4, 2000), to);
        assert_eq!(bench.send(&syn).verdict, Xdp::Tx, "{name}");
        let frame = Shape {
            payload: &LONG,
            ..Shape::tcp(ACK)
        }
        .arriving(at(CLIENT4, 2000), to);
        if is_forwarded {
            assert_eq!(bench.send(&frame).verdict, Xdp::Tx, "{name}");
        } else {
            assert_rejected(&mut bench, name, &frame, Reason::DropTooBig);
        }
    }
    bench.assert_same_state();
}
