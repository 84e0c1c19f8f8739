//! Sends all packets of a flow, from its start to its end, through a service with one server.
//!
//! The tests of every forwarding method use it.

use std::net::SocketAddr;

use weir_sched::Kind;

use crate::bench::{Bench, NewServer};
use crate::wire::{ACK, Case, FIN, RST, SYN, Shape, at};

pub(crate) const VIP4: &str = "192.0.2.10";
pub(crate) const VIP6: &str = "2001:db8::10";
pub(crate) const CLIENT4: &str = "198.51.100.7";
pub(crate) const CLIENT6: &str = "2001:db8:1::7";
pub(crate) const SERVER4: &str = "10.0.0.5";
pub(crate) const SERVER6: &str = "fd00::5";
pub(crate) const OUTER4: &str = "10.0.0.1";
pub(crate) const OUTER6: &str = "fd00::1";

/// Returns TCP packets from SYN to RST with unusual flags in between, then UDP packets with and without a checksum;
/// each as step, client port, packet.
pub(crate) fn flow_packets() -> Vec<(&'static str, u16, Shape)> {
    let (ack, udp) = (Shape::tcp(ACK), Shape::udp());
    let with_options = Shape {
        tos: 0xb9,
        ip_options: true,
        payload: b"odd",
        tcp_options: &[2, 4, 5, 180],
        ..ack
    };
    let with_change = |shape: Shape, change: fn(&mut Shape)| {
        let mut shape = shape;
        change(&mut shape);
        shape
    };
    let set_tos_and_options = |shape: &mut Shape| (shape.tos, shape.ip_options) = (1, true);
    vec![
        ("syn", 1000, Shape::tcp(SYN)),
        ("syn again", 1000, Shape::tcp(SYN)),
        ("ack", 1000, ack),
        ("options and data", 1000, with_options),
        (
            "padded frame",
            1000,
            with_change(ack, |shape| shape.padding = 6),
        ),
        (
            "wrong checksum",
            1000,
            with_change(ack, |shape| shape.bad_checksum = true),
        ),
        ("ttl 2", 1000, with_change(ack, |shape| shape.ttl = 2)),
        ("fin", 1000, Shape::tcp(FIN)),
        ("ack of fin", 1000, ack),
        ("syn and rst", 1001, Shape::tcp(SYN)),
        ("rst", 1001, Shape::tcp(RST)),
        ("syn after rst", 1001, Shape::tcp(SYN)),
        ("udp", 1002, udp),
        ("udp again", 1002, with_change(udp, set_tos_and_options)),
        (
            "no checksum",
            1002,
            with_change(udp, |shape| shape.no_checksum = true),
        ),
        (
            "wrong checksum",
            1003,
            with_change(udp, |shape| shape.bad_checksum = true),
        ),
        (
            "no data",
            1003,
            with_change(udp, |shape| shape.payload = b""),
        ),
    ]
}

/// Source and destination of one packet, and the server's row.
pub(crate) struct Ends {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) dest: u32,
}

/// Sends the packets of flows through a service with one server; `expected` builds the packet that must leave.
pub(crate) fn run_flow(
    bench: &mut Bench,
    name: &str,
    ends: (&str, &str),
    server: NewServer,
    expected: impl Fn(&Shape, &Ends) -> Vec<u8>,
) {
    let (vip, client) = ends;
    let (port, dests) = bench.serve_next(Kind::Rr, vip, &[server]);
    let dst = at(vip, port);
    for (step, port, shape) in flow_packets() {
        let ends = Ends {
            src: at(client, port),
            dst,
            dest: dests[0],
        };
        let frame = shape.arriving(ends.src, dst);
        Case::new(format!("{name}: {step}"), frame)
            .sends(expected(&shape, &ends))
            .check(bench);
    }
}

pub(crate) fn families() -> [(&'static str, &'static str, &'static str, &'static str); 2] {
    [
        ("v4", VIP4, CLIENT4, SERVER4),
        ("v6", VIP6, CLIENT6, SERVER6),
    ]
}
