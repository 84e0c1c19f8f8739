//! Tests that flows from another director get the same result, slot and counts in the data plane and the model.
//!
//! Packets of these flows must have the same outcome.

use weir_abi::{
    Be16, DEST_SNAT, Forward, KIND_FORWARD, KIND_TEMPLATE, PROTO_TEMPLATE, Reason, SYNC_CONFLICT,
    SYNC_FULL, SYNC_GONE, SYNC_INSERTED, SYNC_OLDER, SYNC_UPDATED, State, SyncFlow,
};
use weir_sched::Kind;

use crate::bench::{
    Bench, DIRECTOR_MAC, INGRESS, NewServer, next_hop_macs, tick, wait_until_tick_is_stable,
};
use crate::wire::{ACK, Case, SYN, Shape, at};

const VIP: &str = "192.0.2.10";
const CLIENT: &str = "198.51.100.1";
const SNAT: &str = "10.9.9.9";

impl Bench {
    /// Inserts a record into the data plane and the model, and asserts that the results are equal. Returns `SYNC_*`.
    #[track_caller]
    pub(crate) fn synchronize(&mut self, record: SyncFlow) -> u8 {
        wait_until_tick_is_stable();
        let earliest = tick();
        let mut flows = [record];
        self.plane.insert_flows(&mut flows).unwrap();
        let latest = tick();
        let [inserted] = flows;
        let slot =
            matches!(inserted.result, SYNC_INSERTED | SYNC_UPDATED).then_some(inserted.entry_index);
        let slot = slot.filter(|_| !self.resized);
        let mut expected = None;
        for now in [earliest, latest] {
            let mut model = self.model.clone();
            let (result, index) = model.synchronize(&record, now);
            let index = index.filter(|_| !self.resized);
            if (result, index) == (inserted.result, slot) {
                self.model = model;
                return result;
            }
            expected = Some((result, index));
        }
        panic!(
            "result {} in slot {slot:?}, model: {expected:?}: {record:?}",
            inserted.result
        );
    }

    /// Returns a record of an established TCP flow to a server.
    pub(crate) fn record(&self, dest: u32, client: (&str, u16), vip: (&str, u16)) -> SyncFlow {
        let row = self.model.config().dests[&dest];
        let (client, vip) = (at(client.0, client.1), at(vip.0, vip.1));
        SyncFlow {
            src: client.ip().into(),
            dst: vip.ip().into(),
            sport: Be16::new(client.port()),
            dport: Be16::new(vip.port()),
            proto: 6,
            family: if client.is_ipv4() { 4 } else { 6 },
            kind: KIND_FORWARD,
            state: State::Established as u8,
            dest,
            dest_generation: row.generation,
            service: row.service,
            age: 3,
            ..SyncFlow::ZERO
        }
    }
}

fn ack(port: u16) -> Vec<u8> {
    let shape = Shape::tcp(ACK);
    shape.arriving(at(CLIENT, port), at(VIP, 80))
}

fn server(forward: Forward, last: u8) -> NewServer {
    NewServer::new(forward, &format!("10.0.0.{last}"))
}

#[test]
fn flow_of_a_peer_continues_to_its_server() {
    for forward in [Forward::Direct, Forward::L3dsr, Forward::Nat] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        bench.learn_clients();
        let servers = [server(forward, 1), server(forward, 2)];
        let (_, dests) = bench.serve(Kind::Wlc, (VIP, 80), &servers);
        // The server in the record is not the server that the scheduler would choose.
        let record = bench.record(dests[1], (CLIENT, 1000), (VIP, 80));
        let before = bench.send(&ack(1000));
        assert_eq!(bench.synchronize(record), SYNC_INSERTED);
        assert_eq!(bench.synchronize(record), SYNC_UPDATED);
        let after = bench.send(&ack(1000));
        assert_ne!(before.verdict, after.verdict, "{forward:?}");
        bench.assert_same_state();
    }
}

#[test]
fn record_with_later_packet_takes_precedence() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let servers = [server(Forward::Direct, 1), server(Forward::Direct, 2)];
    let (_, dests) = bench.serve(Kind::Wlc, (VIP, 80), &servers);
    let record = bench.record(dests[0], (CLIENT, 1000), (VIP, 80));
    assert_eq!(bench.synchronize(record), SYNC_INSERTED);
    // The flow has moved to another server at the peer: the later record takes precedence.
    let later_record = bench.record(dests[1], (CLIENT, 1000), (VIP, 80));
    assert_eq!(bench.synchronize(later_record), SYNC_INSERTED);
    let late = SyncFlow { idle: 20, ..record };
    assert_eq!(bench.synchronize(late), SYNC_OLDER);
    let closing = SyncFlow {
        state: State::FinWait as u8,
        ..later_record
    };
    assert_eq!(bench.synchronize(closing), SYNC_UPDATED);
    let removed = SyncFlow {
        dest_generation: later_record.dest_generation + 1,
        ..later_record
    };
    assert_eq!(bench.synchronize(removed), SYNC_GONE);
    bench.assert_same_state();
}

#[test]
fn snat_tuple_of_a_peer_is_not_assigned_again() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.learn_clients();
    let servers = [server(Forward::Nat, 1).row(|row| row.flags |= DEST_SNAT)];
    let (service, dests) = bench.serve(Kind::Rr, (VIP, 80), &servers);
    // The peer's flow uses the only port.
    bench.add_snat(service, &[SNAT], (20_000, 20_000));
    let record = bench.record(dests[0], (CLIENT, 1000), (VIP, 80));
    assert_eq!(bench.synchronize(record), SYNC_GONE, "no free tuple");
    let record = SyncFlow {
        snat: at(SNAT, 0).ip().into(),
        snat_port: Be16::new(20_000),
        ..record
    };
    assert_eq!(bench.synchronize(record), SYNC_INSERTED);
    let other_record = SyncFlow {
        sport: Be16::new(1001),
        ..record
    };
    assert_eq!(bench.synchronize(other_record), SYNC_CONFLICT);
    let shape = Shape::tcp(SYN);
    let outcome = bench.send(&shape.arriving(at(CLIENT, 1002), at(VIP, 80)));
    assert_eq!(outcome.counted, [Reason::DropSnatExhausted]);
    bench.assert_same_state();
}

/// If the client reuses its port, the peer may assign a new SNAT port while this director still has the earlier
/// connection.
#[test]
fn snat_tuple_of_a_new_connection_replaces_that_of_the_earlier_one() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.learn_clients();
    let servers = [server(Forward::Nat, 1).row(|row| row.flags |= DEST_SNAT)];
    let (service, dests) = bench.serve(Kind::Rr, (VIP, 80), &servers);
    bench.add_snat(service, &[SNAT], (20_000, 20_001));
    let earlier = SyncFlow {
        snat: at(SNAT, 0).ip().into(),
        snat_port: Be16::new(20_000),
        state: State::TimeWait as u8,
        ifindex: INGRESS,
        ..bench.record(dests[0], (CLIENT, 1000), (VIP, 80))
    };
    let new = SyncFlow {
        snat_port: Be16::new(20_001),
        state: State::Established as u8,
        ..earlier
    };
    assert_eq!(bench.synchronize(earlier), SYNC_INSERTED);
    assert_eq!(bench.synchronize(earlier), SYNC_UPDATED);
    assert_eq!(bench.synchronize(new), SYNC_INSERTED);
    assert_eq!(bench.synchronize(new), SYNC_UPDATED);
    bench.assert_same_state();
    let (client, vip) = (at(CLIENT, 1000), at(VIP, 80));
    let (source, server) = (at(SNAT, 20_001), at("10.0.0.1", 80));
    let shape = Shape::tcp(ACK);
    let forwarded = shape.forwarded();
    let macs = next_hop_macs(dests[0]);
    Case::new("request", shape.arriving(client, vip))
        .sends(forwarded.build(macs, source, server))
        .check(&mut bench);
    // XDP does not have the next hop to the client yet.
    let macs = ([2, 0, 0, 0, 9, 9], DIRECTOR_MAC);
    Case::new("reply", shape.build(macs, server, source))
        .passes(Reason::PassToTc)
        .sends(forwarded.build(macs, vip, client))
        .check(&mut bench);
    // No flow uses the earlier tuple now.
    let other_record = SyncFlow {
        sport: Be16::new(1001),
        ..earlier
    };
    assert_eq!(bench.synchronize(other_record), SYNC_INSERTED);
    bench.assert_same_state();
}

#[test]
fn template_of_a_peer_selects_the_server() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let servers = [server(Forward::Direct, 1), server(Forward::Direct, 2)];
    let (service, dests) = bench.serve(Kind::Wlc, (VIP, 80), &servers);
    bench.change_service_row(service, |row| {
        row.template_ticks = 1_000;
        row.template_prefix4 = 32;
        row.template_prefix6 = 128;
        row.template_scope = weir_abi::TEMPLATE_PORT;
    });
    for (dest, expected) in [
        (dests[1], SYNC_INSERTED),
        (dests[1], SYNC_UPDATED),
        (dests[0], SYNC_INSERTED),
    ] {
        let template = SyncFlow {
            kind: KIND_TEMPLATE,
            proto: 6 | PROTO_TEMPLATE,
            timeout: 500,
            ..bench.record(dest, (CLIENT, 0), (VIP, 80))
        };
        assert_eq!(bench.synchronize(template), expected);
        let shape = Shape::tcp(SYN);
        bench.send(&shape.arriving(at(CLIENT, 1000 + dest as u16), at(VIP, 80)));
        bench.assert_same_state();
    }
}

#[test]
fn full_table_rejects_flows_of_a_peer() {
    let Some(mut bench) = Bench::with_flows(7 * 4) else {
        return;
    };
    let servers = [server(Forward::Nat, 1)];
    let (_, dests) = bench.serve(Kind::Rr, (VIP, 80), &servers);
    let results: Vec<u8> = (1000..1060)
        .map(|port| bench.synchronize(bench.record(dests[0], (CLIENT, port), (VIP, 80))))
        .collect();
    let count = |expected| results.iter().filter(|result| **result == expected).count();
    assert!(
        count(SYNC_INSERTED) > 0 && count(SYNC_FULL) > 0,
        "{results:?}"
    );
    bench.assert_same_state();
}
