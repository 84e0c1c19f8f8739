//! Shares of four servers under every scheduler of the data plane, with 0, 1 and 2 of them unavailable: quiesced or at
//! their thresholds.
//!
//! Counting schedulers must have exact shares; drawing and hashing ones must pass a chi-square test. All numbers are
//! seeded, so results are reproducible; with other seeds a correct scheduler would fail one case in a million.

use std::net::{IpAddr, Ipv4Addr};

use weir_sched::choice::{Arrival, Service};
use weir_sched::locality::Cache;
use weir_sched::table::{rr, wrr};
use weir_sched::{Counts, Cursor, Flags, Kind, Member, Mode, Start, bucket, hash, maglev, mh};
use weir_testing::p_value;

const FALSE_ALARM: f64 = 1e-6;
const FLOWS: u32 = 6000;

/// Why servers are unavailable.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Exclusion {
    /// Weight 0: drained or down.
    Quiesced,
    /// At the upper threshold.
    Full,
}

struct World {
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

impl World {
    /// Servers 1 to 4 in the order of adding; the first `out` are unavailable.
    fn new(kind: Kind, weights: [u32; 4], out: usize, way: Exclusion) -> Self {
        let is_out = |number: u32| number as usize <= out;
        let member = |number: u32| Member {
            seq: number,
            dest: number,
            weight: match weights[number as usize - 1] {
                _ if is_out(number) && way == Exclusion::Quiesced => 0,
                weight => weight,
            },
            slot: number,
            usable: !(is_out(number) && way == Exclusion::Full),
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
        let picked = |index: Option<usize>| index.map(|index| members[index].dest);
        match self.kind {
            Kind::Rr => picked(rr::pick(members, &self.start, &mut self.cursor)),
            Kind::Wrr => picked(wrr::pick(members, &self.start, &mut self.cursor)),
            Kind::Lblc | Kind::Lblcr => {
                picked(self.cache.pick(members, &counts, arrival.destination, 1))
            }
            kind => {
                let draws = &mut self.draws;
                let service = Service {
                    kind,
                    // If full owners refused, there would be nothing to compare.
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

    /// Flows of each server; `stay` = they do not end.
    fn arrive(&mut self, flows: u32, stay: bool) -> [u64; 4] {
        let mut chosen = [0; 4];
        for flow in 0..flows {
            let server = self.choose(flow).expect("two servers are usable") as usize;
            chosen[server - 1] += 1;
            self.counts[server].active += u32::from(stay);
        }
        chosen
    }

    /// Weights of the servers that are usable.
    fn usable(&self) -> [u32; 4] {
        let mut usable = [0; 4];
        for member in self.members.iter().filter(|member| member.available()) {
            usable[member.dest as usize - 1] = member.weight;
        }
        usable
    }
}

/// Runs over both ways, 0 to 2 servers out.
fn cases(kind: Kind, weights: [u32; 4], check: impl Fn(World, &str)) {
    for way in [Exclusion::Quiesced, Exclusion::Full] {
        for out in 0..=2 {
            let name = format!("{kind} {weights:?}, {out} out, {way:?}");
            check(World::new(kind, weights, out, way), &name);
        }
    }
}

const EQUAL: [u32; 4] = [1; 4];
const UNEQUAL: [u32; 4] = [3, 1, 4, 2];

#[test]
fn rounds_have_exact_shares() {
    for weights in [EQUAL, UNEQUAL] {
        cases(Kind::Rr, weights, |mut world, name| {
            let usable = world.usable().map(|weight| u64::from(weight > 0));
            let each = 600 / usable.iter().sum::<u64>();
            assert_eq!(
                world.arrive(600, false),
                usable.map(|one| one * each),
                "{name}"
            );
        });
        cases(Kind::Wrr, weights, |mut world, name| {
            let usable = world.usable().map(u64::from);
            let rounds = 50 * usable.iter().sum::<u64>() as u32;
            assert_eq!(
                world.arrive(rounds, false),
                usable.map(|one| one * 50),
                "{name}"
            );
        });
    }
}

/// With flows that stay, servers have their shares by weight, except for one round's remainder.
#[test]
fn least_loads_have_exact_shares() {
    let weighted = [Kind::Wlc, Kind::Sed, Kind::Nq, Kind::Lblc, Kind::Lblcr];
    for weights in [EQUAL, UNEQUAL] {
        for kind in weighted.into_iter().chain([Kind::Lc]) {
            cases(kind, weights, |mut world, name| {
                let share = |weight: u32| {
                    if kind == Kind::Lc {
                        weight.min(1)
                    } else {
                        weight
                    }
                };
                let usable = world.usable().map(share).map(f64::from);
                let total: f64 = usable.iter().sum();
                let got = world.arrive(FLOWS, true);
                for (got, share) in got.iter().zip(usable) {
                    let fair = f64::from(FLOWS) * share / total;
                    let off = (*got as f64 - fair).abs();
                    assert!(
                        off <= if share > 0.0 { 4.0 } else { 0.0 },
                        "{name}: {got} of {fair}"
                    );
                }
            });
        }
    }
}

#[test]
fn heaviest_server_takes_all_or_up_to_its_weight() {
    cases(Kind::Fo, UNEQUAL, |mut world, name| {
        let heaviest = world.usable().into_iter().max().unwrap();
        let expected = world
            .usable()
            .map(|weight| if weight == heaviest { 100 } else { 0 });
        assert_eq!(world.arrive(100, true), expected, "{name}");
    });
    cases(Kind::Ovf, UNEQUAL, |mut world, name| {
        // One more than its weight each.
        let expected = world
            .usable()
            .map(|weight| if weight > 0 { weight + 1 } else { 0 });
        let flows = expected.iter().sum();
        assert_eq!(world.arrive(flows, true), expected.map(u64::from), "{name}");
    });
}

#[test]
fn two_choices_of_idle_servers_have_shares_by_weight() {
    for weights in [EQUAL, UNEQUAL, [1, 100, 100, 1]] {
        cases(Kind::P2c, weights, |mut world, name| {
            let shares = world.usable().map(f64::from);
            let got = world.arrive(FLOWS, false);
            let p = p_value(&got, &shares);
            assert!(p > FALSE_ALARM, "{name}: {got:?}, p = {p:e}");
        });
        cases(Kind::Twos, weights, |mut world, name| {
            // The kernel draws from 0 to the total, inclusive: the first of the list has one part more.
            let mut shares = world.usable().map(f64::from);
            shares[3] += 1.0;
            let got = world.arrive(FLOWS, false);
            let p = p_value(&got, &shares);
            assert!(p > FALSE_ALARM, "{name}: {got:?}, p = {p:e}");
        });
    }
}

/// With flows that stay, two choices keep servers as close to their shares as random deviation allows.
#[test]
fn two_choices_keep_loads_level() {
    for weights in [EQUAL, UNEQUAL] {
        cases(Kind::P2c, weights, |mut world, name| {
            let shares = world.usable().map(f64::from);
            let got = world.arrive(FLOWS, true);
            let p = p_value(&got, &shares);
            assert!(p > 0.5, "{name}: {got:?}, p = {p:e}");
        });
    }
}

/// A hash gives each server its share of the clients. If servers are at their thresholds, only their own clients move:
/// with `mh` and `maglev` to all others by weight; with `dh` and `sh`, as in the kernel, to the owners of the next
/// buckets.
#[test]
fn hashes_distribute_the_clients_of_full_servers() {
    const CLIENTS: u32 = 1200;
    for (kind, places) in [
        (Kind::Dh, bucket::BUCKETS as u32),
        (Kind::Sh, bucket::BUCKETS as u32),
        (Kind::Mh, mh::SIZE),
        (Kind::Maglev, maglev::size_for(4)),
    ] {
        for weights in [EQUAL, UNEQUAL] {
            // dh does not go by weights.
            let share = |weight: u32| match kind {
                Kind::Dh => f64::from(weight.min(1)),
                _ => f64::from(weight),
            };
            let owners = |out: usize| {
                let mut world = World::new(kind, weights, out, Exclusion::Full);
                let client = |flow| world.choose(flow).expect("two are usable") as usize;
                (0..CLIENTS).map(client).collect::<Vec<_>>()
            };
            let before = owners(0);
            for out in 0..=2 {
                let name = format!("{kind} {weights:?}, {out} out");
                let (mut whole, mut moved) = ([0; 4], [0; 4]);
                for (before, after) in before.iter().zip(owners(out)) {
                    let count = if *before <= out {
                        &mut moved
                    } else {
                        &mut whole
                    };
                    count[after - 1] += 1;
                    assert!(
                        after > out && (*before <= out || *before == after),
                        "{name}"
                    );
                }
                if out == 0 {
                    let p = p_value(&whole, &weights.map(share));
                    assert!(p > FALSE_ALARM, "{name}: {whole:?}, p = {p:e}");
                } else if matches!(kind, Kind::Mh | Kind::Maglev) {
                    // Clients of one entry move together: there are as many independent moves as entries.
                    let usable = World::new(kind, weights, out, Exclusion::Full).usable();
                    let moves = moved
                        .map(|count| count * u64::from(places.min(CLIENTS)) / u64::from(CLIENTS));
                    let p = p_value(&moves, &usable.map(share));
                    assert!(p > FALSE_ALARM, "{name}: {moves:?}, p = {p:e}");
                }
            }
        }
    }
}
