//! Two CPUs that meet the same new flows at the same time make one entry of each.

use std::sync::Barrier;

use weir_abi::{Forward, KIND_FORWARD, Reason};
use weir_dataplane::TestInput;
use weir_sched::Kind;

use crate::bench::{Bench, NewServer};
use crate::census::sound;
use crate::wire::{ACK, SYN, Shape, at};

const FLOWS: u16 = 4000;

fn race(forward: Forward) {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    if !weir_testing::require("two CPUs", weir_sys::pin_thread(1).is_ok()) {
        return;
    }
    let servers = [1, 2, 3].map(|last| NewServer::new(forward, &format!("10.0.0.{last}")));
    bench.serve(Kind::Rr, ("192.0.2.10", 80), &servers);
    let plane = &bench.plane;
    let barrier = Barrier::new(2);
    let stream = |cpu: usize| {
        weir_sys::pin_thread(cpu).unwrap();
        barrier.wait();
        for port in 1000..1000 + FLOWS {
            for flags in [SYN, ACK] {
                let frame =
                    Shape::tcp(flags).arriving(at("198.51.100.7", port), at("192.0.2.10", 80));
                plane.test_run("weir_xdp", &TestInput::xdp(&frame)).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| stream(0));
        scope.spawn(|| stream(1));
    });
    let flows = sound(plane);
    let forwards = flows
        .values()
        .filter(|flow| flow.meta().kind == KIND_FORWARD)
        .count() as u64;
    let count = |reason: Reason| plane.maps().reasons().unwrap()[reason.number() as usize];
    // A CPU that is taken away while it holds a lock makes the other one go by hash; rare, and counted.
    let missed = count(Reason::CountLockMissed) + count(Reason::DropNoPlace);
    assert!(
        forwards <= FLOWS.into() && forwards + missed >= FLOWS.into(),
        "{forwards} flows, {missed} missed"
    );
    let total: u64 = (1..=3)
        .map(|dest| plane.maps().live(dest).unwrap().total)
        .sum();
    assert_eq!(total, forwards, "each flow was counted once");
}

#[test]
fn direct() {
    race(Forward::Direct);
}

#[test]
fn nat() {
    race(Forward::Nat);
}
