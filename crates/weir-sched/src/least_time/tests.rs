//! Tests choices with scripted random numbers; tests of weir-latency simulate whole services.

use super::*;

const EXPLORE: u32 = 64;

/// The first random number of a flow, as `(number, ceiling)`. It determines whether the flow is assigned by weight
/// alone.
const BY_WEIGHT: (u32, u32) = (0, EXPLORE);
const BY_SHARE: (u32, u32) = (1, EXPLORE);

/// A server's weight, whether it is usable, its share, and its number of active connections.
type TestServer = (u32, bool, u32, u32);

/// Picks with the numbers in `(number, ceiling)` pairs, and asserts that all of them are drawn.
fn pick_with(servers: &[TestServer], numbers: &[(u32, u32)]) -> Option<usize> {
    let member = |(number, &(weight, usable, ..)): (u32, &TestServer)| Member {
        seq: 100 - number,
        dest: number + 10,
        weight,
        slot: number + 20,
        usable,
    };
    let members: Vec<Member> = (0..).zip(servers).map(member).collect();
    let shares = |dest: u32| servers[dest as usize - 10].2;
    let counts = |slot: u32| Counts {
        active: servers[slot as usize - 20].3,
        inactive: 1000,
    };
    let mut raw = numbers.iter().map(|&(number, ceiling)| {
        (((u64::from(number) << 32) + (1 << 31)) / u64::from(ceiling)) as u32
    });
    let picked = pick(&members, &shares, &counts, EXPLORE, &mut || {
        raw.next().unwrap()
    });
    assert_eq!(raw.next(), None, "fewer numbers were drawn");
    picked
}

#[test]
fn cost_is_latency_times_connections_per_weight() {
    assert_eq!(cost(300.0, 0, 1), 300.0);
    assert_eq!(cost(300.0, 3, 1), 1200.0);
    assert_eq!(cost(300.0, 3, 4), 300.0);
    assert_eq!(cost(300.0, 0, 0), 300.0, "weight 0 counts as 1");
}

#[test]
fn idle_servers_are_drawn_by_share() {
    let servers = [(1, true, 2, 0), (1, true, 3, 0), (1, true, 1, 0)];
    let drawn = [0, 1, 2, 3, 4, 5]
        .map(|number| pick_with(&servers, &[BY_SHARE, (number, 6), (0, 6)]).unwrap());
    assert_eq!(drawn, [0, 0, 1, 1, 1, 2], "the weight is not used");
}

#[test]
fn one_in_explore_flows_is_drawn_by_weight() {
    let servers = [(2, true, 0, 9), (3, true, 500, 9), (1, true, 1, 0)];
    let drawn = [0, 1, 2, 3, 4, 5]
        .map(|number| pick_with(&servers, &[BY_WEIGHT, (number, 6), (5, 6)]).unwrap());
    assert_eq!(drawn, [0, 0, 1, 1, 1, 2], "loads are not compared");
}

#[test]
fn the_server_with_the_lower_load_per_share_is_used() {
    let pick_from = |first: (u32, u32), second: (u32, u32)| {
        let servers = [(1, true, first.0, first.1), (1, true, second.0, second.1)];
        let total = first.0 + second.0;
        let both = [BY_SHARE, (0, total), (first.0, total)];
        let reversed = [BY_SHARE, (first.0, total), (0, total)];
        [both, reversed].map(|numbers| pick_with(&servers, &numbers).unwrap())
    };
    // (share, active) of two servers; the results if the first server is drawn first, and if the second one is.
    assert_eq!(pick_from((10, 0), (10, 1)), [0, 0]);
    assert_eq!(pick_from((10, 1), (10, 0)), [1, 1]);
    assert_eq!(pick_from((10, 2), (20, 4)), [1, 1], "3 / 10 > 5 / 20");
    assert_eq!(pick_from((10, 2), (20, 6)), [0, 0], "3 / 10 < 7 / 20");
    assert_eq!(pick_from((10, 2), (20, 5)), [0, 1], "equal: drawn first");
    assert_eq!(pick_from((10, 0), (20, 0)), [0, 1], "idle: drawn first");
    assert_eq!(pick_from((10, 0), (40, 1)), [1, 1], "1 / 10 > 2 / 40");
}

#[test]
fn unavailable_servers_and_servers_without_share_are_not_drawn() {
    let servers = [
        (0, true, 5, 0),
        (4, false, 5, 0),
        (4, true, 0, 0),
        (4, true, 1, 7),
    ];
    let picked = pick_with(&servers, &[BY_SHARE, (0, 1), (0, 1)]);
    assert_eq!(picked, Some(3));
    let picked = pick_with(&servers, &[BY_WEIGHT, (0, 8), (0, 8)]);
    assert_eq!(picked, Some(2));
    assert_eq!(pick_with(&servers[..3], &[BY_SHARE]), None);
    assert_eq!(pick_with(&servers[..2], &[BY_WEIGHT]), None);
    assert_eq!(pick_with(&[], &[BY_SHARE]), None);
}

#[test]
fn largest_shares_and_loads_do_not_overflow() {
    let servers = [(1, true, u32::MAX, u32::MAX), (1, true, u32::MAX, 0)];
    let picked = pick_with(&servers, &[BY_SHARE, (0, 2), (1, 2)]);
    assert_eq!(
        picked,
        Some(0),
        "the sum of the shares is limited to 2^32 - 1"
    );
}
