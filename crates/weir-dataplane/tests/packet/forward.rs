//! Towards servers: every forwarding method, both families, TCP through its life and UDP.

use std::net::{IpAddr, SocketAddr};

use weir_abi::{Be16, DEST_LOCAL, Dest, Forward, HOP_READY, Reason, TUNNEL_CSUM, TUNNEL_REMCSUM, Tunnel};
use weir_flow::{Family, FlowKey, PacketMeta, Tuple};
use weir_sched::Kind;
use weir_wire::{Encapsulation, GueChecksum, IpBuilder, Packet};

use crate::bench::{Bench, CLIENT_MAC, INGRESS, NewServer, OTHER_DEVICE, Xdp, hop_macs};
use crate::support::SECRET;
use crate::wire::{ACK, Case, FIN, RST, SPOILT_BY, SYN, Shape, at, check_all};

const VIP4: &str = "192.0.2.10";
const VIP6: &str = "2001:db8::10";
const CLIENT4: &str = "198.51.100.7";
const CLIENT6: &str = "2001:db8:1::7";
const SERVER4: &str = "10.0.0.5";
const SERVER6: &str = "fd00::5";
const OUTER4: &str = "10.0.0.1";
const OUTER6: &str = "fd00::1";

/// TCP from SYN to RST with odd bits between, then UDP with and without checksum.
fn life() -> Vec<(&'static str, u16, Shape)> {
    let rich = Shape { tos: 0xb9, ip_options: true, payload: b"odd", tcp_options: &[2, 4, 5, 180], ..Shape::tcp(ACK) };
    vec![
        ("syn", 1000, Shape::tcp(SYN)),
        ("syn again", 1000, Shape::tcp(SYN)),
        ("ack", 1000, Shape::tcp(ACK)),
        ("options and data", 1000, rich),
        ("padded frame", 1000, Shape { padding: 6, ..Shape::tcp(ACK) }),
        ("wrong checksum", 1000, Shape { bad_checksum: true, ..Shape::tcp(ACK) }),
        ("ttl 2", 1000, Shape { ttl: 2, ..Shape::tcp(ACK) }),
        ("fin", 1000, Shape::tcp(FIN)),
        ("ack of fin", 1000, Shape::tcp(ACK)),
        ("syn and rst", 1001, Shape::tcp(SYN)),
        ("rst", 1001, Shape::tcp(RST)),
        ("syn after rst", 1001, Shape::tcp(SYN)),
        ("udp", 1002, Shape::udp()),
        ("udp again", 1002, Shape { tos: 1, ip_options: true, ..Shape::udp() }),
        ("udp without checksum", 1002, Shape { no_checksum: true, ..Shape::udp() }),
        ("udp with wrong checksum", 1003, Shape { bad_checksum: true, ..Shape::udp() }),
        ("udp without data", 1003, Shape { payload: b"", ..Shape::udp() }),
    ]
}

/// What one packet is sent from and to, and the server's row.
struct Ends {
    from: SocketAddr,
    to: SocketAddr,
    dest: u32,
}

/// Runs the life of flows through a service of one server; `expected` makes what must leave.
fn run(bench: &mut Bench, name: &str, ends: (&str, &str), server: NewServer, expected: impl Fn(&Shape, &Ends) -> Vec<u8>) {
    let (vip, client) = ends;
    let (port, dests) = bench.serve_next(Kind::Rr, vip, &[server]);
    let to = at(vip, port);
    for (step, port, shape) in life() {
        let ends = Ends { from: at(client, port), to, dest: dests[0] };
        let frame = shape.arriving(ends.from, to);
        Case::new(format!("{name}: {step}"), frame).sends(expected(&shape, &ends)).check(bench);
    }
}

fn families() -> [(&'static str, &'static str, &'static str, &'static str); 2] {
    [("v4", VIP4, CLIENT4, SERVER4), ("v6", VIP6, CLIENT6, SERVER6)]
}

#[test]
fn direct_changes_the_frame_alone() {
    let Some(mut bench) = Bench::open() else { return };
    for (family, vip, client, server) in families() {
        let row = NewServer::new(Forward::Direct, server);
        run(&mut bench, &format!("direct {family}"), (vip, client), row, |shape, ends| {
            shape.hopped().build(hop_macs(ends.dest), ends.from, ends.to)
        });
    }
    bench.settle();
}

#[test]
fn nat_rewrites_the_destination() {
    let Some(mut bench) = Bench::open() else { return };
    for (family, vip, client, server) in families() {
        for port in [0, 8080] {
            let row = NewServer::new(Forward::Nat, server).port(port);
            run(&mut bench, &format!("nat {family} port {port}"), (vip, client), row, |shape, ends| {
                let port = if port == 0 { ends.to.port() } else { port };
                shape.hopped().build(hop_macs(ends.dest), ends.from, at(server, port))
            });
        }
    }
    bench.settle();
}

#[test]
fn l3dsr_rewrites_the_address_and_marks() {
    let Some(mut bench) = Bench::open() else { return };
    for (family, vip, client, server) in families() {
        for dscp in [0u8, 1, 63] {
            // A given port is for checks only: the client's stays.
            let row = NewServer::new(Forward::L3dsr, server).port(8080).row(|row| row.dscp = dscp);
            run(&mut bench, &format!("l3dsr {family} dscp {dscp}"), (vip, client), row, |shape, ends| {
                let tos = if dscp == 0 { shape.tos } else { dscp << 2 | shape.tos & 3 };
                Shape { tos, ..shape.hopped() }.build(hop_macs(ends.dest), ends.from, at(server, ends.to.port()))
            });
        }
    }
    bench.settle();
}

/// The hash that picks outer ports and labels.
fn hash(shape: &Shape, from: SocketAddr, to: SocketAddr) -> u64 {
    FlowKey::new(SECRET).hash(&Tuple {
        src: from.ip().into(),
        dst: to.ip().into(),
        sport: from.port(),
        dport: to.port(),
        protocol: if shape.udp { 17 } else { 6 },
        family: if from.is_ipv4() { Family::V4 } else { Family::V6 },
    })
}

fn tunnel_out(shape: &Shape, ends: &Ends, server: &str, encapsulation: Encapsulation) -> Vec<u8> {
    let hash = hash(shape, ends.from, ends.to);
    let macs = hop_macs(ends.dest);
    let inside = |shape: Shape| shape.build(macs, ends.from, ends.to)[14..].to_vec();
    let carried = inside(Shape { padding: 0, ..shape.hopped() });
    // The outer checksum is made from the inner one, believed to be right.
    let inner = inside(Shape { padding: 0, bad_checksum: false, ..shape.hopped() });
    let encapsulation = match encapsulation {
        Encapsulation::Gue { dport, checksum, .. } => {
            Encapsulation::Gue { sport: 0xc000 | (hash & 0x3fff) as u16, dport, checksum }
        }
        other => other,
    };
    let server: IpAddr = server.parse().unwrap();
    let outer: IpAddr = if server.is_ipv4() { OUTER4 } else { OUTER6 }.parse().unwrap();
    let ip = match (outer, server) {
        (IpAddr::V4(outer), IpAddr::V4(server)) => IpBuilder::V4(Packet::ipv4(outer, server).dont_fragment()),
        (IpAddr::V6(outer), IpAddr::V6(server)) => {
            IpBuilder::V6(Packet::ipv6(outer, server).flow_label((hash >> 44) as u32))
        }
        mixed => panic!("{mixed:?}"),
    };
    let mut packet = ip.ttl(shape.ttl - 1).tos(shape.tos).encapsulate(encapsulation, &inner);
    let remote = matches!(encapsulation, Encapsulation::Gue { checksum: GueChecksum::Remote, .. });
    if remote {
        fill_udp(&mut packet, outer, server, shape.bad_checksum);
    }
    if !remote {
        packet.truncate(packet.len() - inner.len());
        packet.extend(carried);
    }
    let link = Packet::ethernet(macs.0.into(), macs.1.into());
    link.padding(shape.padding).ip_packet(&packet)
}

/// The outer checksum beside a deferred one, spoilt like the inner one that it is made from.
fn fill_udp(packet: &mut [u8], src: IpAddr, dst: IpAddr, spoilt: bool) {
    let at = if src.is_ipv4() { 20 } else { 40 };
    let datagram = &packet[at..];
    let pseudo = weir_wire::checksum::pseudo_header(src, dst, weir_wire::IpProtocol::UDP, datagram.len());
    let before = u16::from_be_bytes([datagram[6], datagram[7]]);
    assert_eq!(before, 0, "the builder leaves it out");
    let right = pseudo.bytes(datagram).checksum();
    let sum = if spoilt { weir_wire::checksum::update_u16(right, 0, SPOILT_BY) } else { right };
    packet[at + 6..at + 8].copy_from_slice(&weir_wire::checksum::udp_field(sum).to_be_bytes());
}

fn tunnelled(server: &str, tunnel: Tunnel) -> NewServer {
    let outer: IpAddr = if server.contains(':') { OUTER6 } else { OUTER4 }.parse().unwrap();
    NewServer::new(Forward::Tunnel, server).row(|row| {
        row.tunnel = tunnel as u8;
        row.tunnel_port = Be16::new(6080);
        row.tunnel_source = outer.into();
    })
}

fn tunnel(name: &str, tunnel: (Tunnel, u8), encapsulation: Encapsulation) {
    let Some(mut bench) = Bench::open() else { return };
    for (family, vip, client, _) in families() {
        for server in [SERVER4, SERVER6] {
            let row = tunnelled(server, tunnel.0).row(|row| row.tunnel_flags = tunnel.1);
            run(&mut bench, &format!("{name} {family} to {server}"), (vip, client), row, |shape, ends| {
                tunnel_out(shape, ends, server, encapsulation)
            });
        }
    }
    bench.settle();
}

#[test]
fn ipip_wraps_all_pairs_of_families() {
    tunnel("ipip", (Tunnel::Ipip, 0), Encapsulation::Ipip);
}

#[test]
fn gre_wraps_all_pairs_of_families() {
    for (name, flags) in [("gre", 0), ("gre with checksum", TUNNEL_CSUM)] {
        tunnel(name, (Tunnel::Gre, flags), Encapsulation::Gre { checksum: flags != 0 });
    }
}

#[test]
fn gue_wraps_all_pairs_of_families() {
    for (name, flags, checksum) in [
        ("gue", 0, GueChecksum::None),
        ("gue with checksum", TUNNEL_CSUM, GueChecksum::Full),
        ("gue with remote checksum", TUNNEL_REMCSUM, GueChecksum::Remote),
    ] {
        let gue = Encapsulation::Gue { sport: 0, dport: 6080, checksum };
        tunnel(name, (Tunnel::Gue, flags), gue);
    }
}

/// One server of this row for TCP port 80 of both VIPs, and a SYN's case.
fn single(bench: &mut Bench, server: NewServer) -> (u32, u32) {
    let vip = if server.address.is_ipv4() { VIP4 } else { VIP6 };
    let (service, dests) = bench.serve(Kind::Rr, (vip, 80), &[server]);
    (service, dests[0])
}

fn syn(name: &str, shape: Shape) -> Case {
    Case::new(name, shape.arriving(at(CLIENT4, 2000), at(VIP4, 80)))
}

#[test]
fn tags_follow_the_next_hop() {
    let Some(mut bench) = Bench::open() else { return };
    let tags: [&'static [u16]; 3] = [&[], &[7], &[7, 8]];
    for (hop_tag, leaving) in [
        (weir_abi::HOP_VLAN_KEEP, None),
        (0, Some(&[] as &'static [u16])),
        (9, Some(&[9u16] as &'static [u16])),
    ] {
        for forward in [Forward::Direct, Forward::Nat, Forward::L3dsr] {
            let server = NewServer::new(forward, SERVER4).hop(|hop| hop.vlan = hop_tag);
            let (port, dests) = bench.serve_next(Kind::Rr, VIP4, &[server]);
            for arriving in tags {
                let shape = Shape { tags: arriving, payload: b"tagged", ..Shape::tcp(SYN) };
                let out = Shape { tags: leaving.unwrap_or(arriving), ..shape.hopped() };
                let to = if forward == Forward::Direct { VIP4 } else { SERVER4 };
                let out = out.build(hop_macs(dests[0]), at(CLIENT4, 2000), at(to, port));
                let name = format!("{} tags, hop tag {hop_tag}, {forward:?}", arriving.len());
                Case::new(name, shape.arriving(at(CLIENT4, 2000), at(VIP4, port))).sends(out).check(&mut bench);
            }
        }
    }
    bench.settle();
}

#[test]
fn a_tunnel_keeps_tags_outside() {
    let Some(mut bench) = Bench::open() else { return };
    single(&mut bench, tunnelled(SERVER4, Tunnel::Ipip));
    let plain = Shape::tcp(SYN);
    let ends = Ends { from: at(CLIENT4, 2000), to: at(VIP4, 80), dest: 1 };
    let out = tunnel_out(&plain, &ends, SERVER4, Encapsulation::Ipip);
    let mut tagged = out[..12].to_vec();
    tagged.extend([0x81, 0, 0, 7]);
    tagged.extend(&out[12..]);
    let case = syn("tagged ipip", Shape { tags: &[7], ..plain }).sends(tagged);
    case.check(&mut bench);
}

#[test]
fn another_device_is_a_redirect() {
    let Some(mut bench) = Bench::open() else { return };
    single(&mut bench, NewServer::new(Forward::Direct, SERVER4).hop(|hop| hop.ifindex = OTHER_DEVICE));
    let shape = Shape::tcp(SYN);
    let out = shape.hopped().build(hop_macs(1), at(CLIENT4, 2000), at(VIP4, 80));
    let case = Case { verdict: Xdp::Redirect, ..syn("redirect", shape).sends(out) };
    case.check(&mut bench);
}

#[test]
fn what_xdp_cannot_send_goes_up_finished() {
    for (forward, flags) in [(Forward::Direct, 0), (Forward::Nat, HOP_READY), (Forward::L3dsr, 0)] {
        let Some(mut bench) = Bench::open() else { return };
        single(&mut bench, NewServer::new(forward, SERVER4).hop(|hop| {
            hop.flags = flags;
            hop.ifindex = OTHER_DEVICE;
        }));
        let shape = Shape::tcp(SYN);
        let outcome = bench.send(&shape.arriving(at(CLIENT4, 2000), at(VIP4, 80)));
        let direct = forward == Forward::Direct;
        let next_hop = direct.then(|| SERVER4.parse::<IpAddr>().unwrap().into());
        assert_eq!(outcome.meta, Some(PacketMeta { ifindex: OTHER_DEVICE, next_hop }));
        assert_eq!((outcome.verdict, outcome.counted), (Xdp::Pass, vec![Reason::PassToTc]));
        // The frame's addresses stay: the tc program writes them.
        let to = if direct { VIP4 } else { SERVER4 };
        assert_eq!(outcome.frame, shape.hopped().arriving(at(CLIENT4, 2000), at(to, 80)));
    }
}

#[test]
fn without_a_next_hop_nothing_is_sent() {
    for forward in [Forward::Direct, Forward::Nat, Forward::Tunnel, Forward::L3dsr] {
        let Some(mut bench) = Bench::open() else { return };
        single(&mut bench, NewServer::new(forward, SERVER4).hop(|hop| hop.ifindex = 0));
        let case = syn("no route", Shape::tcp(SYN)).drops(Reason::DropNoRoute);
        check_all(&mut bench, &[case]);
    }
}

#[test]
fn a_server_on_the_director_gets_its_packets_from_the_stack() {
    let local = |dest: &mut Dest| dest.flags |= DEST_LOCAL;
    for (forward, server, rewritten) in [
        (Forward::Direct, VIP4, false),
        (Forward::Nat, SERVER4, true),
        (Forward::Nat, VIP4, false),
    ] {
        let Some(mut bench) = Bench::open() else { return };
        single(&mut bench, NewServer::new(forward, server).port(8080).row(local));
        let shape = Shape { ttl: 1, ..Shape::tcp(SYN) };
        let mut case = syn("local", shape).passes(Reason::PassLocalServer);
        if rewritten {
            case = case.sends(shape.arriving(at(CLIENT4, 2000), at(SERVER4, 8080)));
        }
        check_all(&mut bench, &[case]);
    }
}

/// The packet goes back as the quote of an ICMP error.
#[track_caller]
fn refused(bench: &mut Bench, name: &str, frame: &[u8], reason: Reason) {
    let outcome = bench.send(frame);
    assert_eq!(outcome.counted, [reason], "{name}");
    assert_eq!(outcome.verdict, Xdp::Tx, "{name}");
    let (sent, back) = (Packet::parse(frame).unwrap(), Packet::parse(&outcome.frame).unwrap());
    assert!(back.checksums_valid(), "{name}");
    let (sent, back) = (sent.ip().unwrap(), back.ip().unwrap());
    assert_eq!((back.src(), back.dst()), (sent.dst(), sent.src()), "{name}");
    let quoted = back.quoted().expect("an ICMP error");
    assert_eq!((quoted.src(), quoted.ports()), (sent.src(), sent.ports()), "{name}");
    assert_eq!(outcome.frame[..6], CLIENT_MAC, "{name}");
}

#[test]
fn a_used_up_ttl_is_refused() {
    let Some(mut bench) = Bench::open() else { return };
    for (family, vip, client, server) in families() {
        for forward in [Forward::Direct, Forward::Nat, Forward::L3dsr, Forward::Tunnel] {
            let server = match forward {
                Forward::Tunnel => tunnelled(server, Tunnel::Ipip),
                _ => NewServer::new(forward, server),
            };
            let (port, _) = bench.serve_next(Kind::Rr, vip, &[server]);
            for ttl in [0, 1] {
                let shape = Shape { ttl, ..Shape::tcp(SYN) };
                let frame = shape.arriving(at(client, 2000), at(vip, port));
                refused(&mut bench, &format!("{forward:?} {family} ttl {ttl}"), &frame, Reason::DropTtl);
            }
        }
    }
    bench.settle();
}

#[test]
fn what_does_not_fit_the_way_is_refused() {
    static LONG: [u8; 1400] = [0xa5; 1400];
    let gue = |mtu: u16| tunnelled(SERVER4, Tunnel::Gue).hop(move |hop| hop.mtu = mtu);
    let ipip = |mtu: u16| tunnelled(SERVER6, Tunnel::Ipip).hop(move |hop| hop.mtu = mtu);
    let direct = |mtu: u16| NewServer::new(Forward::Direct, SERVER4).hop(move |hop| hop.mtu = mtu);
    let Some(mut bench) = Bench::open() else { return };
    // The packet has 1440 bytes; GUE adds 20 + 8 + 4, IP in IPv6 adds 40.
    for (name, server, fits) in [
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
        let frame = Shape { payload: &LONG, ..Shape::tcp(ACK) }.arriving(at(CLIENT4, 2000), to);
        if fits {
            assert_eq!(bench.send(&frame).verdict, Xdp::Tx, "{name}");
        } else {
            refused(&mut bench, name, &frame, Reason::DropTooBig);
        }
    }
    bench.settle();
}

#[test]
fn every_flow_keeps_its_next_hop() {
    let Some(mut bench) = Bench::open() else { return };
    let (_, dest) = single(&mut bench, NewServer::new(Forward::Direct, SERVER4));
    for slot in 0..weir_abi::HOPS_PER_DEST {
        let hop = weir_abi::HopParts {
            ifindex: INGRESS,
            flags: HOP_READY | weir_abi::HOP_SEND,
            dmac: [2, 0, 0, 9, 9, slot as u8],
            vlan: weir_abi::HOP_VLAN_KEEP,
            ..weir_abi::HopParts::default()
        };
        bench.plane.maps().set_hop(dest, slot, &hop.into()).unwrap();
        bench.model.config_mut().hops.insert((dest, slot), hop);
    }
    let mut used = std::collections::BTreeSet::new();
    for port in 3000..3064 {
        let mut hops = std::collections::BTreeSet::new();
        for flags in [SYN, ACK, FIN] {
            let frame = Shape::tcp(flags).arriving(at(CLIENT4, port), at(VIP4, 80));
            hops.insert(bench.send(&frame).frame[5]);
        }
        assert_eq!(hops.len(), 1, "port {port}");
        used.extend(hops);
    }
    assert_eq!(used.len(), weir_abi::HOPS_PER_DEST as usize, "all of them are used");
    bench.settle();
}
