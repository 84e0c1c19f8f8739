//! Tests packets on the device to which marked packets are routed.
//!
//! The mark in the frame selects the service, regardless of the address.

use std::net::IpAddr;

use weir_abi::{Forward, MARK_MAC, Reason};
use weir_sched::Kind;

use crate::bench::{Bench, INGRESS, NewServer, OTHER_DEVICE, Xdp, next_hop_macs};
use crate::route::families;
use crate::wire::{ACK, SYN, Shape, at};

/// Returns the frame as the tc program rewrites it: `MARK_MAC` replaces the destination MAC address, and the mark and
/// the ingress device replace the source MAC address.
fn marked(mut frame: Vec<u8>, mark: u32, origin: u16) -> Vec<u8> {
    frame[..6].copy_from_slice(&MARK_MAC.to_le_bytes()[..6]);
    frame[6..10].copy_from_slice(&mark.to_ne_bytes());
    frame[10..12].copy_from_slice(&origin.to_ne_bytes());
    frame
}

fn family_number(address: &str) -> u16 {
    let address: IpAddr = address.parse().unwrap();
    if address.is_ipv4() { 4 } else { 6 }
}

fn open_bench() -> Option<Bench> {
    let mut bench = Bench::open()?;
    bench.change_settings(|settings| settings.mark_exit = INGRESS);
    Some(bench)
}

#[test]
fn mark_selects_its_service() {
    let Some(mut bench) = open_bench() else {
        return;
    };
    for (_, vip, client, server) in families() {
        let service = bench.add_service(Kind::Rr);
        let dest = bench.add(service, NewServer::new(Forward::Direct, server));
        bench.listen_to_mark(service, 7, family_number(vip));
        for shape in [Shape::tcp(SYN), Shape::tcp(ACK), Shape::udp()] {
            let frame = shape.arriving(at(client, 1000), at(vip, 80));
            let outcome = bench.send(&marked(frame, 7, 3));
            assert_eq!((outcome.verdict, outcome.counted), (Xdp::Tx, vec![]));
            let expected =
                shape
                    .forwarded()
                    .build(next_hop_macs(dest), at(client, 1000), at(vip, 80));
            assert_eq!(outcome.frame, expected);
        }
        let other = Shape::tcp(SYN).arriving(at(client, 1001), at(vip, 80));
        for mark in [0, 8, 7 << 8, 0x0700_0000] {
            let outcome = bench.send(&marked(other.clone(), mark, 3));
            assert_eq!(outcome.counted, [Reason::PassNotOurs], "{mark}");
            assert_eq!(outcome.verdict, Xdp::Pass);
        }
    }
    bench.assert_same_state();
}

/// Tests that a frame with this MAC address is not treated as marked if it arrives on another device.
#[test]
fn mark_is_ignored_on_other_devices() {
    let Some(mut bench) = open_bench() else {
        return;
    };
    let (_, vip, client, server) = families()[0];
    let service = bench.add_service(Kind::Rr);
    bench.add(service, NewServer::new(Forward::Direct, server));
    bench.listen_to_mark(service, 7, 4);
    let frame = Shape::tcp(SYN).arriving(at(client, 1000), at(vip, 80));
    for exit in [0, OTHER_DEVICE] {
        bench.change_settings(|settings| settings.mark_exit = exit);
        let outcome = bench.send(&marked(frame.clone(), 7, 3));
        assert_eq!(outcome.counted, [Reason::PassNotOurs], "{exit}");
    }
    bench.change_settings(|settings| settings.mark_exit = INGRESS);
    assert_eq!(
        bench.send(&frame).counted,
        [Reason::PassNotOurs],
        "a different MAC address"
    );
    bench.assert_same_state();
}

/// Tests that XDP passes the reject response to the tc program, with the device that is stored in the frame.
#[test]
fn reject_response_is_passed_to_tc_with_the_ingress_device() {
    let Some(mut bench) = open_bench() else {
        return;
    };
    for (_, vip, client, _) in families() {
        let service = bench.add_service(Kind::Rr);
        bench.listen_to_mark(service, 9, family_number(vip));
        let frame = Shape::tcp(SYN).arriving(at(client, 1000), at(vip, 80));
        let outcome = bench.send(&marked(frame, 9, 41));
        assert_eq!(outcome.counted, [Reason::PassToTc, Reason::RejectNoServer]);
        let meta = outcome.meta.expect("no metadata for the tc program");
        assert_eq!((meta.ifindex, meta.next_hop), (41, None));
    }
    bench.assert_same_state();
}
