//! Tests in the kernel that flows from a peer are inserted, updated or rejected, and that the counts are exact.

mod support;
mod testbed;

use testbed::{CLIENT_PORT, PORT, SERVER_PORT, Setup, Testbed, XDP_PASS, net, tcp};
use weir_abi::{
    Addr, Be16, DEST_SNAT, FLOW_ACTIVE, Forward, KIND_FORWARD, KIND_TEMPLATE, SYNC_CONFLICT,
    SYNC_GONE, SYNC_INSERTED, SYNC_OLDER, SYNC_UPDATED, State, SyncFlow,
};
use weir_dataplane::Dataplane;
use weir_wire::TcpFlags;

const DEST: u32 = 1;

fn record(plane: &Dataplane, v6: bool, sport: u16) -> SyncFlow {
    let net = net(v6);
    let dest = plane.maps().dests.get(DEST).unwrap();
    SyncFlow {
        src: Addr::from(net.client),
        dst: Addr::from(net.vip),
        sport: Be16::from(sport),
        dport: Be16::from(PORT),
        proto: 6,
        family: if v6 { 6 } else { 4 },
        kind: KIND_FORWARD,
        state: State::Established as u8,
        dest: DEST,
        dest_generation: dest.generation,
        service: dest.service,
        age: 3,
        ..SyncFlow::ZERO
    }
}

fn insert(testbed: &Testbed, flow: SyncFlow) -> SyncFlow {
    let mut flows = [flow];
    testbed.plane.insert_flows(&mut flows).unwrap();
    flows[0]
}

fn counts(testbed: &Testbed) -> (u64, u64) {
    let live = testbed.plane.maps().live(DEST).unwrap();
    (live.active, live.inactive)
}

#[test]
fn inserted_flow_continues_without_syn() {
    for v6 in [false, true] {
        for forward in [Forward::Direct, Forward::Nat, Forward::Tunnel] {
            let Some(testbed) = Setup::new(v6, forward).open() else {
                return;
            };
            let net = testbed.net;
            // Packets of another flow determine the next hop to the client.
            testbed
                .send(&tcp(
                    net.client,
                    net.vip,
                    CLIENT_PORT + 9,
                    PORT,
                    TcpFlags::SYN,
                ))
                .sent();
            let ack = tcp(net.client, net.vip, CLIENT_PORT, PORT, TcpFlags::ACK);
            assert_eq!(testbed.send(&ack).verdict, XDP_PASS, "no flow yet");
            let inserted = insert(&testbed, record(&testbed.plane, v6, CLIENT_PORT));
            assert_eq!(inserted.result, SYNC_INSERTED);
            assert_eq!(counts(&testbed), (2, 0));
            testbed.send(&ack).sent();
            if forward == Forward::Nat {
                let reply = tcp(
                    net.server,
                    net.client,
                    SERVER_PORT,
                    CLIENT_PORT,
                    TcpFlags::ACK,
                );
                let out = testbed.send(&reply);
                assert_eq!(out.ip().src(), net.vip, "the reply must be translated");
            }
            let flow = testbed.plane.maps().flows.at(inserted.entry_index).unwrap();
            assert_eq!(flow.meta().flags & FLOW_ACTIVE, FLOW_ACTIVE);
        }
    }
}

#[test]
fn state_change_updates_counts_and_same_record_changes_nothing() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open() else {
        return;
    };
    let flow = record(&testbed.plane, false, CLIENT_PORT);
    assert_eq!(insert(&testbed, flow).result, SYNC_INSERTED);
    assert_eq!(insert(&testbed, flow).result, SYNC_UPDATED);
    assert_eq!(counts(&testbed), (1, 0));
    let closing = SyncFlow {
        state: State::FinWait as u8,
        ..flow
    };
    assert_eq!(insert(&testbed, closing).result, SYNC_UPDATED);
    assert_eq!(counts(&testbed), (0, 1));
    let late = SyncFlow { idle: 20, ..flow };
    assert_eq!(insert(&testbed, late).result, SYNC_OLDER);
    assert_eq!(counts(&testbed), (0, 1));
    assert_eq!(testbed.plane.maps().live(DEST).unwrap().total, 0);
}

#[test]
fn flow_of_a_different_or_unknown_server_is_rejected() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open() else {
        return;
    };
    let mut flow = record(&testbed.plane, false, CLIENT_PORT);
    flow.dest_generation += 1;
    assert_eq!(insert(&testbed, flow).result, SYNC_GONE);
    flow.dest = u32::MAX;
    assert_eq!(insert(&testbed, flow).result, SYNC_GONE);
    assert_eq!(counts(&testbed), (0, 0));
}

#[test]
fn snat_flow_needs_its_tuple_and_keeps_it() {
    let Some(testbed) = Setup::new(false, Forward::Nat).snat().open() else {
        return;
    };
    let net = testbed.net;
    let flow = record(&testbed.plane, false, CLIENT_PORT);
    assert_eq!(
        insert(&testbed, flow).result,
        SYNC_GONE,
        "no source address"
    );
    let dest = testbed.plane.maps().dests.get(DEST).unwrap();
    assert_ne!(dest.flags & DEST_SNAT, 0);
    let flow = SyncFlow {
        snat: Addr::from(net.snat),
        snat_port: Be16::from(20_777),
        ..flow
    };
    assert_eq!(insert(&testbed, flow).result, SYNC_INSERTED);
    let out = testbed.send(&tcp(net.client, net.vip, CLIENT_PORT, PORT, TcpFlags::ACK));
    assert_eq!((out.sent().src(), out.sent().dst()), (net.snat, net.server));
    assert_eq!(out.ip().ports(), Some((20_777, SERVER_PORT)));
    let other = SyncFlow {
        sport: Be16::from(CLIENT_PORT + 1),
        ..flow
    };
    assert_eq!(insert(&testbed, other).result, SYNC_CONFLICT);
    assert_eq!(counts(&testbed), (1, 0), "the rejected flow is not counted");
}

#[test]
fn template_is_inserted_and_its_timeout_updated() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open() else {
        return;
    };
    let template = SyncFlow {
        sport: Be16::from(0),
        proto: 6 | weir_abi::PROTO_TEMPLATE,
        kind: KIND_TEMPLATE,
        timeout: 300,
        ..record(&testbed.plane, false, 0)
    };
    let inserted = insert(&testbed, template);
    assert_eq!(inserted.result, SYNC_INSERTED);
    assert_eq!(testbed.plane.maps().live(DEST).unwrap().persistent, 1);
    assert_eq!(counts(&testbed), (0, 0));
    let longer = SyncFlow {
        timeout: 400,
        ..template
    };
    assert_eq!(insert(&testbed, longer).result, SYNC_UPDATED);
    let flow = testbed.plane.maps().flows.at(inserted.entry_index).unwrap();
    assert_eq!(flow.cold.ifindex, 400);
}

#[test]
fn only_flows_that_left_syn_recv_are_recorded() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open() else {
        return;
    };
    let net = testbed.net;
    let maps = testbed.plane.maps();
    let mut positions = maps.sync_positions().unwrap();
    let mut recorded = Vec::new();
    let packet = |port, flags| tcp(net.client, net.vip, port, PORT, flags);
    testbed.send(&packet(1000, TcpFlags::SYN)).sent();
    testbed.send(&packet(1000, TcpFlags::ACK)).sent();
    assert_eq!(maps.sync_changes(&mut positions, &mut recorded).unwrap(), 0);
    assert!(recorded.is_empty(), "recorded without [sync]");
    maps.set_sync(true).unwrap();
    for port in 2000..2100 {
        testbed.send(&packet(port, TcpFlags::SYN)).sent();
    }
    maps.sync_changes(&mut positions, &mut recorded).unwrap();
    assert!(recorded.is_empty(), "a SYN flood was recorded");
    for _ in 0..5 {
        testbed.send(&packet(2000, TcpFlags::ACK)).sent();
    }
    maps.sync_changes(&mut positions, &mut recorded).unwrap();
    assert_eq!(recorded.len(), 1, "the established flow");
    let flow = maps.flows.at(recorded[0]).unwrap();
    assert_eq!(flow.cold.sport, Be16::from(2000));
    testbed
        .send(&packet(2000, TcpFlags::FIN | TcpFlags::ACK))
        .sent();
    maps.sync_changes(&mut positions, &mut recorded).unwrap();
    assert_eq!(recorded.len(), 2, "the flow after its state change");
}
