//! Tests which entries the sweep removes to protect the table (`drop_entry`), and which it keeps.

use std::time::{Duration, Instant};

use weir_abi::{Forward, KIND_FORWARD, SETTINGS_DROP_ENTRY, State};
use weir_sched::Kind;

use crate::bench::{Bench, NewServer};
use crate::wire::{ACK, CLIENT, SYN, Shape, VIP, at};

const DEADLINE: Duration = Duration::from_secs(30);

/// Returns the number of flows in each state: half open, established, UDP.
fn count_flows(bench: &Bench) -> [usize; 3] {
    let mut counts = [0; 3];
    for flow in bench.plane.maps().flows.walk() {
        let meta = flow.meta();
        let states = [State::SynRecv, State::Established, State::Udp];
        let index = states.iter().position(|state| *state as u8 == meta.state);
        if let (KIND_FORWARD, Some(index)) = (meta.kind, index) {
            counts[index] += 1;
        }
    }
    counts
}

#[test]
fn half_open_flows_are_removed_and_others_kept() {
    let Some(mut bench) = Bench::with_flows(7 * 256) else {
        return;
    };
    let server = NewServer::new(Forward::Direct, "10.0.0.1");
    let (_, dests) = bench.serve(Kind::Rr, (VIP, 80), &[server]);
    bench.plane.activate().unwrap();
    for port in 0..300 {
        let source = at(CLIENT, 1000 + port);
        bench.send(&Shape::tcp(SYN).arriving(source, at(VIP, 80)));
        if port % 3 == 0 {
            bench.send(&Shape::tcp(ACK).arriving(source, at(VIP, 80)));
        }
        if port % 5 == 0 {
            bench.send(&Shape::udp().arriving(source, at(VIP, 80)));
        }
    }
    let before = count_flows(&bench);
    assert_eq!(before, [200, 100, 60]);
    bench.change_settings(|settings| settings.flags |= SETTINGS_DROP_ENTRY);
    let started = Instant::now();
    // One half-open flow in 32 is removed per second, so the removal of 20 of the 200 takes about three seconds.
    while count_flows(&bench)[0] > 180 {
        assert!(started.elapsed() < DEADLINE, "{:?}", count_flows(&bench));
        std::thread::sleep(Duration::from_millis(50));
    }
    let after = count_flows(&bench);
    assert_eq!(
        after[1..],
        before[1..],
        "established and UDP flows must be kept"
    );
    bench.change_settings(|settings| settings.flags &= !SETTINGS_DROP_ENTRY);
    let counts_match = |bench: &Bench| {
        let live = bench.plane.maps().live(dests[0]).unwrap();
        live.active == count_flows(bench).iter().sum::<usize>() as u64
    };
    while !counts_match(&bench) {
        assert!(started.elapsed() < DEADLINE, "{:?}", count_flows(&bench));
    }
}
