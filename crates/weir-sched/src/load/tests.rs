//! Tests the choices for given weights and counters, and compares each rule with its definition, which compares
//! fractions.

use proptest::prelude::*;

use super::*;

/// Servers as `(weight, active, inactive)`, in the order in which they were added.
type Servers<'a> = &'a [(u32, u32, u32)];

/// Returns the list, newest first, with its counters. The server that was added first is number 1.
fn list(servers: Servers) -> (Vec<Member>, Vec<Counts>) {
    let members = (0..servers.len() as u32)
        .rev()
        .map(|slot| Member {
            seq: slot + 1,
            dest: slot + 1,
            weight: servers[slot as usize].0,
            slot,
            usable: true,
        })
        .collect();
    let counts = servers
        .iter()
        .map(|&(_, active, inactive)| Counts { active, inactive })
        .collect();
    (members, counts)
}

/// Returns the number of the selected server; 0 = none.
fn pick_number(rule: Rule, servers: Servers) -> u32 {
    let (members, counts) = list(servers);
    pick(rule, &members, &|slot| counts[slot as usize]).map_or(0, |index| members[index].seq)
}

fn check_picks(rule: Rule, cases: &[(Servers, u32)]) {
    for (servers, expected) in cases {
        assert_eq!(
            pick_number(rule, servers),
            *expected,
            "{rule:?} {servers:?}"
        );
    }
}

#[test]
fn lc_picks_least_overhead() {
    check_picks(
        Rule::Lc,
        &[
            (&[], 0),
            (&[(1, 9, 9)], 1),
            (&[(0, 0, 0)], 0),
            (&[(1, 0, 0), (1, 0, 0)], 2),
            (&[(1, 0, 0), (1, 1, 0)], 1),
            (&[(1, 1, 0), (1, 0, 0)], 2),
            (&[(1, 0, 255), (1, 1, 0)], 1),
            (&[(1, 0, 256), (1, 1, 0)], 2),
            (&[(1, 0, 257), (1, 1, 0)], 2),
            (&[(1, 2, 5), (1, 2, 6)], 1),
            (&[(100, 2, 0), (1, 1, 0)], 2),
            (&[(1, 3, 0), (0, 0, 0), (1, 4, 0)], 1),
            (&[(1, 5, 0), (1, 5, 0), (1, 6, 0)], 2),
            (&[(0, 0, 0), (0, 0, 0)], 0),
        ],
    );
}

#[test]
fn wlc_picks_least_overhead_per_weight() {
    check_picks(
        Rule::Wlc,
        &[
            (&[], 0),
            (&[(3, 9, 9)], 1),
            (&[(0, 0, 0)], 0),
            (&[(1, 0, 0), (9, 0, 0)], 2),
            (&[(9, 0, 0), (1, 0, 0)], 2),
            (&[(2, 2, 0), (1, 1, 0)], 2),
            (&[(1, 1, 0), (2, 2, 0)], 2),
            (&[(3, 2, 0), (1, 1, 0)], 1),
            (&[(1, 1, 0), (2, 1, 0)], 2),
            (&[(2, 1, 0), (1, 1, 0)], 1),
            (&[(2, 0, 511), (1, 1, 0)], 1),
            (&[(2, 0, 512), (1, 1, 0)], 2),
            (&[(1, 3, 0), (0, 0, 0), (1, 4, 0)], 1),
            (&[(4, 3, 0), (3, 2, 0), (2, 1, 0)], 3),
            (&[(1, 8_000_000, 0), (i32::MAX as u32, 8_000_001, 0)], 2),
        ],
    );
}

#[test]
fn sed_picks_shortest_expected_delay() {
    check_picks(
        Rule::Sed,
        &[
            (&[], 0),
            (&[(0, 0, 0), (1, 7, 0)], 2),
            (&[(1, 0, 0), (1, 0, 0)], 2),
            (&[(2, 0, 0), (1, 0, 0)], 1),
            (&[(2, 1, 0), (1, 0, 0)], 2),
            (&[(3, 1, 0), (1, 0, 0)], 1),
            (&[(1, 0, 9999), (1, 0, 0)], 2),
            (&[(1, 0, 0), (1, 0, 9999)], 2),
        ],
    );
}

#[test]
fn nq_picks_an_idle_server_first() {
    check_picks(
        Rule::Nq,
        &[
            (&[], 0),
            (&[(100, 0, 0), (1, 0, 0)], 2),
            (&[(1, 0, 0), (100, 1, 0)], 1),
            (&[(1, 1, 0), (100, 1, 0)], 2),
            (&[(1, 1, 0), (0, 0, 0)], 1),
            (&[(2, 3, 0), (1, 1, 0)], 2),
        ],
    );
}

#[test]
fn fo_picks_highest_weight() {
    check_picks(
        Rule::Fo,
        &[
            (&[], 0),
            (&[(0, 0, 0)], 0),
            (&[(1, 9, 9), (1, 0, 0)], 2),
            (&[(3, 9, 9), (2, 0, 0)], 1),
            (&[(2, 0, 0), (3, 9, 9), (1, 0, 0)], 2),
        ],
    );
}

#[test]
fn ovf_picks_highest_weight_below_its_threshold() {
    check_picks(
        Rule::Ovf,
        &[
            (&[], 0),
            (&[(2, 2, 0), (1, 0, 0)], 1),
            (&[(2, 3, 0), (1, 0, 0)], 2),
            (&[(2, 3, 0), (1, 2, 0)], 0),
            (&[(2, 1, 0), (2, 2, 99)], 2),
            (&[(0, 0, 0), (1, 1, 0)], 2),
        ],
    );
}

#[test]
fn overloaded_servers_are_never_picked() {
    let (mut members, _) = list(&[(1, 0, 0), (9, 0, 0)]);
    members[0].usable = false;
    let idle = |_| Counts::default();
    for rule in [
        Rule::Lc,
        Rule::Wlc,
        Rule::Sed,
        Rule::Nq,
        Rule::Fo,
        Rule::Ovf,
    ] {
        assert_eq!(pick(rule, &members, &idle), Some(1), "{rule:?}");
    }
    assert_eq!(twos(&members, &idle, &mut || 0), Some(1));
    assert_eq!(crate::p2c::pick_member(&members, &idle, &mut || 0), Some(1));
}

/// Tests sequences of choices during which no connection ends.
#[test]
fn sequences_match_if_connections_do_not_end() {
    let cases: [(Rule, &[u32], &[u32]); 6] = [
        (Rule::Lc, &[1, 1, 1], &[3, 2, 1, 3, 2, 1]),
        (Rule::Wlc, &[1, 2, 3], &[3, 2, 1, 3, 2, 3, 3, 2]),
        (Rule::Sed, &[1, 2, 3], &[3, 2, 3, 3, 2, 1, 3, 2]),
        (Rule::Nq, &[1, 2, 3], &[3, 2, 1, 3, 3, 2]),
        (Rule::Fo, &[1, 2, 3], &[3, 3, 3, 3]),
        (Rule::Ovf, &[1, 2, 3], &[3, 3, 3, 3, 2, 2, 2, 1, 1, 0]),
    ];
    for (rule, weights, expected) in cases {
        let mut servers: Vec<_> = weights.iter().map(|&weight| (weight, 0, 0)).collect();
        let mut sequence = Vec::new();
        for _ in expected {
            let server = pick_number(rule, &servers);
            sequence.push(server);
            if let Some(index) = (server as usize).checked_sub(1) {
                servers[index].1 += 1;
            }
        }
        assert_eq!(sequence, expected, "{rule:?}");
    }
}

/// Returns a source of numbers below `ceiling`, each scaled to 32 bits so that [`random_below`] returns it.
fn draws(ceiling: u32, numbers: &[u32]) -> impl FnMut() -> u32 + use<> {
    let mut raw = numbers
        .iter()
        .map(move |&number| (((u64::from(number) << 32) + (1 << 31)) / u64::from(ceiling)) as u32)
        .collect::<Vec<_>>()
        .into_iter();
    move || raw.next().unwrap()
}

#[test]
fn random_below_matches_kernel_function() {
    // __get_random_u32_below of drivers/char/random.c: the upper half of a product, redrawn if its lower half is too
    // small.
    assert_eq!(random_below(7, &mut draws(7, &[5])), 5);
    assert_eq!(random_below(1, &mut || 0xffff_ffff), 0);
    assert_eq!(random_below(10, &mut || 0x8000_0000), 5);
    // 2^32 mod 6 is 4: a lower half below 4 causes a redraw. The product for 0 has the halves 0 and 0; the product for
    // 0x2aaaaaab has 1 and 2.
    let mut raw = [0, 0x2aaa_aaab, 0xffff_ffff].into_iter();
    assert_eq!(random_below(6, &mut || raw.next().unwrap()), 5);
    // The product has the halves 2 and 4.
    let mut raw = [0x5555_5556].into_iter();
    assert_eq!(random_below(6, &mut || raw.next().unwrap()), 2);
}

#[test]
fn twos_draws_by_weight_and_chooses_the_less_loaded() {
    // In list order: server 3 for draws 0 to 3, server 2 for 4 and 5, server 1 for 6.
    let (members, idle) = list(&[(1, 0, 0), (2, 0, 0), (3, 0, 0)]);
    let drawn_servers: Vec<_> = (0..7)
        .map(|number| {
            let mut draw = draws(7, &[number, number]);
            twos(&members, &|slot| idle[slot as usize], &mut draw)
                .map_or(0, |index| members[index].seq)
        })
        .collect();
    assert_eq!(drawn_servers, [3, 3, 3, 3, 2, 2, 1]);

    let (members, counts) = list(&[(1, 1, 0), (2, 2, 0), (3, 2, 0)]);
    let cases = [
        ([6, 4], 1),
        ([4, 6], 2),
        ([4, 0], 3),
        ([0, 4], 3),
        ([6, 0], 3),
    ];
    for (numbers, expected) in cases {
        let index = twos(
            &members,
            &|slot| counts[slot as usize],
            &mut draws(7, &numbers),
        );
        assert_eq!(
            index.map(|index| members[index].seq),
            Some(expected),
            "{numbers:?}"
        );
    }
    assert_eq!(twos(&[], &|_| Counts::default(), &mut || 0), None);
}

proptest! {
    /// Tests that the lowest fraction is selected, or the first of several equal fractions, even for large numbers.
    #[test]
    fn first_server_with_the_least_fraction_is_picked(
        servers in prop::collection::vec((0_u32..=i32::MAX as u32, 0_u32..1 << 23, 0_u32..1 << 23), 0..12),
        unusable in any::<u16>(),
    ) {
        let (mut members, counts) = list(&servers);
        for member in &mut members {
            member.usable = unusable >> member.slot & 1 == 0;
        }
        type Cost = fn(Counts) -> u32;
        let rules: [(Rule, Cost, bool); 3] = [
            (Rule::Lc, |counts| counts.active * 256 + counts.inactive, false),
            (Rule::Wlc, |counts| counts.active * 256 + counts.inactive, true),
            (Rule::Sed, |counts| counts.active + 1, true),
        ];
        for (rule, cost, weighted) in rules {
            let fraction = |member: &Member| {
                let weight = if weighted { u128::from(member.weight) } else { 1 };
                (u128::from(cost(counts[member.slot as usize])), weight)
            };
            let mut expected: Option<&Member> = None;
            for member in members.iter().filter(|member| member.usable && member.weight > 0) {
                let better = expected.is_none_or(|best| {
                    let ((a, b), (c, d)) = (fraction(member), fraction(best));
                    a * d < c * b
                });
                if better {
                    expected = Some(member);
                }
            }
            let picked = pick(rule, &members, &|slot| counts[slot as usize]).map(|index| &members[index]);
            prop_assert_eq!(picked, expected, "{:?}", rule);
            let mut tied = vec![usize::MAX];
            pick_tied(rule, &members, &|slot| counts[slot as usize], &mut tied);
            let is_equal = |member: &&Member| {
                let ((a, b), (c, d)) = (fraction(member), fraction(expected.unwrap_or(member)));
                member.usable && member.weight > 0 && a * d == c * b
            };
            let equal: Vec<_> = members.iter().filter(is_equal).collect();
            let tied: Vec<_> = tied.into_iter().map(|index| &members[index]).collect();
            prop_assert_eq!(tied, equal, "{:?}", rule);
        }
    }
}
