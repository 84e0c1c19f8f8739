//! Tests properties of the table: shares, independence of the servers' order, and few moved entries.

use proptest::prelude::*;

use super::*;

fn entries(weights: &[u32]) -> Vec<Entry> {
    (1..)
        .zip(weights)
        .map(|(dest, &weight)| Entry {
            name: 0x0a00_0000_0050 + u64::from(dest),
            dest,
            weight,
        })
        .collect()
}

fn share(table: &[u32], dest: u32) -> usize {
    table.iter().filter(|&&owner| owner == dest).count()
}

#[test]
fn spare_table_has_twenty_entries_per_server() {
    let sizes = [1, 10, 11, 100, 5_000, 100_000].map(spare_size_for);
    assert_eq!(sizes, [251, 251, 509, 2039, 65521, 131_071]);
}

#[test]
fn size_grows_with_the_number_of_servers() {
    let sizes = [
        (0, 251),
        (1, 251),
        (2, 251),
        (3, 509),
        (5, 509),
        (6, 1021),
        (40, 4093),
        (41, 8191),
        (655, 65521),
    ];
    for (servers, size) in sizes {
        assert_eq!(size_for(servers), size, "{servers}");
    }
    assert_eq!(size_for(65_521), 65521);
    assert_eq!(size_for(100_000), 131_071);
    assert_eq!(size_for(usize::MAX), 131_071);
}

#[test]
fn sizes_are_prime() {
    for size in SIZES {
        assert!(
            (2..).take_while(|d| d * d <= size).all(|d| size % d != 0),
            "{size}"
        );
    }
}

#[test]
fn unsupported_sizes_are_rejected() {
    for size in [0, 1, 250, 65536] {
        assert_eq!(table(&entries(&[1]), size), Err(Error::TableSize { size }));
    }
}

#[test]
fn more_servers_than_entries_are_rejected() {
    assert_eq!(
        table(&entries(&[1; 252]), 251),
        Err(Error::TooManyServers {
            servers: 252,
            entries: 251
        })
    );
    let full = table(&entries(&[1; 251]), 251).unwrap();
    assert!((1..=251).all(|dest| share(&full, dest) == 1));
}

#[test]
fn table_without_weights_is_empty() {
    assert_eq!(table(&[], 251).unwrap(), [0; 251]);
    assert_eq!(table(&entries(&[0, 0]), 251).unwrap(), [0; 251]);
}

#[test]
fn servers_with_equal_names_share_a_permutation() {
    let mut servers = entries(&[1, 1]);
    servers[1].name = servers[0].name;
    let table = table(&servers, 251).unwrap();
    assert_eq!((share(&table, 1), share(&table, 2)), (126, 125));
}

/// Tests the turns with servers of the same name: the order of the entries in their permutation is the order of turns.
#[test]
fn servers_take_turns_by_weight() {
    let turns = |weights: &[u32]| -> Vec<u32> {
        let mut list = entries(weights);
        list.iter_mut().for_each(|entry| entry.name = 5);
        let filler = Filler::new(list[0], 251);
        let table = table(&list, 251).unwrap();
        (0..9)
            .map(|turn| table[((filler.position + turn * filler.skip) % 251) as usize])
            .collect()
    };
    assert_eq!(turns(&[1, 1, 1]), [1, 2, 3, 1, 2, 3, 1, 2, 3]);
    assert_eq!(turns(&[1, 2]), [2, 1, 2, 2, 1, 2, 2, 1, 2]);
    assert_eq!(turns(&[2, 3]), [2, 1, 2, 1, 2, 2, 1, 2, 1]);
    assert_eq!(turns(&[3, 0, 2]), [1, 1, 3, 1, 3, 1, 1, 3, 1]);
}

#[test]
fn largest_weights_do_not_overflow() {
    let table = table(&entries(&[u32::MAX, u32::MAX, 1]), 251).unwrap();
    assert_eq!([1, 2, 3].map(|dest| share(&table, dest)), [126, 125, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shares_follow_weights(weights in prop::collection::vec(0_u32..1000, 1..30)) {
        let total: u32 = weights.iter().sum();
        prop_assume!(total > 0);
        let size = size_for(weights.len());
        let table = table(&entries(&weights), size).unwrap();
        prop_assert!(!table.contains(&0));
        for (dest, &weight) in (1..).zip(&weights) {
            let expected_share = f64::from(weight) / f64::from(total);
            let error = share(&table, dest) as f64 - expected_share * f64::from(size);
            prop_assert!(error.abs() < (1.0 + expected_share * weights.len() as f64).max(2.0), "{dest}: {error}");
            prop_assert!(weight > 0 || share(&table, dest) == 0);
        }
    }

    #[test]
    fn table_does_not_depend_on_order(
        (ordered, shuffled) in prop::collection::vec(0_u32..9, 1..12).prop_flat_map(|weights| {
            let entries = entries(&weights);
            (Just(entries.clone()), Just(entries).prop_shuffle())
        }),
    ) {
        prop_assert_eq!(table(&ordered, 1021), table(&shuffled, 1021));
    }

    /// Tests that the entries of a removed server are assigned to other servers, and nearly all other entries are
    /// unchanged.
    #[test]
    fn removing_a_server_moves_few_other_entries(servers in 2_usize..40, removed in 0_usize..40) {
        prop_assume!(removed < servers);
        let mut list = entries(&vec![1; servers]);
        let size = size_for(servers);
        let before = table(&list, size).unwrap();
        let removed_dest = list.remove(removed).dest;
        let after = table(&list, size).unwrap();
        let moved = before.iter().zip(&after).filter(|(b, a)| **b != removed_dest && a != b).count();
        prop_assert!(moved * 20 <= before.len(), "{moved} of {}", before.len());
    }
}

proptest! {
    #[test]
    fn skip_changes_only_entries_of_unusable_owners(
        weights in prop::collection::vec(1_u32..20, 1..30),
        down in prop::collection::vec(any::<bool>(), 30),
    ) {
        let agreed = table(&entries(&weights), size_for(weights.len())).unwrap();
        let is_usable = |dest: u32| !down[dest as usize];
        let mut local = agreed.clone();
        let has_any = skip_unusable(&mut local, &is_usable);
        prop_assert_eq!(has_any, (1..=weights.len()).any(|dest| !down[dest]));
        if !has_any {
            prop_assert_eq!(local, agreed);
            return Ok(());
        }
        let availability = |dest: u32| match is_usable(dest) {
            true => Availability::Ready,
            false => Availability::Quiesced,
        };
        for (index, (&owner, &chosen)) in agreed.iter().zip(&local).enumerate() {
            prop_assert!(is_usable(chosen));
            prop_assert!(!is_usable(owner) || owner == chosen);
            let hash = ((index as u64) << 32).div_ceil(agreed.len() as u64) << 32;
            let looked_up = lookup(&agreed, hash, Mode::Fallback, &availability);
            prop_assert_eq!(looked_up, Some(chosen));
        }
    }

    #[test]
    fn directors_differ_only_in_entries_of_servers_with_different_states(
        weights in prop::collection::vec(1_u32..20, 2..30),
        views in prop::collection::vec((any::<bool>(), any::<bool>()), 30),
    ) {
        let agreed = table(&entries(&weights), size_for(weights.len())).unwrap();
        let (mut first_table, mut second_table) = (agreed.clone(), agreed.clone());
        let first_has_any = skip_unusable(&mut first_table, &|dest| views[dest as usize].0);
        let second_has_any = skip_unusable(&mut second_table, &|dest| views[dest as usize].1);
        if first_has_any && second_has_any {
            for ((owner, first), second) in agreed.iter().zip(&first_table).zip(&second_table) {
                let (a, b) = views[*owner as usize];
                prop_assert!(first == second || !a || !b, "{} is up for both", owner);
            }
        }
    }
}

#[test]
fn servers_share_the_entries_of_a_server_that_is_skipped() {
    let agreed = table(&entries(&[1; 10]), size_for(10)).unwrap();
    let mut local = agreed.clone();
    assert!(skip_unusable(&mut local, &|dest| dest != 4));
    let skipped_entries = agreed.len() / 10;
    for dest in (1..=10).filter(|dest| *dest != 4) {
        let gained = share(&local, dest) - share(&agreed, dest);
        assert!(
            gained > 0 && gained < skipped_entries / 3,
            "{dest} gained {gained} of about {skipped_entries} entries"
        );
    }
}
