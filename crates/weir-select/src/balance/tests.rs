//! Tests the proxy's schedulers: the shares of four servers when 0, 1 or 2 of them are excluded.
//!
//! Excluded servers are without weight, full, or already tried.
//!
//! Each request ends before the next one begins. All random numbers are seeded, so the results are reproducible. With
//! other seeds, a correct scheduler fails one case in a million.

use weir_model::{NoServer, Scheduler, finalize_64};
use weir_testing::p_value;

use super::*;
use crate::test_server::TestServer;
use std::sync::atomic::Ordering::Relaxed;

const SIGNIFICANCE: f64 = 1e-6;
const REQUESTS: u64 = 6000;
const EQUAL: [u32; 4] = [1; 4];
const UNEQUAL: [u32; 4] = [3, 1, 4, 2];

/// Why servers are excluded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Exclusion {
    /// Weight 0: drained or down.
    Quiesced,
    /// The server is at its limit.
    Full,
    /// The server was the first choice for the request, and failed.
    Failing,
}

/// A pool with its servers.
struct Targets {
    list: Vec<TestServer>,
    scheduler: Scheduler,
    tiers: [usize; 2],
    version: u32,
}

impl Targets {
    fn pool(&self) -> Pool<'_, TestServer> {
        Pool {
            scheduler: self.scheduler,
            servers: &self.list,
            tier_starts: self.tiers,
            version: self.version,
            queued: 0,
            queue_timeout_ms: 0,
            no_server: NoServer::Reject,
        }
    }
}

fn targets(kind: SchedulerKind, weights: &[u32], backups: usize) -> Targets {
    let server = |(number, weight): (u8, &u32)| TestServer {
        number,
        load: Load::new(*weight, 0),
    };
    Targets {
        list: (1..).zip(weights).map(server).collect(),
        scheduler: Scheduler::new(kind),
        tiers: [weights.len() - backups, weights.len()],
        version: 0,
    }
}

fn exclude(targets: &Targets, excluded: usize, exclusion: Exclusion) {
    for target in &targets.list[..excluded] {
        match exclusion {
            Exclusion::Quiesced => target.load.weight.store(0, Relaxed),
            Exclusion::Full => {
                target.load.limit.store(5, Relaxed);
                target.load.active.store(5, Relaxed);
            }
            Exclusion::Failing => {}
        }
    }
}

fn criteria(number: u64) -> Criteria {
    let [a, b, c, d, ..] = finalize_64(number + 1).to_be_bytes();
    Criteria {
        client: ([a, b, c, d], 1000).into(),
        hash: finalize_64(finalize_64(number + 1)),
        sticky_server: None,
        tried: TriedServers::default(),
        can_wait: false,
        now_ms: 0,
    }
}

/// Returns the number of requests per server when the first `excluded` servers are excluded.
fn requests_by_server(targets: &Targets, excluded: usize, exclusion: Exclusion) -> [u64; 4] {
    exclude(targets, excluded, exclusion);
    let (mut balance, mut random) = (Balancer::default(), SplitMix64::new(0x1234_5678_9abc_def1));
    let mut count = [0; 4];
    for number in 0..REQUESTS {
        let mut criteria = criteria(number);
        let index = loop {
            let index = balance
                .pick(&targets.pool(), &criteria, &mut random)
                .expect("no usable server");
            assert!(
                !criteria.tried.contains(index),
                "{index} was selected twice"
            );
            if exclusion != Exclusion::Failing || index >= excluded {
                break index;
            }
            criteria.tried.add(index);
        };
        count[index] += 1;
    }
    count
}

fn check_cases(weights: [u32; 4], check: impl Fn(usize, Exclusion, [f64; 4])) {
    for exclusion in [Exclusion::Quiesced, Exclusion::Full, Exclusion::Failing] {
        for excluded in 0..=2 {
            let mut shares = weights.map(f64::from);
            shares[..excluded].fill(0.0);
            check(excluded, exclusion, shares);
        }
    }
}

#[test]
fn random_and_hashing_schedulers_follow_weights() {
    use SchedulerKind::{Hash, P2c, Twos};
    for kind in [P2c, Twos, Hash] {
        for weights in [EQUAL, UNEQUAL] {
            check_cases(weights, |excluded, exclusion, mut shares| {
                let count = requests_by_server(&targets(kind, &weights, 0), excluded, exclusion);
                if kind == Twos {
                    // The kernel draws from 0 to the total, inclusive, so the newest server has one extra unit of
                    // weight.
                    shares[3] += 1.0;
                }
                if kind == Twos && exclusion == Exclusion::Failing && excluded > 0 {
                    return;
                }
                let p = p_value(&count, &shares);
                let name =
                    format!("{kind} {weights:?}, {excluded} excluded, {exclusion:?}: {count:?}");
                assert!(p > SIGNIFICANCE, "{name}, p = {p:e}");
            });
        }
    }
}

#[test]
fn round_robin_shares_are_exact() {
    use SchedulerKind::{Rr, Wrr};
    for kind in [Rr, Wrr] {
        for weights in [EQUAL, UNEQUAL] {
            check_cases(weights, |excluded, exclusion, shares| {
                let shares = if kind == Rr {
                    shares.map(|share| share.min(1.0))
                } else {
                    shares
                };
                let count = requests_by_server(&targets(kind, &weights, 0), excluded, exclusion);
                for (count, fair) in count.iter().zip(fair_counts(shares)) {
                    let deviation = (*count as f64 - fair).abs();
                    // `wrr` gives the turn of a failed server to the next server in the pass.
                    let tolerance = match (kind, exclusion) {
                        (Wrr, Exclusion::Failing) if weights == UNEQUAL => fair * 0.5,
                        _ => 10.0,
                    };
                    let name = format!("{kind} {weights:?}, {excluded} excluded, {exclusion:?}");
                    assert!(deviation <= tolerance, "{name}: {count} of {fair}");
                }
            });
        }
    }
}

/// Tests that the loads are proportional to the weights if requests do not end. With `lc`, they are equal.
#[test]
fn load_schedulers_balance_by_weight() {
    use SchedulerKind::{Lc, LeastTime, Nq, P2c, Sed, Wlc};
    for kind in [Lc, Wlc, Sed, Nq, P2c, LeastTime] {
        for weights in [EQUAL, UNEQUAL] {
            for (excluded, exclusion) in [
                (0, Exclusion::Full),
                (1, Exclusion::Quiesced),
                (2, Exclusion::Full),
            ] {
                let targets = targets(kind, &weights, 0);
                exclude(&targets, excluded, exclusion);
                let (mut balance, mut random) = (Balancer::default(), SplitMix64::new(77));
                for number in 0..2000 {
                    let index = balance.pick(&targets.pool(), &criteria(number), &mut random);
                    let target = &targets.list[index.expect("no usable server")];
                    target.load.record_latency(1000, 0);
                    target.load.active.fetch_add(1, Relaxed);
                }
                let share = |index: usize| {
                    if kind == Lc {
                        1.0
                    } else {
                        f64::from(weights[index])
                    }
                };
                let total: f64 = (excluded..4).map(share).sum();
                for index in excluded..4 {
                    let fair = 2000.0 * share(index) / total;
                    let deviation =
                        (f64::from(targets.list[index].load.active.load(Relaxed)) - fair).abs();
                    // Two random choices leave small differences between servers.
                    let tolerance = if kind == P2c { 30.0 } else { 4.0 };
                    assert!(
                        deviation <= tolerance,
                        "{kind} {weights:?}, {excluded} excluded, {exclusion:?}: {index} {deviation} off {fair}"
                    );
                }
            }
        }
    }
}

/// Returns the number of requests for each server if the requests are divided by these shares.
fn fair_counts<const N: usize>(shares: [f64; N]) -> [f64; N] {
    let total: f64 = shares.iter().sum();
    shares.map(|share| REQUESTS as f64 * share / total)
}

/// Tests that idle servers share requests: each request ends before the next one begins, so their loads are equal.
#[test]
fn idle_servers_share_requests_of_load_schedulers() {
    use SchedulerKind::{Lc, Nq, Sed, Wlc};
    for kind in [Lc, Wlc, Sed, Nq] {
        for weights in [EQUAL, UNEQUAL] {
            // With `sed`, an idle server with more weight counts as less loaded.
            if kind == Sed && weights == UNEQUAL {
                continue;
            }
            check_cases(weights, |excluded, exclusion, shares| {
                // Another server takes the turn of a failed one, which shifts the shares.
                if exclusion == Exclusion::Failing && excluded > 0 && weights == UNEQUAL {
                    return;
                }
                let name = format!("{kind} {weights:?}, {excluded} excluded, {exclusion:?}");
                let shares = if kind == Lc {
                    shares.map(|share| share.min(1.0))
                } else {
                    shares
                };
                let count = requests_by_server(&targets(kind, &weights, 0), excluded, exclusion);
                for (count, fair) in count.iter().zip(fair_counts(shares)) {
                    let deviation = (*count as f64 - fair).abs();
                    assert!(deviation <= 2.0, "{name}: {count} of {fair}");
                }
            });
        }
    }
}

/// Tests that consecutive requests alternate between idle servers even while weights change, and that a server with
/// less load comes first.
#[test]
fn idle_servers_alternate_while_weights_change() {
    for weights in [[1; 4], [100; 4]] {
        let mut targets = targets(SchedulerKind::Wlc, &weights, 0);
        let (mut balancer, mut random) = (Balancer::default(), SplitMix64::new(1));
        let mut pick = |targets: &Targets| {
            let index = balancer.pick(&targets.pool(), &criteria(0), &mut random);
            index.expect("no usable server")
        };
        let mut order = Vec::new();
        for _ in 0..8 {
            order.push(pick(&targets));
            targets.version += 1;
        }
        assert_eq!(order, [3, 2, 1, 0, 3, 2, 1, 0]);
        for (target, active) in targets.list.iter().zip([2, 1, 2, 2]) {
            target.load.active.store(active, Relaxed);
        }
        assert_eq!([pick(&targets), pick(&targets)], [1, 1]);
        // A weight that used to be much greater does not exclude its server.
        targets.list[0].load.weight.store(1_000_000, Relaxed);
        for target in &targets.list {
            target.load.active.store(0, Relaxed);
        }
        targets.version += 1;
        (0..10).for_each(|_| assert_eq!(pick(&targets), 0));
        targets.list[0].load.weight.store(weights[0], Relaxed);
        targets.version += 1;
        let mut count = [0; 4];
        (0..40).for_each(|_| count[pick(&targets)] += 1);
        assert!(
            count.iter().all(|count| (8..=12).contains(count)),
            "{count:?}"
        );
    }
}

#[test]
fn fo_and_ovf_use_the_heaviest_server() {
    for (excluded, best) in [(0, 2), (1, 2), (2, 2)] {
        for exclusion in [Exclusion::Quiesced, Exclusion::Full, Exclusion::Failing] {
            let count = requests_by_server(
                &targets(SchedulerKind::Fo, &UNEQUAL, 0),
                excluded,
                exclusion,
            );
            assert_eq!(count[best], REQUESTS, "{excluded} excluded, {exclusion:?}");
            // No server has more requests than its weight.
            let count = requests_by_server(
                &targets(SchedulerKind::Ovf, &UNEQUAL, 0),
                excluded,
                exclusion,
            );
            assert_eq!(count[best], REQUESTS, "{excluded} excluded, {exclusion:?}");
        }
    }
}

/// Tests that clients of usable servers keep their servers if other servers are excluded, and that no client is
/// rejected.
#[test]
fn source_hashing_moves_only_clients_of_excluded_servers() {
    for kind in [SchedulerKind::Sh, SchedulerKind::Mh] {
        let owner = |excluded: usize, exclusion: Exclusion| {
            let mut targets = targets(kind, &EQUAL, 0);
            targets.scheduler.flags.fallback = true;
            exclude(&targets, excluded, exclusion);
            let mut balance = Balancer::default();
            let mut pick = |number| {
                let mut criteria = criteria(number);
                if exclusion == Exclusion::Failing {
                    (0..excluded).for_each(|index| criteria.tried.add(index));
                }
                balance
                    .pick(&targets.pool(), &criteria, &mut SplitMix64::new(1))
                    .expect("no usable server")
            };
            (0..1500).map(&mut pick).collect::<Vec<_>>()
        };
        let before = owner(0, Exclusion::Full);
        let mut count = [0; 4];
        before.iter().for_each(|index| count[*index] += 1);
        let p = p_value(&count, &[1.0; 4]);
        assert!(p > SIGNIFICANCE, "{kind}: {count:?}, p = {p:e}");
        for exclusion in [Exclusion::Full, Exclusion::Failing] {
            for excluded in 1..=2 {
                for (before, after) in before.iter().zip(owner(excluded, exclusion)) {
                    let keeps_server = if *before >= excluded {
                        *before == after
                    } else {
                        after >= excluded
                    };
                    assert!(
                        keeps_server,
                        "{kind}, {excluded} excluded, {exclusion:?}: {before} to {after}"
                    );
                }
            }
        }
    }
}

#[test]
fn backups_get_requests_by_weight() {
    let targets = targets(SchedulerKind::P2c, &[1, 1, 2, 2], 2);
    exclude(&targets, 2, Exclusion::Quiesced);
    let (mut balance, mut random) = (Balancer::default(), SplitMix64::new(5));
    let mut count = [0; 4];
    for number in 0..REQUESTS {
        let index = balance.pick(&targets.pool(), &criteria(number), &mut random);
        count[index.expect("no usable backup")] += 1;
    }
    let p = p_value(&count, &[0.0, 0.0, 1.0, 1.0]);
    assert!(p > SIGNIFICANCE, "{count:?}, p = {p:e}");
}

#[test]
fn unequal_backups_get_requests_by_weight_and_load() {
    let targets = targets(SchedulerKind::P2c, &[1, 1, 3, 1], 2);
    exclude(&targets, 2, Exclusion::Quiesced);
    let (mut balance, mut random) = (Balancer::default(), SplitMix64::new(5));
    let mut count = [0; 4];
    for number in 0..REQUESTS {
        let index = balance.pick(&targets.pool(), &criteria(number), &mut random);
        count[index.expect("no usable backup")] += 1;
    }
    let p = p_value(&count, &[0.0, 0.0, 3.0, 1.0]);
    assert!(p > SIGNIFICANCE, "{count:?}, p = {p:e}");
    // Both backups are drawn, and the one with fewer requests per weight is used.
    for (active, expected) in [([3, 0], 3), ([2, 1], 2), ([7, 2], 3), ([5, 2], 2)] {
        for (target, active) in targets.list[2..].iter().zip(active) {
            target.load.active.store(active, Relaxed);
        }
        for number in 0..20 {
            let index = balance.pick(&targets.pool(), &criteria(number), &mut random);
            assert_eq!(index, Some(expected), "{active:?}");
        }
    }
}

/// Tests that drained servers are not drawn, so the cost of a choice does not depend on their number.
#[test]
fn p2c_draws_two_numbers_even_with_drained_servers() {
    let mut targets = targets(SchedulerKind::P2c, &[1; 64], 0);
    let (mut balance, mut random) = (Balancer::default(), SplitMix64::new(9));
    for excluded in [0, 40, 60] {
        exclude(&targets, excluded, Exclusion::Quiesced);
        targets.version += 1;
        for number in 0..200 {
            let mut expected = random.clone();
            balance
                .pick(&targets.pool(), &criteria(number), &mut random)
                .expect("no usable server");
            expected.next_u32();
            expected.next_u32();
            assert_eq!(expected, random, "{excluded} excluded");
        }
    }
}

#[test]
fn sticky_server_is_kept_unless_full_withdrawn_or_tried() {
    let targets = targets(SchedulerKind::Rr, &EQUAL, 0);
    let (mut balancer, mut random) = (Balancer::default(), SplitMix64::new(3));
    let mut criteria = criteria(0);
    criteria.sticky_server = Some(2);
    let mut pick = |criteria: &Criteria| balancer.pick(&targets.pool(), criteria, &mut random);
    let load = &targets.list[2].load;
    for _ in 0..5 {
        assert_eq!(pick(&criteria), Some(2));
    }
    load.weight.store(0, Relaxed);
    load.sticky_while_quiesced.store(true, Relaxed);
    assert_eq!(pick(&criteria), Some(2), "a quiesced server");
    load.sticky_while_quiesced.store(false, Relaxed);
    assert_ne!(pick(&criteria), Some(2), "a drained server");
    load.weight.store(1, Relaxed);
    load.limit.store(1, Relaxed);
    load.active.store(1, Relaxed);
    assert_ne!(pick(&criteria), Some(2), "a full server");
    load.active.store(0, Relaxed);
    criteria.tried.add(2);
    assert_ne!(pick(&criteria), Some(2), "a tried server");
    criteria.sticky_server = Some(9);
    assert!(pick(&criteria).is_some(), "an index in a previous list");
}

#[test]
fn backups_are_used_before_the_sorry_server() {
    // Two primary servers, one backup, the sorry server.
    let mut targets = targets(SchedulerKind::P2c, &EQUAL, 2);
    targets.tiers = [2, 3];
    let (mut balancer, mut random) = (Balancer::default(), SplitMix64::new(3));
    let mut pick = |tried: TriedServers| {
        let criteria = Criteria {
            tried,
            ..criteria(0)
        };
        balancer.pick(&targets.pool(), &criteria, &mut random)
    };
    let mut tried = TriedServers::default();
    for expected in [&[0, 1][..], &[0, 1], &[2], &[3]] {
        let index = pick(tried).expect("no usable server");
        assert!(expected.contains(&index), "{index} of {expected:?}");
        tried.add(index);
    }
    assert_eq!(pick(tried), None);
}

#[test]
fn request_that_can_wait_does_not_use_a_backup_instead_of_a_full_server() {
    let pick = |targets: &Targets, can_wait| {
        let criteria = Criteria {
            can_wait,
            ..criteria(0)
        };
        Balancer::default().pick(&targets.pool(), &criteria, &mut SplitMix64::new(1))
    };
    // Two primary servers, one backup, the sorry server.
    let mut targets = targets(SchedulerKind::P2c, &EQUAL, 2);
    targets.tiers = [2, 3];
    exclude(&targets, 2, Exclusion::Full);
    assert_eq!(pick(&targets, false), Some(2));
    assert_eq!(pick(&targets, true), None);
    targets.list[0].load.weight.store(0, Relaxed);
    assert_eq!(pick(&targets, true), None, "one server is down");
    exclude(&targets, 2, Exclusion::Quiesced);
    assert_eq!(pick(&targets, true), Some(2), "both are down");
    exclude(&targets, 3, Exclusion::Full);
    assert_eq!(pick(&targets, false), Some(3));
    assert_eq!(pick(&targets, true), None, "the backup is full");
    exclude(&targets, 3, Exclusion::Quiesced);
    assert_eq!(pick(&targets, true), Some(3));
}

/// Tests that each scheduler is either implemented here or rejected for proxy services.
#[test]
fn only_proxy_schedulers_pick_a_server() {
    for kind in SchedulerKind::ALL {
        let targets = targets(kind, &EQUAL, 0);
        let picked =
            Balancer::default().pick(&targets.pool(), &criteria(0), &mut SplitMix64::new(1));
        assert_eq!(picked.is_some(), kind.works_in_proxy(), "{kind}");
    }
}

/// The expected servers were computed with Python from the formula in the comments: clients keep their servers during
/// an upgrade only if the formula does not change.
#[test]
fn hash_selects_the_same_servers_in_all_versions() {
    let targets = targets(SchedulerKind::Hash, &UNEQUAL, 0);
    let mut balancer = Balancer::default();
    let servers = (0..16)
        .map(|number| balancer.pick(&targets.pool(), &criteria(number), &mut SplitMix64::new(1)));
    let servers: Vec<usize> = servers.flatten().collect();
    assert_eq!(servers, [2, 0, 0, 3, 0, 2, 0, 1, 2, 0, 3, 3, 2, 2, 0, 0]);
}

/// Tests that `hash` skips a server that has reached its load bound.
#[test]
fn bounded_hash_skips_overloaded_servers() {
    let mut targets = targets(SchedulerKind::Hash, &EQUAL, 0);
    let pick = |targets: &Targets| {
        let found =
            Balancer::default().pick(&targets.pool(), &criteria(4), &mut SplitMix64::new(1));
        found.expect("no usable server")
    };
    let owner = pick(&targets);
    // With 23 requests in progress and this one, each server may have ceil(1.25 * 24 / 4) = 8.
    targets
        .list
        .iter()
        .for_each(|target| target.load.active.store(5, Relaxed));
    targets.list[owner].load.active.store(8, Relaxed);
    assert_eq!(pick(&targets), owner, "unbounded");
    targets.scheduler.max_load_percent = Some(125);
    let other = pick(&targets);
    assert_ne!(other, owner);
    targets.list[owner].load.active.store(4, Relaxed);
    assert_eq!(pick(&targets), owner);
    // If all servers have reached their bounds, the owner is used.
    targets.scheduler.max_load_percent = Some(10);
    targets
        .list
        .iter()
        .for_each(|target| target.load.active.store(500, Relaxed));
    assert_eq!(pick(&targets), owner);
}

/// Tests that a server's load bound is proportional to its weight.
#[test]
fn load_bound_of_hash_is_proportional_to_weight() {
    let mut targets = targets(SchedulerKind::Hash, &[1, 3], 0);
    targets.scheduler.max_load_percent = Some(100);
    let servers_of_100_requests = |active: [u32; 2]| {
        for (target, active) in targets.list.iter().zip(active) {
            target.load.active.store(active, Relaxed);
        }
        let mut balancer = Balancer::default();
        let mut pick =
            |number| balancer.pick(&targets.pool(), &criteria(number), &mut SplitMix64::new(1));
        let picked: std::collections::BTreeSet<usize> = (0..100).filter_map(&mut pick).collect();
        picked.into_iter().collect::<Vec<_>>()
    };
    // With the new request, 8 requests are in progress: at most 2 and 6.
    assert_eq!(servers_of_100_requests([2, 5]), [1]);
    assert_eq!(servers_of_100_requests([1, 6]), [0]);
    // 6 requests: at most 2 and 5.
    assert_eq!(servers_of_100_requests([1, 4]), [0, 1]);
    // 9 requests: at most 3 and 7.
    assert_eq!(servers_of_100_requests([2, 6]), [0, 1]);
}

#[test]
fn server_without_a_measurement_is_assumed_to_have_half_the_mean_latency() {
    let targets = targets(SchedulerKind::LeastTime, &[1; 3], 0);
    targets.list[0].load.record_latency(1100, 0);
    targets.list[1].load.record_latency(3100, 0);
    // The mean is 2100 us, so server 2 is assumed to have 1050 us.
    for (active, expected) in [
        ([0, 0, 0], 2),
        ([0, 0, 1], 0),
        ([1, 0, 1], 2),
        ([2, 0, 2], 1),
    ] {
        for (target, active) in targets.list.iter().zip(active) {
            target.load.active.store(active, Relaxed);
        }
        let found =
            Balancer::default().pick(&targets.pool(), &criteria(0), &mut SplitMix64::new(1));
        assert_eq!(found, Some(expected), "{active:?}");
    }
}

#[test]
fn source_key_contains_the_parts_that_the_flags_select() {
    let key = |client: &str, networks, port| {
        let flags = weir_model::SchedulerFlags {
            networks,
            port,
            ..Default::default()
        };
        source_key(client.parse().unwrap(), flags)
    };
    let fold = |address: &str| hash::fold(address.parse().unwrap());
    for (client, networks, port, expected) in [
        ("192.0.2.7:99", false, false, (fold("192.0.2.7"), 0)),
        ("192.0.2.7:99", false, true, (fold("192.0.2.7"), 99)),
        ("192.0.2.7:99", true, false, (fold("192.0.2.0"), 0)),
        ("[2001:db8::7]:99", true, true, (fold("2001:db8::7"), 99)),
    ] {
        assert_eq!(
            key(client, networks, port),
            expected,
            "{client} {networks} {port}"
        );
    }
}

#[test]
fn first_server_in_file_order_is_used_until_it_is_full() {
    let mut targets = targets(SchedulerKind::Fo, &[1, 5, 3], 0);
    targets.scheduler.flags.file_order = true;
    let pick = |targets: &Targets, tried| {
        let criteria = Criteria {
            tried,
            ..criteria(0)
        };
        Balancer::default().pick(&targets.pool(), &criteria, &mut SplitMix64::new(1))
    };
    let none = TriedServers::default();
    assert_eq!(pick(&targets, none), Some(0));
    let mut first = none;
    first.add(0);
    assert_eq!(pick(&targets, first), Some(1));
    exclude(&targets, 2, Exclusion::Full);
    assert_eq!(pick(&targets, none), Some(2));
    targets.scheduler.flags.file_order = false;
    exclude(&targets, 3, Exclusion::Quiesced);
    assert_eq!(pick(&targets, none), None);
}

#[test]
fn idle_servers_alternate_after_the_tables_are_invalidated() {
    let targets = targets(SchedulerKind::Wlc, &EQUAL, 0);
    let (mut balancer, mut random) = (Balancer::default(), SplitMix64::new(1));
    let mut order = Vec::new();
    for _ in 0..4 {
        order.extend(balancer.pick(&targets.pool(), &criteria(0), &mut random));
        balancer = balancer.invalidate_tables();
    }
    assert_eq!(order, [3, 2, 1, 0]);
}

/// Without `fallback`, source hashing rejects a request if its server is full. Only a retry uses another server.
#[test]
fn retry_uses_a_different_server_although_the_scheduler_rejects_the_request() {
    for kind in [SchedulerKind::Sh, SchedulerKind::Mh] {
        let targets = targets(kind, &EQUAL, 0);
        let (mut balancer, mut random) = (Balancer::default(), SplitMix64::new(1));
        let mut pick = |criteria: &Criteria| balancer.pick(&targets.pool(), criteria, &mut random);
        let fill = |index: usize| {
            targets.list[index].load.limit.store(1, Relaxed);
            targets.list[index].load.active.store(1, Relaxed);
        };
        let first_attempt = criteria(0);
        let owner = pick(&first_attempt).unwrap();
        let mut retry = criteria(0);
        retry.tried.add(owner);
        let next = pick(&retry).unwrap();
        assert_ne!(next, owner, "{kind}");
        fill(next);
        let other = pick(&retry).expect("no server was selected");
        assert!(other != owner && other != next, "{kind}");
        fill(owner);
        assert_eq!(pick(&first_attempt), None, "{kind}");
    }
}

#[test]
fn server_is_usable_again_for_the_next_request_or_without_a_limit() {
    let targets = targets(SchedulerKind::Rr, &EQUAL, 0);
    let (mut balancer, mut random) = (Balancer::default(), SplitMix64::new(1));
    let mut servers_of_four_requests = |criteria: &Criteria| {
        let mut pick = || balancer.pick(&targets.pool(), criteria, &mut random);
        let mut picked: Vec<usize> = (0..4).map(|_| pick().unwrap()).collect();
        picked.sort_unstable();
        picked
    };
    let first_attempt = criteria(0);
    let mut retry = criteria(0);
    retry.tried.add(2);
    assert!(!servers_of_four_requests(&retry).contains(&2));
    assert_eq!(servers_of_four_requests(&first_attempt), [0, 1, 2, 3]);
    exclude(&targets, 1, Exclusion::Full);
    assert!(!servers_of_four_requests(&first_attempt).contains(&0));
    targets.list[0].load.limit.store(0, Relaxed);
    assert_eq!(servers_of_four_requests(&first_attempt), [0, 1, 2, 3]);
}

#[test]
fn invalidated_tables_follow_a_new_list() {
    let first = targets(SchedulerKind::Rr, &EQUAL, 0);
    let second = targets(SchedulerKind::Rr, &[1, 1], 0);
    let (mut balancer, mut random) = (Balancer::default(), SplitMix64::new(1));
    let pick = |balancer: &mut Balancer, targets: &Targets, random: &mut SplitMix64| {
        balancer
            .pick(&targets.pool(), &criteria(0), random)
            .unwrap()
    };
    let order: Vec<usize> = (0..4)
        .map(|_| pick(&mut balancer, &first, &mut random))
        .collect();
    assert_eq!(
        order
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        4
    );
    // The version is the same, so the balancer reads the list again only because of the invalidation.
    let mut balancer = balancer.invalidate_tables();
    for _ in 0..8 {
        assert!(pick(&mut balancer, &second, &mut random) < 2);
    }
}
