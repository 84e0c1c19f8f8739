//! Shares of four servers under every scheduler of a proxy, with 0, 1 and 2 of them out: without weight, at their
//! limits, or tried already.
//!
//! Requests end before the next one begins. All numbers are seeded, so that a test that passes once always passes; with
//! other seeds a correct scheduler would fail one case in a million.

use statrs::distribution::{ChiSquared, ContinuousCDF};
use weir_model::{HashKey, Scheduler};

use super::*;

const FALSE_ALARM: f64 = 1e-6;
const REQUESTS: u64 = 6000;
const EQUAL: [u32; 4] = [1; 4];
const UNEQUAL: [u32; 4] = [3, 1, 4, 2];

/// How servers are out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Weight 0: drained or down.
    Quiesced,
    /// At its limit.
    Full,
    /// It was the first choice of the request, and failed.
    Failing,
}

fn targets(kind: SchedulerKind, weights: &[u32], backups: usize) -> Targets {
    let target = |(number, weight): (u8, &u32)| {
        let target = Target::stranger(&format!("s{number}"), [10, 0, 0, number].into(), 80, 0);
        target.load.weight.store(*weight, Relaxed);
        Arc::new(Target {
            seed: mix(number.into()),
            ..target
        })
    };
    let own = weights.len() - backups;
    Targets {
        pool: "p".to_owned(),
        scheduler: Scheduler::new(kind),
        tls: None,
        http2: false,
        list: (1..).zip(weights).map(target).collect(),
        tiers: [own, weights.len()],
        hash_key: HashKey::Source,
        sticky: None,
        preamble: None,
        line: Arc::default(),
        queue_ms: 0,
        silent: false,
        version: Arc::default(),
    }
}

fn put_out(targets: &Targets, out: usize, way: Way) {
    for target in &targets.list[..out] {
        match way {
            Way::Quiesced => target.load.weight.store(0, Relaxed),
            Way::Full => {
                target.load.most.store(5, Relaxed);
                target.load.active.store(5, Relaxed);
            }
            Way::Failing => {}
        }
    }
}

fn asked(number: u64) -> Asked {
    let [a, b, c, d, ..] = mix(number + 1).to_be_bytes();
    Asked {
        client: ([a, b, c, d], 1000).into(),
        hash: mix(mix(number + 1)),
        sticks_to: None,
        tried: Tried::default(),
        now_ms: 0,
    }
}

/// Requests that each of the servers answers; of these `out` are out.
fn answered(targets: &Targets, out: usize, way: Way) -> [u64; 4] {
    put_out(targets, out, way);
    let (mut balance, mut dice) = (Balance::default(), Dice::new(0x1234_5678_9abc_def1));
    let mut count = [0; 4];
    for number in 0..REQUESTS {
        let mut asked = asked(number);
        let at = loop {
            let at = balance
                .pick(targets, &asked, &mut dice)
                .expect("one is usable");
            assert!(!asked.tried.has(at), "{at} once more");
            if way != Way::Failing || at >= out {
                break at;
            }
            asked.tried.add(at);
        };
        count[at] += 1;
    }
    count
}

/// The probability that shares as they should be come out at least as unequal as this.
fn p_value(observed: &[u64], shares: &[f64]) -> f64 {
    let (all, whole) = (
        observed.iter().sum::<u64>() as f64,
        shares.iter().sum::<f64>(),
    );
    let mut sum = 0.0;
    for (observed, share) in observed.iter().zip(shares) {
        if *share == 0.0 {
            assert_eq!(*observed, 0, "a server that is out was chosen");
            continue;
        }
        let expected = all * share / whole;
        sum += (*observed as f64 - expected).powi(2) / expected;
    }
    match shares.iter().filter(|share| **share > 0.0).count() {
        // All went to the one that they should.
        1 => 1.0,
        servers => ChiSquared::new((servers - 1) as f64).unwrap().sf(sum),
    }
}

fn cases(weights: [u32; 4], check: impl Fn(usize, Way, [f64; 4])) {
    for way in [Way::Quiesced, Way::Full, Way::Failing] {
        for out in 0..=2 {
            let mut shares = weights.map(f64::from);
            shares[..out].fill(0.0);
            check(out, way, shares);
        }
    }
}

#[test]
fn draws_and_hashes_have_shares_by_weight() {
    use SchedulerKind::{Hash, P2c, Twos};
    for kind in [P2c, Twos, Hash] {
        for weights in [EQUAL, UNEQUAL] {
            cases(weights, |out, way, mut shares| {
                let count = answered(&targets(kind, &weights, 0), out, way);
                if kind == Twos {
                    // The kernel draws from 0 to the total, inclusive: the newest server has one part more.
                    shares[3] += 1.0;
                }
                if kind == Twos && way == Way::Failing && out > 0 {
                    return;
                }
                let p = p_value(&count, &shares);
                let name = format!("{kind} {weights:?}, {out} out, {way:?}: {count:?}");
                assert!(p > FALSE_ALARM, "{name}, p = {p:e}");
            });
        }
    }
}

#[test]
fn rounds_have_exact_shares() {
    use SchedulerKind::{Rr, Wrr};
    for kind in [Rr, Wrr] {
        for weights in [EQUAL, UNEQUAL] {
            cases(weights, |out, way, shares| {
                let share = |share: f64| if kind == Rr { share.min(1.0) } else { share };
                let shares = shares.map(share);
                let total: f64 = shares.iter().sum();
                let count = answered(&targets(kind, &weights, 0), out, way);
                for (count, share) in count.iter().zip(shares) {
                    let fair = REQUESTS as f64 * share / total;
                    let off = (*count as f64 - fair).abs();
                    // A pass of wrr that meets a failing server gives that turn to the next of the pass.
                    let may = match (kind, way) {
                        (Wrr, Way::Failing) if weights == UNEQUAL => fair * 0.5,
                        _ => 10.0,
                    };
                    let name = format!("{kind} {weights:?}, {out} out, {way:?}");
                    assert!(off <= may, "{name}: {count} of {fair}");
                }
            });
        }
    }
}

/// Requests that stay: loads are level by weight.
#[test]
fn least_loads_are_level() {
    use SchedulerKind::{Lc, LeastTime, Nq, P2c, Sed, Wlc};
    for kind in [Lc, Wlc, Sed, Nq, P2c, LeastTime] {
        for weights in [EQUAL, UNEQUAL] {
            for (out, way) in [(0, Way::Full), (1, Way::Quiesced), (2, Way::Full)] {
                let targets = targets(kind, &weights, 0);
                put_out(&targets, out, way);
                let (mut balance, mut dice) = (Balance::default(), Dice::new(77));
                for number in 0..2000 {
                    let at = balance.pick(&targets, &asked(number), &mut dice);
                    let target = &targets.list[at.expect("one is usable")];
                    target.load.learn(1000, 0);
                    target.load.active.fetch_add(1, Relaxed);
                }
                let share = |at: usize| {
                    if kind == Lc {
                        1.0
                    } else {
                        f64::from(weights[at])
                    }
                };
                let total: f64 = (out..4).map(share).sum();
                for at in out..4 {
                    let fair = 2000.0 * share(at) / total;
                    let off = (f64::from(targets.list[at].load.active.load(Relaxed)) - fair).abs();
                    // Two draws leave a few between the servers.
                    let may = if kind == P2c { 30.0 } else { 4.0 };
                    assert!(
                        off <= may,
                        "{kind} {weights:?}, {out} out, {way:?}: {at} {off} off {fair}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_heaviest_take_all_or_what_they_may() {
    for (out, best) in [(0, 2), (1, 2), (2, 2)] {
        for way in [Way::Quiesced, Way::Full, Way::Failing] {
            let count = answered(&targets(SchedulerKind::Fo, &UNEQUAL, 0), out, way);
            assert_eq!(count[best], REQUESTS, "{out} out, {way:?}");
            // None of them has more than its weight under way: the heaviest again.
            let count = answered(&targets(SchedulerKind::Ovf, &UNEQUAL, 0), out, way);
            assert_eq!(count[best], REQUESTS, "{out} out, {way:?}");
        }
    }
}

/// Clients of servers that are usable stay with them, whoever else is out; of those that must move none is refused.
#[test]
fn hashes_of_clients_move_only_those_of_servers_that_are_out() {
    for kind in [SchedulerKind::Sh, SchedulerKind::Mh] {
        let owner = |out: usize, way: Way| {
            let mut targets = targets(kind, &EQUAL, 0);
            targets.scheduler.flags.fallback = true;
            put_out(&targets, out, way);
            let mut balance = Balance::default();
            let mut pick = |number| {
                let mut asked = asked(number);
                if way == Way::Failing {
                    (0..out).for_each(|at| asked.tried.add(at));
                }
                balance
                    .pick(&targets, &asked, &mut Dice::new(1))
                    .expect("one is usable")
            };
            (0..1500).map(&mut pick).collect::<Vec<_>>()
        };
        let before = owner(0, Way::Full);
        let mut count = [0; 4];
        before.iter().for_each(|at| count[*at] += 1);
        let p = p_value(&count, &[1.0; 4]);
        assert!(p > FALSE_ALARM, "{kind}: {count:?}, p = {p:e}");
        for way in [Way::Full, Way::Failing] {
            for out in 1..=2 {
                for (before, after) in before.iter().zip(owner(out, way)) {
                    let stays = if *before >= out {
                        *before == after
                    } else {
                        after >= out
                    };
                    assert!(stays, "{kind}, {out} out, {way:?}: {before} to {after}");
                }
            }
        }
    }
}

#[test]
fn backups_share_what_comes_to_them() {
    let targets = targets(SchedulerKind::P2c, &[1, 1, 2, 2], 2);
    put_out(&targets, 2, Way::Quiesced);
    let (mut balance, mut dice) = (Balance::default(), Dice::new(5));
    let mut count = [0; 4];
    for number in 0..REQUESTS {
        let at = balance.pick(&targets, &asked(number), &mut dice);
        count[at.expect("a backup")] += 1;
    }
    let p = p_value(&count, &[0.0, 0.0, 1.0, 1.0]);
    assert!(p > FALSE_ALARM, "{count:?}, p = {p:e}");
}

/// Drained servers are not drawn, so that a pick costs the same however many there are.
#[test]
fn two_choices_draw_two_numbers() {
    let targets = targets(SchedulerKind::P2c, &[1; 64], 0);
    let (mut balance, mut dice) = (Balance::default(), Dice::new(9));
    for out in [0, 40, 60] {
        put_out(&targets, out, Way::Quiesced);
        targets.version.fetch_add(1, Relaxed);
        for number in 0..200 {
            let mut counted = Dice(dice.0);
            balance
                .pick(&targets, &asked(number), &mut dice)
                .expect("one is usable");
            counted.roll();
            counted.roll();
            assert_eq!(counted.0, dice.0, "{out} out");
        }
    }
}
