//! Tests the last step of packet processing, which sends a packet to its next hop or passes it on.
//!
//! The cases are VLAN tags, devices, the path to the tc program, and servers on the director itself.

use std::net::IpAddr;

use weir_abi::{DEST_LOCAL, Dest, Forward, HOP_READY, Reason};
use weir_flow::PacketMeta;
use weir_sched::Kind;

use crate::bench::{Bench, INGRESS, NewServer, OTHER_DEVICE, Xdp, next_hop_macs};
use crate::route::{CLIENT4, SERVER4, VIP4, VIP6};
use crate::wire::{ACK, Case, FIN, SYN, Shape, at, check_all};

/// Adds a service with one server on port 80 of the VIP of the server's family. Returns the service and the server.
pub(crate) fn add_single_server(bench: &mut Bench, server: NewServer) -> (u32, u32) {
    let vip = if server.address.is_ipv4() { VIP4 } else { VIP6 };
    let (service, dests) = bench.serve(Kind::Rr, (vip, 80), &[server]);
    (service, dests[0])
}

/// Returns a case with a packet from the IPv4 client to port 80 of the IPv4 VIP.
pub(crate) fn case(name: &str, shape: Shape) -> Case {
    Case::new(name, shape.arriving(at(CLIENT4, 2000), at(VIP4, 80)))
}

#[test]
fn vlan_tags_follow_the_next_hop() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let tags: [&'static [u16]; 3] = [&[], &[7], &[7, 8]];
    for (hop_tag, tags_out) in [
        (weir_abi::HOP_VLAN_KEEP, None),
        (0, Some(&[] as &'static [u16])),
        (9, Some(&[9u16] as &'static [u16])),
    ] {
        for forward in [Forward::Direct, Forward::Nat, Forward::L3dsr] {
            let server = NewServer::new(forward, SERVER4).hop(|hop| hop.vlan = hop_tag);
            let (port, dests) = bench.serve_next(Kind::Rr, VIP4, &[server]);
            for tags_in in tags {
                let shape = Shape {
                    tags: tags_in,
                    payload: b"tagged",
                    ..Shape::tcp(SYN)
                };
                let out = Shape {
                    tags: tags_out.unwrap_or(tags_in),
                    ..shape.forwarded()
                };
                let dst = if forward == Forward::Direct {
                    VIP4
                } else {
                    SERVER4
                };
                let out = out.build(next_hop_macs(dests[0]), at(CLIENT4, 2000), at(dst, port));
                let name = format!("{} tags, hop tag {hop_tag}, {forward:?}", tags_in.len());
                Case::new(name, shape.arriving(at(CLIENT4, 2000), at(VIP4, port)))
                    .sends(out)
                    .check(&mut bench);
            }
        }
    }
    bench.assert_same_state();
}

#[test]
fn packets_to_another_device_are_redirected() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    add_single_server(
        &mut bench,
        NewServer::new(Forward::Direct, SERVER4).hop(|hop| hop.ifindex = OTHER_DEVICE),
    );
    let shape = Shape::tcp(SYN);
    let out = shape
        .forwarded()
        .build(next_hop_macs(1), at(CLIENT4, 2000), at(VIP4, 80));
    let case = Case {
        verdict: Xdp::Redirect,
        ..case("redirect", shape).sends(out)
    };
    case.check(&mut bench);
}

#[test]
fn packets_that_xdp_cannot_send_pass_with_complete_checksums() {
    for (forward, flags) in [
        (Forward::Direct, 0),
        (Forward::Nat, HOP_READY),
        (Forward::L3dsr, 0),
    ] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        add_single_server(
            &mut bench,
            NewServer::new(forward, SERVER4).hop(|hop| {
                hop.flags = flags;
                hop.ifindex = OTHER_DEVICE;
            }),
        );
        let shape = Shape::tcp(SYN);
        let outcome = bench.send(&shape.arriving(at(CLIENT4, 2000), at(VIP4, 80)));
        let direct = forward == Forward::Direct;
        let next_hop = direct.then(|| SERVER4.parse::<IpAddr>().unwrap().into());
        assert_eq!(
            outcome.meta,
            Some(PacketMeta {
                ifindex: OTHER_DEVICE,
                next_hop
            })
        );
        assert_eq!(
            (outcome.verdict, outcome.counted),
            (Xdp::Pass, vec![Reason::PassToTc])
        );
        // The MAC addresses are unchanged: the kernel writes them when the tc program calls bpf_redirect_neigh().
        let dst = if direct { VIP4 } else { SERVER4 };
        assert_eq!(
            outcome.frame,
            shape.forwarded().arriving(at(CLIENT4, 2000), at(dst, 80))
        );
    }
}

#[test]
fn no_packet_is_sent_without_a_next_hop() {
    for forward in [
        Forward::Direct,
        Forward::Nat,
        Forward::Tunnel,
        Forward::L3dsr,
    ] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        add_single_server(
            &mut bench,
            NewServer::new(forward, SERVER4).hop(|hop| hop.ifindex = 0),
        );
        let case = case("no route", Shape::tcp(SYN)).drops(Reason::DropNoRoute);
        check_all(&mut bench, &[case]);
    }
}

#[test]
fn local_server_receives_packets_from_the_stack() {
    let local = |dest: &mut Dest| dest.flags |= DEST_LOCAL;
    for (forward, server, rewritten) in [
        (Forward::Direct, VIP4, false),
        (Forward::Nat, SERVER4, true),
        (Forward::Nat, VIP4, false),
    ] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        add_single_server(
            &mut bench,
            NewServer::new(forward, server).port(8080).row(local),
        );
        let shape = Shape {
            ttl: 1,
            ..Shape::tcp(SYN)
        };
        let mut case = case("local", shape).passes(Reason::PassLocalServer);
        if rewritten {
            case = case.sends(shape.arriving(at(CLIENT4, 2000), at(SERVER4, 8080)));
        }
        check_all(&mut bench, &[case]);
    }
}

#[test]
fn every_flow_keeps_its_next_hop() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (_, dest) = add_single_server(&mut bench, NewServer::new(Forward::Direct, SERVER4));
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
    let mut used_hops = std::collections::BTreeSet::new();
    for port in 3000..3064 {
        let mut hops = std::collections::BTreeSet::new();
        for flags in [SYN, ACK, FIN] {
            let frame = Shape::tcp(flags).arriving(at(CLIENT4, port), at(VIP4, 80));
            hops.insert(bench.send(&frame).frame[5]);
        }
        assert_eq!(hops.len(), 1, "port {port}");
        used_hops.extend(hops);
    }
    assert_eq!(
        used_hops.len(),
        weir_abi::HOPS_PER_DEST as usize,
        "number of used next hops"
    );
    bench.assert_same_state();
}
