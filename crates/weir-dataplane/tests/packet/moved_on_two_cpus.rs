//! Tests that the two entries of a nat flow stay consistent when two CPUs change the flow at the same time.
//!
//! One CPU moves the flow to a new table. The other CPU ends the flow, because the client reuses its port, and begins
//! the next flow with the same tuple.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_abi::{BUCKET_SLOTS, Forward, KIND_FORWARD, SETTINGS_BEGIN_IN_OLD};
use weir_dataplane::{Dataplane, TestInput};
use weir_sched::Kind;

use crate::bench::{Bench, NewServer, Xdp, sizes};
use crate::consistency::assert_invariants;
use crate::support::two_cpus;
use crate::wire::{FIN, SYN, VIP, client_tcp};

const FLOWS: u16 = 8000;
/// Maximum delay of one CPU's start relative to the other, in iterations.
const MAX_DELAY: usize = 64;

fn send(plane: &Dataplane, frame: &[u8]) -> Xdp {
    let run = plane.test_run("weir_xdp", &TestInput::xdp(frame)).unwrap();
    Xdp::from_number(run.verdict)
}

/// Moves the flows in one bucket of the old table.
fn move_bucket(plane: &Dataplane, bucket: u32) {
    let mut request = [0; 64];
    request[..4].copy_from_slice(&bucket.to_ne_bytes());
    request[4..8].copy_from_slice(&1_u32.to_ne_bytes());
    plane
        .test_run("weir_move", &TestInput::xdp(&request))
        .unwrap();
}

/// Makes two threads continue at the same time in every round.
struct SpinBarrier(AtomicUsize);

impl SpinBarrier {
    fn wait(&self, round: usize) {
        self.0.fetch_add(1, Ordering::AcqRel);
        while self.0.load(Ordering::Acquire) < 2 * (round + 1) {
            spin_loop();
        }
    }
}

fn race(servers: u8) {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    if !two_cpus() {
        return;
    }
    let servers: Vec<NewServer> = (1..=servers)
        .map(|last| NewServer::new(Forward::Nat, &format!("10.0.0.{last}")))
        .collect();
    bench.serve(Kind::Rr, (VIP, 80), &servers);
    bench.plane.activate().unwrap();
    for port in 1000..1000 + FLOWS {
        // A FIN in SYN_RECV leads to TIME_WAIT, and in this state the next SYN begins a new flow.
        for flags in [SYN, FIN] {
            assert_eq!(send(&bench.plane, &client_tcp(port, flags)), Xdp::Tx);
        }
    }
    let flows: Vec<(u32, Vec<u8>)> = bench
        .plane
        .maps()
        .flows
        .walk()
        .filter(|flow| flow.meta().kind == KIND_FORWARD)
        .map(|flow| {
            let frame = client_tcp(flow.cold.sport.get(), SYN);
            (flow.index / BUCKET_SLOTS, frame)
        })
        .collect();
    bench.reopen(sizes(7 * 8192));
    bench.plane.activate().unwrap();
    bench.change_settings(|settings| settings.flags &= !SETTINGS_BEGIN_IN_OLD);
    let (plane, barrier) = (&bench.plane, SpinBarrier(AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            weir_sys::pin_thread(0).unwrap();
            for (round, (bucket, _)) in flows.iter().enumerate() {
                barrier.wait(round);
                (0..MAX_DELAY.saturating_sub(round % (2 * MAX_DELAY))).for_each(|_| spin_loop());
                move_bucket(plane, *bucket);
            }
        });
        scope.spawn(|| {
            weir_sys::pin_thread(1).unwrap();
            for (round, (_, frame)) in flows.iter().enumerate() {
                barrier.wait(round);
                (0..(round % (2 * MAX_DELAY)).saturating_sub(MAX_DELAY)).for_each(|_| spin_loop());
                // The packet is dropped if the other CPU is suspended while it holds the bucket's lock.
                send(plane, frame);
            }
        });
    });
    assert_invariants(plane);
    // Each tuple can be used again, because no reverse entry without a forward entry occupies it.
    for (_, frame) in &flows {
        assert_eq!(send(plane, frame), Xdp::Tx);
    }
    assert_eq!(assert_invariants(plane).len(), 2 * usize::from(FLOWS));
}

#[test]
fn nat_flows_stay_paired_while_they_move_and_their_ports_are_reused() {
    race(3);
}

#[test]
fn nat_flows_of_one_server_stay_paired_while_they_move_and_their_ports_are_reused() {
    race(1);
}
