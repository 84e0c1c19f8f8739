//! A table without room: what finds no place goes by hash, and nothing is left half made. The model's table is never full, so
//! these packets meet the data plane alone.

use weir_abi::{FLOW_SECOND, Forward, Reason, State};
use weir_sched::Kind;

use crate::bench::{Bench, NewServer, Xdp};
use crate::census::sound;
use crate::wire::{ACK, SYN, Shape, at};

const VIP: &str = "192.0.2.10";
const CLIENT: &str = "198.51.100.7";

fn tcp(port: u16, flags: weir_wire::TcpFlags) -> Vec<u8> {
    Shape::tcp(flags).arriving(at(CLIENT, port), at(VIP, 80))
}

fn bench(flows: u32, forward: Forward) -> Option<Bench> {
    let mut bench = Bench::with_flows(flows)?;
    let servers = [1, 2, 3].map(|last| NewServer::new(forward, &format!("10.0.0.{last}")));
    bench.serve(Kind::Rr, (VIP, 80), &servers);
    Some(bench)
}

#[test]
fn what_finds_no_place_goes_by_hash_and_stays_with_its_server() {
    let Some(bench) = bench(7, Forward::Direct) else {
        return;
    };
    for port in 1000..1007 {
        assert_eq!(
            bench.run(&tcp(port, SYN)).counted,
            [],
            "port {port} has a place"
        );
    }
    for port in 1007..1030 {
        let begin = bench.run(&tcp(port, SYN));
        assert_eq!(
            begin.counted,
            [Reason::CountTableFull, Reason::CountUntracked]
        );
        for _ in 0..3 {
            let goes_on = bench.run(&tcp(port, ACK));
            assert_eq!(goes_on.counted, [Reason::CountUntracked]);
            assert_eq!(goes_on.frame[5], begin.frame[5], "port {port}");
        }
    }
    assert_eq!(sound(&bench.plane).len(), 7);
    let stateless: u64 = (1..=3)
        .map(|dest| bench.plane.maps().live(dest).unwrap().stateless)
        .sum();
    assert_eq!(stateless, 23);
}

#[test]
fn a_full_home_spills_and_takes_back() {
    let Some(mut bench) = bench(7 * 4, Forward::Direct) else {
        return;
    };
    let placed = (1000..1040)
        .filter(|port| bench.run(&tcp(*port, SYN)).counted.is_empty())
        .count();
    let flows = sound(&bench.plane);
    assert_eq!(flows.len(), placed);
    let second = flows
        .values()
        .filter(|flow| flow.meta().flags & FLOW_SECOND != 0)
        .count();
    assert!(second > 0, "{placed} flows, none in its second bucket");
    for flow in flows.values() {
        let frame = tcp(flow.cold.sport.get(), ACK);
        let outcome = bench.run(&frame);
        assert_eq!(
            (outcome.counted, u32::from(outcome.frame[5])),
            (vec![], flow.dest()),
            "found where it lies"
        );
    }
    // All are established now. Without time to live the next SYN of each makes room and takes it.
    bench.settings(|settings| settings.timeouts[State::Established as usize] = u32::MAX);
    for flow in flows.values() {
        bench.run(&tcp(flow.cold.sport.get(), SYN));
        sound(&bench.plane);
    }
}

#[test]
fn nat_without_place_leaves_nothing_behind() {
    let Some(bench) = bench(7, Forward::Nat) else {
        return;
    };
    for port in 1000..1003 {
        assert_eq!(bench.run(&tcp(port, SYN)).counted, []);
    }
    // One place is left: the reverse entry takes it, the forward one finds none.
    for port in 1003..1010 {
        let outcome = bench.run(&tcp(port, SYN));
        assert_eq!(
            (outcome.verdict, outcome.counted),
            (Xdp::Drop, vec![Reason::DropNoPlace])
        );
        assert_eq!(sound(&bench.plane).len(), 6);
    }
}
