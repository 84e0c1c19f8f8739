//! Runs scripts with known sequences, and random histories, on both the table and the reference.

mod rr_script;
mod wrr_script;

use proptest::prelude::*;

use super::*;
use crate::reference::{Service, Walk};

/// An operation on a service. Servers are numbered from 1, in the order in which they were added.
#[derive(Debug, Clone)]
enum Op {
    Add(u32),
    Remove(u32),
    Edit(u32, u32),
    Overload(u32),
    Free(u32),
    /// This many flows arrive.
    Pick(usize),
}

/// A service in both implementations.
struct Both {
    walk: Walk,
    reference: Service,
    members: Vec<Member>,
    start: Start,
    cursor: Cursor,
    added_count: u32,
}

impl Both {
    fn new(walk: Walk) -> Self {
        Self {
            walk,
            reference: Service::new(walk),
            members: Vec::new(),
            start: match walk {
                Walk::Rr => rr::start(),
                Walk::Wrr => wrr::start(&[]),
            },
            cursor: Cursor::default(),
            added_count: 0,
        }
    }

    /// Replaces the list and computes its start, as the publisher of lists does.
    fn publish(&mut self, after: Vec<Member>) {
        self.start = match self.walk {
            Walk::Rr => rr::next_start(&self.start, self.cursor, &self.members),
            Walk::Wrr => wrr::next_start(&self.start, self.cursor, &after),
        };
        self.members = after;
    }

    /// Runs `op` on both implementations. Returns the servers that both selected.
    fn run(&mut self, op: &Op) -> Vec<u32> {
        let mut after = self.members.clone();
        match *op {
            Op::Add(weight) => {
                self.added_count += 1;
                assert_eq!(self.reference.add(weight), self.added_count);
                after.insert(0, member(self.added_count, weight));
                self.publish(after);
            }
            Op::Remove(server) if after.iter().any(|member| member.seq == server) => {
                self.reference.remove(server);
                after.retain(|member| member.seq != server);
                self.publish(after);
            }
            Op::Edit(server, weight) if after.iter().any(|member| member.seq == server) => {
                self.reference.edit(server, weight);
                after
                    .iter_mut()
                    .filter(|member| member.seq == server)
                    .for_each(|member| member.weight = weight);
                self.publish(after);
            }
            Op::Remove(_) | Op::Edit(..) => {}
            Op::Overload(server) => self.set_usable(server, false),
            Op::Free(server) => self.set_usable(server, true),
            Op::Pick(count) => return (0..count).map(|_| self.pick()).collect(),
        }
        Vec::new()
    }

    fn set_usable(&mut self, server: u32, usable: bool) {
        self.reference.set_overloaded(server, !usable);
        self.members
            .iter_mut()
            .filter(|member| member.seq == server)
            .for_each(|member| member.usable = usable);
    }

    /// Returns the server that both implementations selected; 0 = none.
    fn pick(&mut self) -> u32 {
        let pick = match self.walk {
            Walk::Rr => rr::pick,
            Walk::Wrr => wrr::pick,
        };
        let index = pick(&self.members, &self.start, &mut self.cursor);
        let picked = index.map(|index| self.members[index].seq);
        assert_eq!(
            picked,
            self.reference.pick(),
            "{:?} {:?}",
            self.members,
            self.start
        );
        picked.unwrap_or(0)
    }
}

fn member(seq: u32, weight: u32) -> Member {
    Member {
        seq,
        dest: seq,
        weight,
        slot: seq,
        usable: true,
    }
}

/// Runs the steps: each is an operation and the choices that it must cause.
fn script(walk: Walk, weights: &[u32], steps: &[(Option<Op>, &[u32])]) {
    let mut both = Both::new(walk);
    for &weight in weights {
        both.run(&Op::Add(weight));
    }
    for (number, (op, picks)) in steps.iter().enumerate() {
        if let Some(op) = op {
            both.run(op);
        }
        assert_eq!(both.run(&Op::Pick(picks.len())), *picks, "step {number}");
    }
}

/// Tests that a cursor without a valid generation (a new map, a different table) adopts the start.
#[test]
fn cursor_of_a_different_generation_adopts_the_start() {
    let members = [member(2, 4), member(1, 4)];
    let start = wrr::next_start(&wrr::start(&[]), Cursor::default(), &members);
    let stale = Cursor {
        generation: start.generation ^ 0xff,
        last_seq: 77,
        pass_weight: 9999,
    };
    let mut cursor = stale;
    assert_eq!(wrr::pick(&members, &start, &mut cursor), Some(0));
    assert_eq!(cursor.generation, start.generation);
    assert_eq!(start.adopt(cursor), cursor);
}

#[test]
fn first_server_with_weight_starts_the_highest_pass() {
    let start = wrr::start(&[member(1, 0)]);
    assert_eq!(start.pass_weight, 0);
    for weight in [1, 7] {
        let next = wrr::next_start(&start, Cursor::default(), &[member(1, weight)]);
        assert_eq!((next.pass_weight, next.max_weight), (1, 1));
    }
}

#[test]
fn walk_restarts_after_the_last_chosen_server_is_removed_from_the_head() {
    let start = Start {
        last_seq: 5,
        ..rr::start()
    };
    let cursor = Cursor {
        generation: start.generation,
        last_seq: 9,
        pass_weight: 0,
    };
    let expected = Start {
        generation: start.generation + 1,
        last_seq: 0,
        ..start
    };
    assert_eq!(rr::next_start(&start, cursor, &[member(8, 1)]), expected);
    assert_eq!(rr::next_start(&start, cursor, &[member(9, 1)]), start);
}

#[test]
fn generation_skips_zero_when_wrapping() {
    let start = Start {
        generation: u32::MAX,
        ..rr::start()
    };
    assert_eq!(start.next_generation(), 1);
}

fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 0_u32..6, 1 => (1_u32..5).prop_map(|weight| weight * 6), 1 => 0_u32..300]
}

fn op() -> impl Strategy<Value = Op> {
    let server = 1_u32..8;
    prop_oneof![
        3 => weight().prop_map(Op::Add),
        2 => server.clone().prop_map(Op::Remove),
        2 => (server.clone(), weight()).prop_map(|(server, weight)| Op::Edit(server, weight)),
        2 => server.clone().prop_map(Op::Overload),
        2 => server.prop_map(Op::Free),
        6 => (1_usize..9).prop_map(Op::Pick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]

    #[test]
    fn rr_agrees_with_the_reference(ops in prop::collection::vec(op(), 1..60)) {
        let mut both = Both::new(Walk::Rr);
        for op in &ops {
            both.run(op);
        }
    }

    #[test]
    fn wrr_agrees_with_the_reference(ops in prop::collection::vec(op(), 1..60)) {
        let mut both = Both::new(Walk::Wrr);
        for op in &ops {
            both.run(op);
        }
    }

    #[test]
    fn wrr_gives_each_server_its_weight_in_two_rounds(weights in prop::collection::vec(0_u32..20, 1..8)) {
        let mut both = Both::new(Walk::Wrr);
        for &weight in &weights {
            both.run(&Op::Add(weight));
        }
        let divisor = both.start.step;
        let round = weights.iter().sum::<u32>() / divisor;
        let picks = both.run(&Op::Pick(2 * round as usize));
        for (server, weight) in (1..).zip(&weights) {
            let count = picks.iter().filter(|&&picked| picked == server).count();
            prop_assert_eq!(count as u32, 2 * weight / divisor);
        }
    }
}
