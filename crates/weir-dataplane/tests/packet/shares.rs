//! Tests how schedulers distribute real packets to servers, some of which are unavailable.
//!
//! The data plane and the reference model process the packets.
//!
//! Each datagram is scheduled separately and leaves no entry, so no count influences the next choice. The random
//! numbers are seeded: a test that passes once always passes. With other seeds, a correct scheduler would fail in one
//! case in a million.

use weir_abi::{Forward, SERVICE_ONE_PACKET};
use weir_sched::{Kind, Mode, hash};
use weir_testing::p_value;

use crate::bench::{Bench, NewServer, Xdp};
use crate::scheduler::VIP;
use crate::wire::{Shape, at};

const SIGNIFICANCE: f64 = 1e-6;
const DATAGRAMS: u64 = 720;

/// Why servers are unavailable.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Exclusion {
    /// Weight 0: drained or down.
    Quiesced,
    /// At the upper threshold.
    Full,
}

/// Returns the number of datagrams that each server receives after the first `unavailable` servers have become
/// unavailable.
fn shares(
    bench: &mut Bench,
    kind: Kind,
    weights: &[u32],
    unavailable: usize,
    exclusion: Exclusion,
) -> Vec<u64> {
    let service = bench.add_service_with(kind, Mode::Fallback, false);
    bench.change_service_row(service, |row| row.flags |= SERVICE_ONE_PACKET);
    let port = bench.next_port();
    bench.listen(service, VIP, port);
    let servers: Vec<u32> = (1..)
        .zip(weights)
        .map(|(number, weight)| {
            let server = NewServer::new(Forward::Direct, &format!("10.0.0.{number}"));
            bench.add(service, server.weight(*weight))
        })
        .collect();
    for server in &servers[..unavailable] {
        match exclusion {
            Exclusion::Quiesced => bench.set_weight(service, *server, 0),
            Exclusion::Full => bench.set_overloaded(*server, true),
        }
    }
    let mut count = vec![0; servers.len()];
    for number in 0..DATAGRAMS {
        let [a, b, port_a, port_b, ..] = hash::mix_64(number).to_be_bytes();
        let client = at(
            &format!("198.51.{a}.{b}"),
            u16::from_be_bytes([port_a, port_b]).max(1),
        );
        let outcome = bench.send(&Shape::udp().arriving(client, at(VIP, port)));
        assert_eq!(outcome.verdict, Xdp::Tx, "{kind}: {:?}", outcome.counted);
        let dest = u32::from(outcome.frame[5]);
        count[servers.iter().position(|row| *row % 256 == dest).unwrap()] += 1;
    }
    count
}

/// Runs a scheduler with both kinds of exclusion and all numbers of unavailable servers, and compares the shares with
/// those that `expected` computes from the weights of usable servers.
fn check_shares(
    kind: Kind,
    weights: &[u32],
    unavailable_counts: &[usize],
    expected: impl Fn(&[u32]) -> Vec<f64>,
) {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.seed_random_numbers(2311);
    for exclusion in [Exclusion::Quiesced, Exclusion::Full] {
        for unavailable in unavailable_counts {
            let mut usable = weights.to_vec();
            usable[..*unavailable].fill(0);
            let count = shares(&mut bench, kind, weights, *unavailable, exclusion);
            let p = p_value(&count, &expected(&usable));
            let name =
                format!("{kind} {weights:?}, {unavailable} unavailable, {exclusion:?}: {count:?}");
            assert!(p > SIGNIFICANCE, "{name}, p = {p:e}");
        }
    }
    bench.assert_same_state();
}

fn by_weight(weights: &[u32]) -> Vec<f64> {
    weights.iter().copied().map(f64::from).collect()
}

#[test]
fn random_schedulers_distribute_flows_by_weight() {
    for weights in [[1; 4], [3, 1, 4, 2]] {
        check_shares(Kind::P2c, &weights, &[0, 1, 2], by_weight);
        check_shares(Kind::Twos, &weights, &[0, 1, 2], |usable| {
            let mut shares = by_weight(usable);
            // The kernel draws from 0 to the total, inclusive, so the first server in the list has one extra unit of
            // weight.
            shares[3] += 1.0;
            shares
        });
    }
}

/// Tests a list with a tree in which most servers are unavailable: random draws fail, and the tree of sums determines
/// the server.
#[test]
fn p2c_distributes_flows_by_weight_in_a_long_list() {
    let weights: Vec<u32> = (0..24).map(|index| 1 + index % 3).collect();
    check_shares(Kind::P2c, &[1; 24], &[21, 22], by_weight);
    check_shares(Kind::P2c, &weights, &[21], by_weight);
}

#[test]
fn round_robin_shares_are_exact() {
    let equal = |usable: &[u32]| {
        usable
            .iter()
            .map(|weight| f64::from((*weight).min(1)))
            .collect()
    };
    check_shares(Kind::Rr, &[3, 1, 4, 2], &[0, 1, 2], equal);
    check_shares(Kind::Wrr, &[3, 1, 4, 2], &[0, 1, 2], by_weight);
}

#[test]
fn hashing_schedulers_distribute_flows_by_weight() {
    let equal = |usable: &[u32]| {
        usable
            .iter()
            .map(|weight| f64::from((*weight).min(1)))
            .collect()
    };
    check_shares(Kind::Sh, &[3, 1, 4, 2], &[0], by_weight);
    check_shares(Kind::Maglev, &[3, 1, 4, 2], &[0, 1], by_weight);
    check_shares(Kind::Mh, &[1; 4], &[0, 1, 2], equal);
}

/// Tests schedulers that use only one server while all counts are zero: all datagrams go to the newest, or the
/// heaviest, usable server.
#[test]
fn all_datagrams_go_to_one_server_if_counts_are_zero() {
    let newest = |usable: &[u32]| {
        (0..usable.len())
            .map(|index| f64::from(u8::from(index == 3)))
            .collect()
    };
    for kind in [Kind::Lc, Kind::Wlc, Kind::Nq] {
        check_shares(kind, &[3, 1, 4, 2], &[0, 2], newest);
    }
    let heaviest = |usable: &[u32]| {
        (0..usable.len())
            .map(|index| f64::from(u8::from(index == 2)))
            .collect()
    };
    for kind in [Kind::Sed, Kind::Fo, Kind::Ovf] {
        check_shares(kind, &[3, 1, 4, 2], &[0, 2], heaviest);
    }
}
