//! Tests that two CPUs create only one entry for each flow if they receive the same new flows at the same time.

use std::sync::Barrier;

use weir_abi::{Forward, KIND_FORWARD, Reason};
use weir_dataplane::TestInput;
use weir_sched::Kind;

use crate::bench::{Bench, NewServer, Xdp};
use crate::consistency::assert_invariants;
use crate::support::two_cpus;
use crate::wire::{ACK, SYN, Shape, at};

const FLOWS: u16 = 4000;
/// Maximum number of flows that have no entry because a CPU was preempted while it held a bucket's lock.
const MAX_MISSED: u64 = FLOWS as u64 / 10;

fn send_same_flows_on_two_cpus(forward: Forward) {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    if !two_cpus() {
        return;
    }
    let servers = [1, 2, 3].map(|last| NewServer::new(forward, &format!("10.0.0.{last}")));
    bench.serve(Kind::Rr, ("192.0.2.10", 80), &servers);
    let plane = &bench.plane;
    let barrier = Barrier::new(2);
    let send_flows = |cpu: usize| {
        weir_sys::pin_thread(cpu).unwrap();
        barrier.wait();
        let mut sent = 0;
        for port in 1000..1000 + FLOWS {
            for flags in [SYN, ACK] {
                let frame =
                    Shape::tcp(flags).arriving(at("198.51.100.7", port), at("192.0.2.10", 80));
                let run = plane.test_run("weir_xdp", &TestInput::xdp(&frame)).unwrap();
                sent += u64::from(Xdp::from_number(run.verdict) == Xdp::Tx);
            }
        }
        sent
    };
    let sent: u64 = std::thread::scope(|scope| {
        let threads = [0, 1].map(|cpu| scope.spawn(move || send_flows(cpu)));
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    let flows = assert_invariants(plane);
    let forwards = flows
        .values()
        .filter(|flow| flow.meta().kind == KIND_FORWARD)
        .count() as u64;
    let count = |reason: Reason| plane.maps().reasons().unwrap()[reason.number() as usize];
    // If one CPU is preempted while it holds a lock, the other CPU selects the server by hash. This is rare, and it is
    // counted.
    let missed = count(Reason::CountLockMissed) + count(Reason::DropNoPlace);
    assert!(missed <= MAX_MISSED, "{missed} lock acquisitions failed");
    let expected = u64::from(FLOWS) - missed..=u64::from(FLOWS);
    assert!(
        expected.contains(&forwards),
        "{forwards} flows, {missed} missed"
    );
    // Each CPU sends a SYN and an ACK of every flow; the packets of a flow without an entry may be dropped.
    let packets = 4 * u64::from(FLOWS);
    assert!(
        sent >= packets - 4 * missed,
        "{sent} of {packets} packets sent"
    );
    let total: u64 = (1..=3)
        .map(|dest| plane.maps().live(dest).unwrap().total)
        .sum();
    assert_eq!(total, forwards, "each flow must be counted once");
}

#[test]
fn packets_on_two_cpus_create_one_entry_per_direct_flow() {
    send_same_flows_on_two_cpus(Forward::Direct);
}

#[test]
fn packets_on_two_cpus_create_one_forward_entry_per_nat_flow() {
    send_same_flows_on_two_cpus(Forward::Nat);
}
