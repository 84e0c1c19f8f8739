//! Compares tables and choices with those of a separate implementation, and tests properties of the kernel's rules.

use proptest::prelude::*;

use super::*;

/// Returns servers 10.0.0.1:80, 10.0.0.2:80, … with these last weights, newest first. The server that was added first
/// is number 1.
fn entries(last_weights: &[u32]) -> Vec<Entry> {
    let mut entries: Vec<_> = (1..)
        .zip(last_weights)
        .map(|(dest, &last_weight)| Entry {
            dest,
            last_weight,
            fold: 0x0a00_0000 + dest,
            port: 80,
        })
        .collect();
    entries.reverse();
    entries
}

/// Returns the FNV-1a hash of the low bytes, for comparing complete tables.
fn digest(table: &[u32]) -> u32 {
    table.iter().fold(0x811c_9dc5, |hash, &dest| {
        (hash ^ (dest & 0xff)).wrapping_mul(0x0100_0193)
    })
}

fn shares(table: &[u32], servers: u32) -> Vec<usize> {
    (1..=servers)
        .map(|dest| table.iter().filter(|&&owner| owner == dest).count())
        .collect()
}

/// Returns the servers for 192.0.2.1 to 192.0.2.8; 0 = rejected.
fn choices(table: &[u32], port: u16, mode: Mode, quiesced: &[u32]) -> [u32; 8] {
    let availability = |dest| {
        if quiesced.contains(&dest) {
            Availability::Quiesced
        } else {
            Availability::Ready
        }
    };
    std::array::from_fn(|host| {
        lookup(table, 0xc000_0201 + host as u32, port, mode, &availability).unwrap_or(0)
    })
}

#[test]
fn tables_equal_known_tables() {
    let cases: [(&[u32], &[usize], u32); 8] = [
        (&[1], &[4093], 0x9d36_b7f0),
        (&[1, 1, 1], &[1364, 1364, 1365], 0x446f_ee26),
        (&[1, 2, 3], &[682, 1364, 2047], 0xcdf7_6588),
        (&[2, 4, 6], &[682, 1364, 2047], 0xcdf7_6588),
        (&[1, 0, 3], &[1023, 0, 3070], 0x27ee_dfdc),
        (&[1, 1000], &[64, 4029], 0x4af8_3827),
        (&[63, 1], &[4029, 64], 0xa160_1182),
        (&[64, 1], &[3968, 125], 0xd2cf_6687),
    ];
    for (weights, expected_shares, expected_digest) in cases {
        let table = table(&entries(weights)).unwrap();
        assert_eq!(
            shares(&table, weights.len() as u32),
            expected_shares,
            "{weights:?}"
        );
        assert_eq!(digest(&table), expected_digest, "{weights:?}");
    }
}

#[test]
fn first_entries_equal_known_entries() {
    let table = table(&entries(&[1, 2, 3])).unwrap();
    assert_eq!(
        table[..16],
        [3, 2, 2, 3, 3, 3, 2, 3, 3, 1, 1, 2, 2, 2, 1, 3]
    );
}

#[test]
fn clients_hash_to_known_entries() {
    let indexes: Vec<_> = (1..9).map(|host| index(0xc000_0200 + host, 0, 0)).collect();
    assert_eq!(indexes, [2891, 746, 998, 3044, 3958, 4037, 1589, 1122]);
}

#[test]
fn port_and_offset_are_added_to_the_address() {
    assert_eq!(index(7, 5, 3), index(15, 0, 0));
    assert_eq!(index(u32::MAX, 1, 0), index(0, 0, 0));
}

#[test]
fn choices_equal_known_choices() {
    let table = table(&entries(&[1, 2, 3])).unwrap();
    assert_eq!(
        choices(&table, 0, Mode::Strict, &[]),
        [3, 2, 3, 3, 2, 3, 2, 3]
    );
    assert_eq!(
        choices(&table, 1000, Mode::Strict, &[]),
        [1, 3, 2, 3, 2, 3, 3, 2]
    );
}

#[test]
fn strict_rejects_clients_of_a_quiesced_server() {
    let table = table(&entries(&[1, 2, 3])).unwrap();
    assert_eq!(
        choices(&table, 0, Mode::Strict, &[3]),
        [0, 2, 0, 0, 2, 0, 2, 0]
    );
}

#[test]
fn fallback_rehashes_with_the_first_index_as_offset() {
    let table = table(&entries(&[1, 2, 3])).unwrap();
    assert_eq!(
        choices(&table, 0, Mode::Fallback, &[3]),
        [1, 2, 1, 1, 2, 2, 2, 2]
    );
    assert_eq!(choices(&table, 0, Mode::Fallback, &[2, 3]), [1; 8]);
    assert_eq!(choices(&table, 0, Mode::Fallback, &[1, 2, 3]), [0; 8]);
}

#[test]
fn repair_skips_quiesced_servers_and_rejects_at_an_overloaded_one() {
    let table = table(&entries(&[1, 2, 3])).unwrap();
    assert_eq!(
        choices(&table, 0, Mode::Repair, &[3]),
        choices(&table, 0, Mode::Fallback, &[3])
    );
    let full = |dest| {
        if dest == 2 {
            Availability::Overloaded
        } else {
            Availability::Ready
        }
    };
    assert_eq!(lookup(&table, 0xc000_0202, 0, Mode::Repair, &full), None);
    assert!(lookup(&table, 0xc000_0202, 0, Mode::Fallback, &full).is_some());
}

#[test]
fn table_without_weights_or_servers_is_empty() {
    for weights in [&[][..], &[0], &[0, 0]] {
        let table = table(&entries(weights)).unwrap();
        assert_eq!(table, vec![0; SIZE as usize]);
        assert_eq!(choices(&table, 0, Mode::Fallback, &[]), [0; 8]);
    }
}

#[test]
fn more_servers_than_entries_are_rejected() {
    let full = table(&entries(&vec![1; SIZE as usize])).unwrap();
    assert!(shares(&full[..], 20).iter().all(|&share| share == 1));
    assert_eq!(
        table(&entries(&vec![1; SIZE as usize + 1])),
        Err(Error::TooManyServers {
            servers: 4094,
            entries: 4093
        })
    );
}

#[test]
fn index_beyond_a_short_table_rejects_the_flow() {
    assert_eq!(
        lookup(&[], 1, 0, Mode::Fallback, &|_| Availability::Ready),
        None
    );
    assert_eq!(
        lookup(&[1; 100], 0xc000_0201, 0, Mode::Strict, &|_| {
            Availability::Ready
        }),
        None
    );
}

#[test]
fn permutation_depends_on_the_port() {
    let mut other = entries(&[1, 1]);
    other[0].port = 81;
    assert_ne!(table(&other), table(&entries(&[1, 1])));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Tests that the size of a turn is the weight divided by the common divisor, shifted to at most six bits, and that
    /// shares match the sizes of the turns to within one round.
    #[test]
    fn shares_follow_turns(weights in prop::collection::vec(0_u32..200, 1..12)) {
        prop_assume!(weights.iter().any(|&weight| weight > 0));
        let table = table(&entries(&weights)).unwrap();
        let divisor = weights.iter().fold(0, |a, &b| gcd(a, b));
        let max_turn = weights.iter().max().unwrap() / divisor;
        let shift = (0..).find(|shift| max_turn >> shift < 64).unwrap();
        let turns: Vec<_> = weights
            .iter()
            .map(|&weight| if weight == 0 { 0 } else { ((weight / divisor) >> shift).max(1) as usize })
            .collect();
        let round: usize = turns.iter().sum();
        for (share, turn) in shares(&table, weights.len() as u32).into_iter().zip(turns) {
            let rounds = SIZE as usize / round;
            prop_assert!((rounds * turn..=(rounds + 1) * turn).contains(&share));
        }
    }

    #[test]
    fn fallback_finds_the_only_remaining_server(servers in 2_u32..10, remaining in 1_u32..10, client in any::<u32>()) {
        prop_assume!(remaining <= servers);
        let table = table(&entries(&vec![1; servers as usize])).unwrap();
        let availability = |dest| if dest == remaining { Availability::Ready } else { Availability::Overloaded };
        prop_assert_eq!(lookup(&table, client, 0, Mode::Fallback, &availability), Some(remaining));
    }
}
