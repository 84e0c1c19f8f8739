//! Tests packets to servers through every kind of tunnel, with every checksum and combination of address families.

use std::net::{IpAddr, SocketAddr};

use weir_abi::{Be16, Forward, TUNNEL_CSUM, TUNNEL_REMCSUM, Tunnel};
use weir_flow::{Family, FlowHashKey, Tuple};
use weir_wire::{Encapsulation, GueChecksum, IpBuilder, Packet};

use crate::bench::{Bench, NewServer, next_hop_macs};
use crate::route::{CLIENT4, Ends, OUTER4, OUTER6, SERVER4, SERVER6, VIP4, families, run_flow};
use crate::support::SECRET;
use crate::transmit::{add_single_server, case};
use crate::wire::{SYN, Shape, WRONG_CHECKSUM_DIFFERENCE, at};

/// Returns the hash that selects outer ports and flow labels.
fn hash(shape: &Shape, src: SocketAddr, dst: SocketAddr) -> u64 {
    FlowHashKey::new(SECRET).hash(&Tuple {
        src: src.ip().into(),
        dst: dst.ip().into(),
        sport: src.port(),
        dport: dst.port(),
        protocol: if shape.udp { 17 } else { 6 },
        family: if src.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        },
    })
}

fn expected_tunnel_packet(
    shape: &Shape,
    ends: &Ends,
    server: &str,
    encapsulation: Encapsulation,
) -> Vec<u8> {
    let hash = hash(shape, ends.src, ends.dst);
    let macs = next_hop_macs(ends.dest);
    let ip_packet = |shape: Shape| shape.build(macs, ends.src, ends.dst)[14..].to_vec();
    let expected_inner = ip_packet(Shape {
        padding: 0,
        ..shape.forwarded()
    });
    // The outer checksum is computed from the inner checksum, which is assumed to be correct.
    let inner = ip_packet(Shape {
        padding: 0,
        bad_checksum: false,
        ..shape.forwarded()
    });
    let encapsulation = match encapsulation {
        Encapsulation::Gue {
            dport, checksum, ..
        } => Encapsulation::Gue {
            sport: 0xc000 | (hash & 0x3fff) as u16,
            dport,
            checksum,
        },
        other => other,
    };
    let server: IpAddr = server.parse().unwrap();
    let outer: IpAddr = if server.is_ipv4() { OUTER4 } else { OUTER6 }
        .parse()
        .unwrap();
    let ip = match (outer, server) {
        (IpAddr::V4(outer), IpAddr::V4(server)) => {
            IpBuilder::V4(Packet::ipv4(outer, server).dont_fragment())
        }
        (IpAddr::V6(outer), IpAddr::V6(server)) => {
            IpBuilder::V6(Packet::ipv6(outer, server).flow_label((hash >> 44) as u32))
        }
        addresses => panic!("{addresses:?}"),
    };
    let mut packet = ip
        .ttl(shape.ttl - 1)
        .tos(shape.tos)
        .encapsulate(encapsulation, &inner);
    let remote = matches!(
        encapsulation,
        Encapsulation::Gue {
            checksum: GueChecksum::Remote,
            ..
        }
    );
    if remote {
        fill_outer_checksum(&mut packet, outer, server, shape.bad_checksum);
    }
    if !remote {
        packet.truncate(packet.len() - inner.len());
        packet.extend(expected_inner);
    }
    let link = Packet::ethernet(macs.0.into(), macs.1.into());
    link.padding(shape.padding).ip_packet(&packet)
}

/// Fills in the outer checksum. If the inner checksum is wrong, the outer checksum, which is computed from it, is wrong
/// by the same amount.
fn fill_outer_checksum(packet: &mut [u8], src: IpAddr, dst: IpAddr, bad_checksum: bool) {
    let udp = if src.is_ipv4() { 20 } else { 40 };
    packet[udp + 6..udp + 8].fill(0);
    let datagram = &packet[udp..];
    let pseudo =
        weir_wire::checksum::pseudo_header(src, dst, weir_wire::IpProtocol::UDP, datagram.len());
    let correct = pseudo.bytes(datagram).checksum();
    let sum = if bad_checksum {
        weir_wire::checksum::update_u16(correct, 0, WRONG_CHECKSUM_DIFFERENCE)
    } else {
        correct
    };
    packet[udp + 6..udp + 8]
        .copy_from_slice(&weir_wire::checksum::udp_checksum_field(sum).to_be_bytes());
}

pub(crate) fn tunnel_server(server: &str, tunnel: Tunnel) -> NewServer {
    let outer: IpAddr = if server.contains(':') { OUTER6 } else { OUTER4 }
        .parse()
        .unwrap();
    NewServer::new(Forward::Tunnel, server).row(|row| {
        row.tunnel = tunnel as u8;
        row.tunnel_port = Be16::new(6080);
        row.tunnel_source = outer.into();
    })
}

fn check_tunnel(name: &str, tunnel: (Tunnel, u8), encapsulation: Encapsulation) {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for (family, vip, client, _) in families() {
        for server in [SERVER4, SERVER6] {
            let row = tunnel_server(server, tunnel.0).row(|row| row.tunnel_flags = tunnel.1);
            run_flow(
                &mut bench,
                &format!("{name} {family} to {server}"),
                (vip, client),
                row,
                |shape, ends| expected_tunnel_packet(shape, ends, server, encapsulation),
            );
        }
    }
    bench.assert_same_state();
}

#[test]
fn ipip_encapsulates_all_pairs_of_families() {
    check_tunnel("ipip", (Tunnel::Ipip, 0), Encapsulation::Ipip);
}

#[test]
fn gre_encapsulates_all_pairs_of_families() {
    for (name, flags) in [("gre", 0), ("gre with checksum", TUNNEL_CSUM)] {
        check_tunnel(
            name,
            (Tunnel::Gre, flags),
            Encapsulation::Gre {
                checksum: flags != 0,
            },
        );
    }
}

#[test]
fn gue_encapsulates_all_pairs_of_families() {
    for (name, flags, checksum) in [
        ("gue", 0, GueChecksum::None),
        ("gue with checksum", TUNNEL_CSUM, GueChecksum::Full),
        (
            "gue with remote checksum",
            TUNNEL_REMCSUM,
            GueChecksum::Remote,
        ),
    ] {
        let gue = Encapsulation::Gue {
            sport: 0,
            dport: 6080,
            checksum,
        };
        check_tunnel(name, (Tunnel::Gue, flags), gue);
    }
}

#[test]
fn tunnel_packet_keeps_the_vlan_tag() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    add_single_server(&mut bench, tunnel_server(SERVER4, Tunnel::Ipip));
    let plain = Shape::tcp(SYN);
    let ends = Ends {
        src: at(CLIENT4, 2000),
        dst: at(VIP4, 80),
        dest: 1,
    };
    let out = expected_tunnel_packet(&plain, &ends, SERVER4, Encapsulation::Ipip);
    let mut tagged = out[..12].to_vec();
    tagged.extend([0x81, 0, 0, 7]);
    tagged.extend(&out[12..]);
    let case = case(
        "tagged ipip",
        Shape {
            tags: &[7],
            ..plain
        },
    )
    .sends(tagged);
    case.check(&mut bench);
}
