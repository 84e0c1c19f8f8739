//! Tests scripted draws, and the exact distribution of `p2c`.
//!
//! The distribution consists of every choice that a few random numbers can produce, with its probability.

use super::*;

/// A server's weight, whether it is usable, and its number of active connections.
type TestServer = (u32, bool, u32);

/// Servers by position.
struct TestServers<'a>(&'a [TestServer]);

impl Servers for TestServers<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn max_weight(&self) -> u32 {
        self.0.iter().map(|server| server.0).max().unwrap_or(0)
    }

    fn weight(&self, position: usize) -> u32 {
        let (weight, usable, _) = self.0[position];
        if usable { weight } else { 0 }
    }

    fn counts(&self, position: usize) -> Counts {
        Counts {
            active: self.0[position].2,
            inactive: 0,
        }
    }
}

/// Two servers of weight 1 that accept flows only while the sum of their weights is computed.
struct ChangingServers(std::cell::Cell<usize>);

impl Servers for ChangingServers {
    fn count(&self) -> usize {
        2
    }

    fn max_weight(&self) -> u32 {
        1
    }

    fn weight(&self, _: usize) -> u32 {
        let reads = self.0.get();
        self.0.set(reads + 1);
        u32::from((TRIES..TRIES + 2).contains(&reads))
    }

    fn counts(&self, _: usize) -> Counts {
        Counts::default()
    }
}

#[test]
fn server_is_drawn_by_weight_after_too_many_failed_draws() {
    let servers = TestServers(&[(2, true, 0), (3, false, 0), (3, true, 0)]);
    for (target, expected) in [(0, 0), (1, 0), (2, 2), (4, 2)] {
        let mut numbers = vec![(1, 3); TRIES];
        let other_weight = if expected == 0 { 3 } else { 2 };
        numbers.extend([(target, 5), (0, other_weight)]);
        assert_eq!(pick_with(&servers, &numbers), Some(expected), "{target}");
    }
}

#[test]
fn members_without_weight_are_not_drawn() {
    let members = [0, 1].map(|weight| Member {
        seq: 2 - weight,
        dest: 2 - weight,
        weight,
        slot: 0,
        usable: true,
    });
    let mut draws = 0;
    let picked = pick_member(&members, &|_| Counts::default(), &mut || {
        draws += 1;
        0
    });
    assert_eq!((picked, draws), (Some(1), 1));
}

#[test]
fn servers_that_become_full_during_a_draw_are_not_picked() {
    let servers = ChangingServers(std::cell::Cell::new(0));
    assert_eq!(pick(&servers, &mut || 0), None);
    assert_eq!(servers.0.get(), TRIES + 4);
}

/// Picks with the numbers in `(number, ceiling)` pairs, and asserts that all of them are drawn.
fn pick_with(servers: &TestServers<'_>, numbers: &[(u32, u32)]) -> Option<usize> {
    let mut raw = numbers.iter().map(|&(number, ceiling)| {
        (((u64::from(number) << 32) + (1 << 31)) / u64::from(ceiling)) as u32
    });
    let picked = pick(servers, &mut || raw.next().unwrap());
    assert_eq!(raw.next(), None, "fewer numbers were drawn");
    picked
}

#[test]
fn two_different_servers_are_compared() {
    let servers = TestServers(&[(1, true, 2), (1, true, 1), (1, true, 0)]);
    // The second number counts the positions without the first server.
    assert_eq!(pick_with(&servers, &[(0, 3), (0, 2)]), Some(1));
    assert_eq!(pick_with(&servers, &[(0, 3), (1, 2)]), Some(2));
    assert_eq!(pick_with(&servers, &[(1, 3), (0, 2)]), Some(1));
    assert_eq!(pick_with(&servers, &[(2, 3), (1, 2)]), Some(2));
    let equal = TestServers(&[(1, true, 5), (1, true, 5)]);
    assert_eq!(pick_with(&equal, &[(0, 2), (0, 1)]), Some(0));
    assert_eq!(pick_with(&equal, &[(1, 2), (0, 1)]), Some(1));
    assert_eq!(pick_with(&TestServers(&[(3, true, 9)]), &[(0, 1)]), Some(0));
    assert_eq!(pick_with(&TestServers(&[]), &[]), None);
}

#[test]
fn loads_are_compared_relative_to_weights() {
    let servers = TestServers(&[(9, true, 8), (9, true, 9), (3, true, 2)]);
    assert_eq!(pick_with(&servers, &[(0, 3), (1, 2), (0, 9)]), Some(2));
    assert_eq!(pick_with(&servers, &[(1, 3), (0, 2)]), Some(0));
    // The server with the smaller weight is accepted in three of nine draws.
    let numbers = [(2, 3), (3, 9), (2, 3), (2, 9), (1, 2)];
    assert_eq!(pick_with(&servers, &numbers), Some(2));
}

#[test]
fn unusable_servers_are_redrawn_and_never_drawn_by_weight() {
    let servers = TestServers(&[(1, true, 0), (1, false, 0), (1, true, 0), (1, true, 1)]);
    let numbers = [(1, 4), (1, 4), (3, 4), (1, 3), (2, 3)];
    assert_eq!(pick_with(&servers, &numbers), Some(2));
    // Eight failed draws for the second server; the draw by weight from the whole list selects the last one.
    let mut numbers = [(1, 4); 10];
    numbers[0] = (0, 4);
    numbers[1..8].fill((0, 3));
    numbers[8] = (1, 2);
    assert_eq!(pick_with(&servers, &numbers[..9]), Some(0));
    // Eight failed draws for the first server; both servers are drawn from the whole list.
    numbers[..8].fill((1, 4));
    (numbers[8], numbers[9]) = ((2, 3), (1, 2));
    assert_eq!(pick_with(&servers, &numbers), Some(2));
    let full = TestServers(&[(1, false, 0), (7, false, 0)]);
    let mut numbers = vec![];
    (0..TRIES).for_each(|_| numbers.push((1, 2)));
    assert_eq!(pick_with(&full, &numbers), None);
    let one_usable = TestServers(&[(1, false, 0), (7, true, 0)]);
    let mut numbers = vec![(1, 2)];
    (1..TRIES).for_each(|_| numbers.push((0, 1)));
    assert_eq!(pick_with(&one_usable, &numbers), Some(1));
}

/// Returns the probability of each choice, computed from every sequence of random numbers. Numbers that select the same
/// position and acceptance are equivalent, so only `steps` equally spaced numbers of the 32-bit range are used. `steps`
/// must be a multiple of every ceiling.
fn distribution(servers: &TestServers<'_>, steps: u64) -> Vec<f64> {
    // A sequence that is too short for a choice is replaced with all its extensions by one number.
    let mut chances = vec![0.0; servers.0.len()];
    let mut pending: Vec<Vec<u32>> = vec![vec![]];
    while let Some(numbers) = pending.pop() {
        let mut index = 0;
        let mut is_short = false;
        let picked = pick(servers, &mut || {
            let number = numbers.get(index).copied();
            index += 1;
            is_short |= number.is_none();
            number.unwrap_or(0)
        });
        if is_short {
            for part in 0..steps {
                let mut longer = numbers.clone();
                longer.push((((part << 32) + (1 << 31)) / steps) as u32);
                pending.push(longer);
            }
        } else if let Some(position) = picked {
            chances[position] += (steps as f64).powi(-(numbers.len() as i32));
        }
    }
    chances
}

/// Tests that the shares of idle servers are exactly proportional to the weights of the usable ones.
#[test]
fn idle_servers_have_exact_shares() {
    let cases: [(&[TestServer], u64); 4] = [
        (&[(1, true, 0); 3], 6),
        (
            &[(1, true, 0), (1, true, 0), (1, true, 0), (1, true, 0)],
            12,
        ),
        (&[(1, true, 0), (1, false, 0)], 2),
        (&[(0, true, 0), (1, true, 0)], 2),
    ];
    for (servers, steps) in cases {
        let total: f64 = weights(servers).sum();
        let exact = distribution(&TestServers(servers), steps);
        for (chance, weight) in exact.iter().zip(weights(servers)) {
            assert!(
                (chance - weight / total).abs() < 1e-9,
                "{servers:?}: {exact:?}"
            );
        }
    }
}

fn weights(servers: &[TestServer]) -> impl Iterator<Item = f64> {
    let share = |&(weight, usable, _): &TestServer| if usable { weight } else { 0 };
    servers.iter().map(share).map(f64::from)
}
