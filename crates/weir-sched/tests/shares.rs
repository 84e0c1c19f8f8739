//! Tests the data plane's schedulers: the shares of four servers while 0, 1 or 2 of them are unavailable.
//!
//! Unavailable servers are quiesced, or at their thresholds.
//!
//! Deterministic schedulers must produce exact shares; random and hashing schedulers must pass a chi-square test. All
//! random numbers are seeded, so the results are reproducible. With other seeds, a correct scheduler would fail in one
//! case in a million.

use std::net::{IpAddr, Ipv4Addr};

use weir_sched::choice::{Arrival, Service};
use weir_sched::locality::Cache;
use weir_sched::table::{rr, wrr};
use weir_sched::{Counts, Cursor, Flags, Kind, Member, Mode, Start, bucket, hash, maglev, mh};
use weir_testing::p_value;

const SIGNIFICANCE: f64 = 1e-6;
const FLOWS: u32 = 6000;

/// Why servers are unavailable.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Exclusion {
    /// Weight 0: drained or down.
    Quiesced,
    /// At the upper threshold.
    Full,
}

struct Fixture {
    kind: Kind,
    members: Vec<Member>,
    counts: [Counts; 5],
    spread: Vec<u32>,
    entries: Vec<mh::Entry>,
    start: Start,
    cursor: Cursor,
    cache: Cache,
    draws: u32,
}

impl Fixture {
    /// Creates servers 1 to 4, in the order in which they were added; the first `unavailable` of them are unavailable.
    fn new(kind: Kind, weights: [u32; 4], unavailable: usize, exclusion: Exclusion) -> Self {
        let is_unavailable = |number: u32| number as usize <= unavailable;
        let member = |number: u32| Member {
            seq: number,
            dest: number,
            weight: match weights[number as usize - 1] {
                _ if is_unavailable(number) && exclusion == Exclusion::Quiesced => 0,
                weight => weight,
            },
            slot: number,
            usable: !(is_unavailable(number) && exclusion == Exclusion::Full),
        };
        let members: Vec<Member> = (1..=4).rev().map(member).collect();
        let entries = members.iter().map(|member| mh::Entry {
            dest: member.dest,
            last_weight: weights[member.dest as usize - 1],
            fold: 0x0a00_0000 + member.dest,
            port: 0,
        });
        let spread = members.iter().map(|member| maglev::Entry {
            dest: member.dest,
            weight: member.weight,
            name: hash::mix_64(member.dest.into()),
        });
        Self {
            kind,
            counts: [Counts::default(); 5],
            spread: maglev::table(&spread.collect::<Vec<_>>(), maglev::size_for(4)).unwrap(),
            entries: entries.collect(),
            start: match kind {
                Kind::Wrr => wrr::start(&members),
                _ => rr::start(),
            },
            cursor: Cursor::default(),
            cache: Cache::new(kind, u32::MAX),
            draws: 0,
            members,
        }
    }

    fn choose(&mut self, flow: u32) -> Option<u32> {
        let counts = self.counts;
        let counts = |slot: u32| counts[slot as usize];
        let random = hash::mix_64(u64::from(flow) << 8 | 5);
        let arrival = Arrival {
            source: Ipv4Addr::from(random as u32).into(),
            source_port: (random >> 32) as u16,
            destination: IpAddr::V4(Ipv4Addr::from((random >> 17) as u32)),
            hash: hash::mix_64(random),
        };
        let members = &self.members;
        let dest_at = |index: Option<usize>| index.map(|index| members[index].dest);
        match self.kind {
            Kind::Rr => dest_at(rr::pick(members, &self.start, &mut self.cursor)),
            Kind::Wrr => dest_at(wrr::pick(members, &self.start, &mut self.cursor)),
            Kind::Lblc | Kind::Lblcr => {
                dest_at(self.cache.pick(members, &counts, arrival.destination, 1))
            }
            kind => {
                let draws = &mut self.draws;
                let service = Service {
                    kind,
                    // Without fallback, flows of a full server would be rejected, and there would be no shares to
                    // compare.
                    mode: Mode::Fallback,
                    flags: Flags::default(),
                    networks: false,
                    members,
                    entries: &self.entries,
                    spread: &self.spread,
                    max_load: None,
                };
                service.choose(&arrival, &counts, &mut || {
                    *draws += 1;
                    hash::seeded_draw(7, *draws)
                })
            }
        }
    }

    /// Schedules `flows` flows, and returns the number for each server. If `keep_active` is true, the flows remain
    /// active.
    fn schedule(&mut self, flows: u32, keep_active: bool) -> [u64; 4] {
        let mut flow_counts = [0; 4];
        for flow in 0..flows {
            let server = self.choose(flow).expect("a server must be usable") as usize;
            flow_counts[server - 1] += 1;
            self.counts[server].active += u32::from(keep_active);
        }
        flow_counts
    }

    /// Returns the weights of the usable servers, and 0 for the others.
    fn usable_weights(&self) -> [u32; 4] {
        let mut usable = [0; 4];
        for member in self.members.iter().filter(|member| member.is_available()) {
            usable[member.dest as usize - 1] = member.weight;
        }
        usable
    }
}

/// Runs `check` with 0 to 2 servers unavailable, for each kind of exclusion.
fn check_cases(kind: Kind, weights: [u32; 4], check: impl Fn(Fixture, &str)) {
    for exclusion in [Exclusion::Quiesced, Exclusion::Full] {
        for unavailable in 0..=2 {
            let name = format!("{kind} {weights:?}, {unavailable} unavailable, {exclusion:?}");
            check(Fixture::new(kind, weights, unavailable, exclusion), &name);
        }
    }
}

const EQUAL: [u32; 4] = [1; 4];
const UNEQUAL: [u32; 4] = [3, 1, 4, 2];

#[test]
fn round_robin_shares_are_exact() {
    for weights in [EQUAL, UNEQUAL] {
        check_cases(Kind::Rr, weights, |mut fixture, name| {
            let usable = fixture.usable_weights().map(|weight| u64::from(weight > 0));
            let flows_per_server = 600 / usable.iter().sum::<u64>();
            assert_eq!(
                fixture.schedule(600, false),
                usable.map(|share| share * flows_per_server),
                "{name}"
            );
        });
        check_cases(Kind::Wrr, weights, |mut fixture, name| {
            let usable = fixture.usable_weights().map(u64::from);
            let rounds = 50 * usable.iter().sum::<u64>() as u32;
            assert_eq!(
                fixture.schedule(rounds, false),
                usable.map(|share| share * 50),
                "{name}"
            );
        });
    }
}

/// Tests that, if flows do not end, each server's share is proportional to its weight, to within one round (4 flows).
/// `lc` ignores weights.
#[test]
fn least_connection_shares_are_proportional_to_weights() {
    let weighted = [Kind::Wlc, Kind::Sed, Kind::Nq, Kind::Lblc, Kind::Lblcr];
    for weights in [EQUAL, UNEQUAL] {
        for kind in weighted.into_iter().chain([Kind::Lc]) {
            check_cases(kind, weights, |mut fixture, name| {
                let share = |weight: u32| {
                    if kind == Kind::Lc {
                        weight.min(1)
                    } else {
                        weight
                    }
                };
                let usable = fixture.usable_weights().map(share).map(f64::from);
                let total: f64 = usable.iter().sum();
                let counts = fixture.schedule(FLOWS, true);
                for (count, share) in counts.iter().zip(usable) {
                    let fair = f64::from(FLOWS) * share / total;
                    let deviation = (*count as f64 - fair).abs();
                    assert!(
                        deviation <= if share > 0.0 { 4.0 } else { 0.0 },
                        "{name}: {count} flows, expected {fair}"
                    );
                }
            });
        }
    }
}

#[test]
fn fo_uses_heaviest_server_and_ovf_overflows_above_its_weight() {
    check_cases(Kind::Fo, UNEQUAL, |mut fixture, name| {
        let heaviest = fixture.usable_weights().into_iter().max().unwrap();
        let expected = fixture
            .usable_weights()
            .map(|weight| if weight == heaviest { 100 } else { 0 });
        assert_eq!(fixture.schedule(100, true), expected, "{name}");
    });
    check_cases(Kind::Ovf, UNEQUAL, |mut fixture, name| {
        // `ovf` overflows only if the active flows exceed the weight, so each server gets its weight + 1.
        let expected = fixture
            .usable_weights()
            .map(|weight| if weight > 0 { weight + 1 } else { 0 });
        let flows = expected.iter().sum();
        assert_eq!(
            fixture.schedule(flows, true),
            expected.map(u64::from),
            "{name}"
        );
    });
}

#[test]
fn p2c_and_twos_follow_weights_when_idle() {
    for weights in [EQUAL, UNEQUAL, [1, 100, 100, 1]] {
        check_cases(Kind::P2c, weights, |mut fixture, name| {
            let shares = fixture.usable_weights().map(f64::from);
            let counts = fixture.schedule(FLOWS, false);
            let p = p_value(&counts, &shares);
            assert!(p > SIGNIFICANCE, "{name}: {counts:?}, p = {p:e}");
        });
        check_cases(Kind::Twos, weights, |mut fixture, name| {
            // The kernel draws from 0 to the total, inclusive: the first server in the list has one extra unit of
            // weight.
            let mut shares = fixture.usable_weights().map(f64::from);
            shares[3] += 1.0;
            let counts = fixture.schedule(FLOWS, false);
            let p = p_value(&counts, &shares);
            assert!(p > SIGNIFICANCE, "{name}: {counts:?}, p = {p:e}");
        });
    }
}

/// Tests that P2C keeps loads closer to their shares than independent random choices typically would (p > 0.5).
#[test]
fn p2c_balances_long_lived_flows() {
    for weights in [EQUAL, UNEQUAL] {
        check_cases(Kind::P2c, weights, |mut fixture, name| {
            let shares = fixture.usable_weights().map(f64::from);
            let counts = fixture.schedule(FLOWS, true);
            let p = p_value(&counts, &shares);
            assert!(p > 0.5, "{name}: {counts:?}, p = {p:e}");
        });
    }
}

/// Tests that hashing schedulers assign each server its share of clients. If a server is at its threshold, only its
/// clients move: `mh` and `maglev` distribute them across the other servers by weight; `dh` and `sh`, as in the kernel,
/// move them to the servers of the next buckets.
#[test]
fn hashing_schedulers_redistribute_clients_of_full_servers() {
    const CLIENTS: u32 = 1200;
    for (kind, table_size) in [
        (Kind::Dh, bucket::BUCKETS as u32),
        (Kind::Sh, bucket::BUCKETS as u32),
        (Kind::Mh, mh::SIZE),
        (Kind::Maglev, maglev::size_for(4)),
    ] {
        for weights in [EQUAL, UNEQUAL] {
            // `dh` ignores weights.
            let share = |weight: u32| match kind {
                Kind::Dh => f64::from(weight.min(1)),
                _ => f64::from(weight),
            };
            let owners = |unavailable: usize| {
                let mut fixture = Fixture::new(kind, weights, unavailable, Exclusion::Full);
                let client = |flow| fixture.choose(flow).expect("a server must be usable") as usize;
                (0..CLIENTS).map(client).collect::<Vec<_>>()
            };
            let before = owners(0);
            for unavailable in 0..=2 {
                let name = format!("{kind} {weights:?}, {unavailable} unavailable");
                let (mut unmoved, mut moved) = ([0; 4], [0; 4]);
                for (before, after) in before.iter().zip(owners(unavailable)) {
                    let count = if *before <= unavailable {
                        &mut moved
                    } else {
                        &mut unmoved
                    };
                    count[after - 1] += 1;
                    assert!(
                        after > unavailable && (*before <= unavailable || *before == after),
                        "{name}"
                    );
                }
                if unavailable == 0 {
                    let p = p_value(&unmoved, &weights.map(share));
                    assert!(p > SIGNIFICANCE, "{name}: {unmoved:?}, p = {p:e}");
                } else if matches!(kind, Kind::Mh | Kind::Maglev) {
                    // Clients that hash to the same table entry move together, so the number of independent samples is
                    // the number of entries.
                    let usable =
                        Fixture::new(kind, weights, unavailable, Exclusion::Full).usable_weights();
                    let moves = moved.map(|count| {
                        count * u64::from(table_size.min(CLIENTS)) / u64::from(CLIENTS)
                    });
                    let p = p_value(&moves, &usable.map(share));
                    assert!(p > SIGNIFICANCE, "{name}: {moves:?}, p = {p:e}");
                }
            }
        }
    }
}
