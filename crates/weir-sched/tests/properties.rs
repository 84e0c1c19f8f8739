//! Tests properties of all schedulers, such as shares that are proportional to weights.
//!
//! Servers without weight are never chosen, the same flows get the same servers, and removing a server moves few
//! clients of hashing schedulers.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use weir_model::GOLDEN_64;
use weir_sched::choice::{Arrival, Service};
use weir_sched::locality::Cache;
use weir_sched::table::{rr, wrr};
use weir_sched::{Counts, Cursor, Flags, Kind, Member, Mode, Start, hash, maglev, mh};

/// A service with flows that never end.
struct Fixture {
    kind: Kind,
    mode: Mode,
    members: Vec<Member>,
    counts: Vec<Counts>,
    spread: Vec<u32>,
    start: Start,
    cursor: Cursor,
    cache: Cache,
    draws: u32,
}

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn entries(members: &[Member]) -> Vec<mh::Entry> {
    let entry = |member: &Member| mh::Entry {
        dest: member.dest,
        last_weight: member.weight,
        fold: hash::fold(address(member.dest)),
        port: 0,
    };
    members.iter().map(entry).collect()
}

fn spread(members: &[Member], size: u32) -> Vec<u32> {
    let entries: Vec<maglev::Entry> = members
        .iter()
        .map(|member| maglev::Entry {
            dest: member.dest,
            weight: member.weight,
            name: u64::from(member.dest).wrapping_mul(GOLDEN_64),
        })
        .collect();
    maglev::table(&entries, size).unwrap()
}

impl Fixture {
    /// Creates servers with these weights, numbered from 1 in the order in which they were added. The newest is the
    /// first member.
    fn new(kind: Kind, mode: Mode, weights: &[u32]) -> Self {
        let member = |(number, weight): (u32, &u32)| Member {
            seq: number,
            dest: number,
            weight: *weight,
            slot: number,
            usable: true,
        };
        let mut members: Vec<Member> = (1..).zip(weights).map(member).collect();
        members.reverse();
        let start = match kind {
            Kind::Wrr => wrr::start(&members),
            _ => rr::start(),
        };
        Self {
            kind,
            mode,
            spread: spread(&members, maglev::size_for(members.len())),
            counts: vec![Counts::default(); weights.len() + 1],
            members,
            start,
            cursor: Cursor::default(),
            cache: Cache::new(kind, u32::MAX),
            draws: 0,
        }
    }

    fn choose(&mut self, flow: u32) -> Option<u32> {
        let counts = self.counts.clone();
        let counts = |slot: u32| counts[slot as usize];
        let arrival = Arrival {
            source: Ipv4Addr::from(0xc633_6400 ^ flow.wrapping_mul(0x9e37_79b1)).into(),
            source_port: flow as u16,
            destination: Ipv4Addr::from(0xc000_0200 + flow % 5).into(),
            hash: u64::from(flow).wrapping_mul(GOLDEN_64),
        };
        let members = &self.members;
        let dest_at = |index: Option<usize>| index.map(|index| members[index].dest);
        match self.kind {
            Kind::Rr => dest_at(rr::pick(members, &self.start, &mut self.cursor)),
            Kind::Wrr => dest_at(wrr::pick(members, &self.start, &mut self.cursor)),
            Kind::Lblc | Kind::Lblcr => {
                dest_at(self.cache.pick(members, &counts, arrival.destination, 1))
            }
            _ => {
                let draws = &mut self.draws;
                let service = Service {
                    kind: self.kind,
                    mode: self.mode,
                    flags: Flags::default(),
                    networks: false,
                    members,
                    entries: &entries(members),
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

    /// Returns the servers for this many flows, none of which ends.
    fn arrive(&mut self, flows: u32) -> Vec<Option<u32>> {
        let mut chosen = Vec::new();
        for flow in 0..flows {
            let server = self.choose(flow);
            if let Some(server) = server {
                self.counts[server as usize].active += 1;
            }
            chosen.push(server);
        }
        chosen
    }

    fn active(&self, dest: u32) -> u64 {
        self.counts[dest as usize].active.into()
    }
}

/// Returns the number of flows and the weight of each server after this many new flows.
fn shares(kind: Kind, weights: &[u32], flows: u32) -> Vec<(u64, u64)> {
    let mut fixture = Fixture::new(kind, Mode::Repair, weights);
    fixture.arrive(flows);
    let share = |(dest, weight): (u32, &u32)| (fixture.active(dest), u64::from(*weight));
    (1..).zip(weights).map(share).collect()
}

/// Returns all schedulers except those that only the proxy supports.
fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.works_at_layer4())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn only_servers_with_weight_are_chosen(
        weights in prop::collection::vec(0_u32..6, 1..8),
    ) {
        for kind in kinds() {
            for mode in [Mode::Strict, Mode::Repair, Mode::Fallback] {
                let mut fixture = Fixture::new(kind, mode, &weights);
                for chosen in fixture.arrive(30) {
                    let weight = chosen.map(|dest| weights[dest as usize - 1]);
                    prop_assert_ne!(weight, Some(0), "{:?} {:?}", kind, mode);
                    let may_reject = mode == Mode::Strict || kind == Kind::Ovf;
                    let has_weight = weights.iter().any(|weight| *weight > 0);
                    prop_assert!(weight.is_some() || may_reject || !has_weight, "{:?} {:?}", kind, mode);
                }
            }
        }
    }

    #[test]
    fn same_flows_get_the_same_servers(
        weights in prop::collection::vec(0_u32..6, 1..8),
    ) {
        for kind in kinds() {
            let servers_of_flows = || Fixture::new(kind, Mode::Repair, &weights).arrive(40);
            prop_assert_eq!(servers_of_flows(), servers_of_flows(), "{:?}", kind);
        }
    }

    /// Tests that each server's last flow went to the least loaded server. The loads are compared before the flow
    /// (`wlc` and `lc`), or including the flow (`sed`).
    #[test]
    fn loads_are_balanced_by_weight(weights in prop::collection::vec(1_u32..9, 1..8), flows in 1_u32..200) {
        for (kind, weighted) in [(Kind::Wlc, true), (Kind::Lc, false), (Kind::Sed, true)] {
            let shares = shares(kind, &weights, flows);
            for (flows, weight) in shares.iter().filter(|share| share.0 > 0) {
                for (other_flows, other) in &shares {
                    let (weight, other) = if weighted { (*weight, *other) } else { (1, 1) };
                    let is_balanced = match kind {
                        Kind::Sed => flows * other <= (other_flows + 1) * weight,
                        _ => (flows - 1) * other <= other_flows * weight,
                    };
                    prop_assert!(is_balanced, "{:?} {:?}", kind, shares);
                }
            }
        }
    }

    #[test]
    fn round_robin_shares_are_exact(weights in prop::collection::vec(1_u32..9, 1..8), rounds in 1_u32..5) {
        let servers = weights.len() as u32;
        let server_shares = shares(Kind::Rr, &weights, rounds * servers);
        prop_assert!(server_shares.iter().all(|share| share.0 == u64::from(rounds)), "{:?}", server_shares);
        let total = weights.iter().sum::<u32>();
        let server_shares = shares(Kind::Wrr, &weights, rounds * total);
        prop_assert!(server_shares.iter().all(|share| share.0 == u64::from(rounds) * share.1), "{:?}", server_shares);
    }

    #[test]
    fn heaviest_servers_fill_up_first(weights in prop::collection::vec(1_u32..9, 1..8), flows in 1_u32..60) {
        let max_weight = u64::from(*weights.iter().max().unwrap());
        for (active, weight) in shares(Kind::Fo, &weights, flows) {
            prop_assert!(active == 0 || active == u64::from(flows) && weight == max_weight);
        }
        let overflow = shares(Kind::Ovf, &weights, flows);
        for (active, weight) in &overflow {
            prop_assert!(*active <= weight + 1);
            let heavier_is_full = |share: &(u64, u64)| share.1 <= *weight || share.0 > share.1;
            prop_assert!(*active == 0 || overflow.iter().all(heavier_is_full), "{:?}", overflow);
        }
        let nq_shares = shares(Kind::Nq, &weights, weights.len() as u32);
        prop_assert!(nq_shares.iter().all(|share| share.0 == 1), "{:?}", nq_shares);
    }

    #[test]
    fn two_choices_keep_shares_close(weights in prop::collection::vec(1_u32..5, 2..8)) {
        let flows = 200 * weights.len() as u32;
        let equal = vec![1; weights.len()];
        for (kind, weights) in [(Kind::Twos, &weights), (Kind::P2c, &equal)] {
            let total = u64::from(weights.iter().sum::<u32>());
            for (active, weight) in shares(kind, weights, flows) {
                let fair = u64::from(flows) * weight / total;
                prop_assert!(fair / 2 <= active && active <= 2 * fair, "{:?}: {} of {}", kind, active, fair);
            }
        }
    }

    /// Tests that, when a server is removed, at most a tenth of the table's entries move between the remaining servers.
    #[test]
    fn removing_a_server_moves_few_hash_entries(servers in 3_usize..12, removed in 0_usize..12) {
        prop_assume!(removed < servers);
        let mut members = Fixture::new(Kind::Mh, Mode::Repair, &vec![1; servers]).members;
        let size = maglev::size_for(members.len());
        let tables = |members: &[Member]| [mh::table(&entries(members)).unwrap(), spread(members, size)];
        let before = tables(&members);
        let removed_dest = members.remove(removed).dest;
        for (before, after) in before.iter().zip(tables(&members)) {
            let pairs = before.iter().zip(&after);
            let moved = pairs.filter(|(before, after)| **before != removed_dest && before != after).count();
            prop_assert!(moved * 10 <= before.len(), "{} of {}", moved, before.len());
        }
    }
}
