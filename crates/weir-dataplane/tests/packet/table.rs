//! Tests a full flow table: a hash selects the server for a flow without a free entry.
//!
//! No flow has only one of its two entries. A nearly full table accepts every flow while there is a free entry.

use std::ops::Range;

use weir_abi::{BUCKET_SLOTS, FLOW_AWAY, Forward, KIND_FORWARD, Reason, State};
use weir_dataplane::TestInput;
use weir_flow::Geometry;
use weir_sched::Kind;

use crate::bench::{Bench, NewServer, Xdp, sizes};
use crate::consistency::assert_invariants;
use crate::support::two_cpus;
use crate::wire::{ACK, SYN, VIP, client_tcp};

fn bench(flows: u32, forward: Forward) -> Option<Bench> {
    let mut bench = Bench::with_flows(flows)?;
    let servers = [1, 2, 3].map(|last| NewServer::new(forward, &format!("10.0.0.{last}")));
    bench.serve(Kind::Rr, (VIP, 80), &servers);
    Some(bench)
}

#[test]
fn flow_without_entry_is_hashed_to_a_stable_server() {
    let Some(mut bench) = bench(7, Forward::Direct) else {
        return;
    };
    for port in 1000..1007 {
        assert_eq!(
            bench.send(&client_tcp(port, SYN)).counted,
            [],
            "no entry for port {port}"
        );
    }
    for port in 1007..1030 {
        let first = bench.send(&client_tcp(port, SYN));
        assert_eq!(
            first.counted,
            [Reason::CountTableFull, Reason::CountUntracked]
        );
        for _ in 0..3 {
            let later = bench.send(&client_tcp(port, ACK));
            assert_eq!(later.counted, [Reason::CountUntracked]);
            assert_eq!(later.frame[5], first.frame[5], "port {port}");
        }
    }
    assert_eq!(assert_invariants(&bench.plane).len(), 7);
    let stateless: u64 = (1..=3)
        .map(|dest| bench.plane.maps().live(dest).unwrap().stateless)
        .sum();
    assert_eq!(stateless, 23);
}

#[test]
fn flows_spill_from_a_full_home_bucket_and_expired_entries_are_reused() {
    let Some(mut bench) = bench(7 * 4, Forward::Direct) else {
        return;
    };
    let placed_count = (1000..1040)
        .filter(|port| bench.send(&client_tcp(*port, SYN)).counted.is_empty())
        .count();
    let flows = assert_invariants(&bench.plane);
    assert_eq!(flows.len(), placed_count);
    let in_second_bucket = flows
        .values()
        .filter(|flow| flow.meta().flags & FLOW_AWAY != 0)
        .count();
    assert!(
        in_second_bucket > 0,
        "{placed_count} flows, none in its second bucket"
    );
    for flow in flows.values() {
        let frame = client_tcp(flow.cold.sport.get(), ACK);
        let outcome = bench.send(&frame);
        assert_eq!(
            (outcome.counted, u32::from(outcome.frame[5])),
            (vec![], flow.dest()),
            "the entry is not found"
        );
    }
    // All flows are established. With this timeout, which is -1 ticks, they have expired, so the next SYN of each flow
    // frees the entry and uses it again.
    bench.change_settings(|settings| settings.timeouts[State::Established as usize] = u32::MAX);
    for flow in flows.values() {
        bench.send(&client_tcp(flow.cold.sport.get(), SYN));
        assert_invariants(&bench.plane);
    }
}

#[test]
fn nat_flow_without_free_entry_leaves_no_entry() {
    let Some(mut bench) = bench(7, Forward::Nat) else {
        return;
    };
    for port in 1000..1003 {
        assert_eq!(bench.send(&client_tcp(port, SYN)).counted, []);
    }
    // One entry is free: the reverse tuple takes it, so there is no entry for the forward tuple.
    for port in 1003..1010 {
        let outcome = bench.send(&client_tcp(port, SYN));
        assert_eq!(
            (outcome.verdict, outcome.counted),
            (Xdp::Drop, vec![Reason::DropNoPlace])
        );
        assert_eq!(assert_invariants(&bench.plane).len(), 6);
    }
}

/// Number of entries in a small table with a stash; `NAT_FLOWS` nat flows fill 90 % of them.
const SMALL_TABLE_FLOWS: u32 = BUCKET_SLOTS * 150;
const NAT_FLOWS: u16 = (SMALL_TABLE_FLOWS * 9 / 20) as u16;

/// Starts nat flows and asserts that each gets its entries.
fn start_flows(bench: &mut Bench, ports: Range<u16>) {
    for port in ports {
        assert_eq!(
            bench.send(&client_tcp(port, SYN)).counted,
            [],
            "port {port}"
        );
    }
}

/// Makes half-open flows expire, and sends an ACK for each, which frees its entries and starts no new flow.
fn end_flows(bench: &mut Bench, ports: Range<u16>) {
    let set_syn_timeout = |bench: &mut Bench, ticks| {
        bench.change_settings(|settings| settings.timeouts[State::SynRecv as usize] = ticks);
    };
    set_syn_timeout(bench, u32::MAX);
    for port in ports {
        let outcome = bench.send(&client_tcp(port, ACK));
        assert_eq!(outcome.counted, [Reason::PassNoFlow], "port {port}");
    }
    set_syn_timeout(bench, 1_000_000);
}

fn count_stashed(bench: &Bench) -> usize {
    let flows = &bench.plane.maps().flows;
    let homes = Geometry::new(flows.buckets()).home_count();
    let in_stash = |flow: &weir_dataplane::Flow| flow.index / BUCKET_SLOTS >= homes;
    flows.walk().filter(in_stash).count()
}

#[test]
fn nat_accepts_every_flow_at_90_percent_through_ten_turnovers() {
    let Some(mut bench) = bench(SMALL_TABLE_FLOWS, Forward::Nat) else {
        return;
    };
    start_flows(&mut bench, 1000..1000 + NAT_FLOWS);
    assert_eq!(
        assert_invariants(&bench.plane).len(),
        2 * usize::from(NAT_FLOWS)
    );
    let (step, mut oldest, mut max_stashed) = (NAT_FLOWS / 10, 1000, 0);
    for _ in 0..100 {
        end_flows(&mut bench, oldest..oldest + step);
        start_flows(&mut bench, oldest + NAT_FLOWS..oldest + NAT_FLOWS + step);
        oldest += step;
        max_stashed = max_stashed.max(count_stashed(&bench));
    }
    assert!(max_stashed > 0, "the stash was never used");
    bench.assert_same_state();
    // Entries outside their home bucket are found, and no entry remains after all flows have expired.
    for port in oldest..oldest + NAT_FLOWS {
        assert_eq!(
            bench.send(&client_tcp(port, ACK)).verdict,
            Xdp::Tx,
            "port {port}"
        );
    }
    bench.change_settings(|settings| settings.timeouts[State::Established as usize] = u32::MAX);
    for port in oldest..oldest + NAT_FLOWS {
        bench.send(&client_tcp(port, ACK));
    }
    assert_eq!(assert_invariants(&bench.plane).len(), 0);
}

#[test]
fn nat_accepts_every_flow_at_90_percent_across_a_resize() {
    let Some(mut bench) = bench(SMALL_TABLE_FLOWS, Forward::Nat) else {
        return;
    };
    bench.plane.activate().unwrap();
    start_flows(&mut bench, 1000..1000 + NAT_FLOWS - 20);
    for (table, buckets) in (0..).zip([300, 150, 200]) {
        bench.reopen(sizes(BUCKET_SLOTS * buckets));
        bench.plane.activate().unwrap();
        // During the migration, new flows are inserted into the old table, which old and new programs search.
        let first = 1000 + NAT_FLOWS - 20 + table * 5;
        start_flows(&mut bench, first..first + 5);
        let moved = bench.plane.migrate_flows().unwrap();
        let flows = usize::from(NAT_FLOWS - 20 + (table + 1) * 5);
        assert_eq!((moved.moved, moved.lost), (flows as u64, 0));
        assert_eq!(assert_invariants(&bench.plane).len(), 2 * flows);
        for port in 1000..first + 5 {
            assert_eq!(
                bench.send(&client_tcp(port, ACK)).verdict,
                Xdp::Tx,
                "port {port}"
            );
        }
    }
}

#[test]
fn nat_accepts_every_flow_at_90_percent_on_two_cpus() {
    let Some(bench) = bench(SMALL_TABLE_FLOWS, Forward::Nat) else {
        return;
    };
    if !two_cpus() {
        return;
    }
    let plane = &bench.plane;
    let barrier = std::sync::Barrier::new(2);
    let half = NAT_FLOWS / 2;
    let stream = |cpu: u16| {
        weir_sys::pin_thread(cpu.into()).unwrap();
        barrier.wait();
        for port in 1000 + cpu * half..1000 + (cpu + 1) * half {
            // If one CPU is preempted while it holds a lock, the other CPU rejects the flow; the client's next SYN must
            // then get an entry.
            let has_entry = (0..4).any(|_| {
                let run = plane
                    .test_run("weir_xdp", &TestInput::xdp(&client_tcp(port, SYN)))
                    .unwrap();
                Xdp::from_number(run.verdict) == Xdp::Tx
            });
            assert!(has_entry, "port {port}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| stream(0));
        scope.spawn(|| stream(1));
    });
    let flows = assert_invariants(plane);
    let forwards = flows
        .values()
        .filter(|flow| flow.meta().kind == KIND_FORWARD);
    assert_eq!(forwards.count(), 2 * usize::from(half));
}
