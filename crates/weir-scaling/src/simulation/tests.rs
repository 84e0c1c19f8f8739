//! Tests the shares of broken connections for known changes and for random groups.

use proptest::prelude::*;

use super::*;

const GROUP: Group = Group {
    directors: 8,
    servers: 50,
    sample: 50_000,
    unsynced: 0.1,
    seed: 7,
};

fn run(design: Design, steps: &'static [Step]) -> Outcome {
    let scenario = Scenario { name: "", steps };
    Simulation::new(GROUP, design)
        .expect("the group is valid")
        .run(Router::Threshold, &scenario)
}

#[test]
fn director_changes_break_no_connection() {
    for design in Design::ALL {
        for step in [&[Step::DirectorAdded], &[Step::DirectorRemoved]] {
            let outcome = run(design, step);
            assert_eq!(outcome.broken, 0.0, "{design:?}");
            assert!(outcome.moved > 0.2, "{design:?}: {}", outcome.moved);
        }
    }
}

/// A new director has a new number. The removed director is in the middle of the router's order.
#[test]
fn moved_share_matches_next_hop_changes() {
    for directors in [7, 9, 20] {
        let group = Group {
            directors,
            sample: 5_000,
            ..GROUP
        };
        let simulation = Simulation::new(group, Design::Maglev).unwrap();
        let before = NextHops::new(Router::Threshold, directors);
        let (mut added, mut removed) = (before.clone(), before.clone());
        added.add(directors);
        removed.remove(directors as usize / 3);
        for (step, after) in [
            (&[Step::DirectorAdded], added),
            (&[Step::DirectorRemoved], removed),
        ] {
            let scenario = Scenario {
                name: "",
                steps: step,
            };
            let outcome = simulation.run(Router::Threshold, &scenario);
            let hashes = simulation
                .connections
                .iter()
                .map(|(hash, _)| router_hash(*hash));
            let moved_hashes =
                hashes.filter(|hash| before.director(*hash) != after.director(*hash));
            let expected = moved_hashes.count() as f64 / 5_000.0;
            assert!(
                (outcome.moved - expected).abs() < 1e-9,
                "{directors} {step:?}"
            );
        }
    }
}

#[test]
fn added_server_breaks_connections_of_modulo_and_maglev_only() {
    let broken = |design| run(design, &[Step::ServerAdded]).broken;
    assert!(broken(Design::Modulo) > 0.9);
    assert!((0.01..0.1).contains(&broken(Design::Maglev)));
    for design in [
        Design::FlowTable,
        Design::Glb,
        Design::Sync,
        Design::SecondHop,
    ] {
        assert_eq!(broken(design), 0.0, "{design:?}");
    }
}

#[test]
fn broken_share_is_product_of_moved_and_changed_shares() {
    const STEPS: &[Step] = &[Step::ServerDrained, Step::DirectorRemoved];
    let without_sync = run(Design::FlowTable, STEPS);
    let expected = without_sync.moved * without_sync.changed;
    assert!(
        (without_sync.broken / expected - 1.0).abs() < 0.1,
        "{} {expected}",
        without_sync.broken
    );
    let synced = run(Design::Sync, STEPS).broken;
    assert!(
        (0.05..0.2).contains(&(synced / without_sync.broken)),
        "{synced}"
    );
    assert_eq!(run(Design::SecondHop, STEPS).broken, 0.0);
    assert_eq!(run(Design::Glb, STEPS).broken, 0.0);
}

/// A second hop uses only one previous version of the table.
#[test]
fn two_server_changes_break_some_connections_despite_second_hop() {
    const STEPS: &[Step] = &[Step::ServerAdded, Step::ServerAdded, Step::DirectorRemoved];
    let (second_hop, without_sync) = (
        run(Design::SecondHop, STEPS).broken,
        run(Design::FlowTable, STEPS).broken,
    );
    assert!(
        0.0 < second_hop && second_hop < without_sync,
        "{second_hop} {without_sync}"
    );
}

#[test]
fn connections_of_dead_server_are_lost_and_not_broken() {
    let outcome = run(Design::FlowTable, &[Step::ServerDied]);
    assert!((0.01..0.03).contains(&outcome.lost), "{}", outcome.lost);
    assert_eq!(outcome.broken, 0.0);
}

/// The results of a seed must not change. The values were computed with a different implementation.
#[test]
fn hashes_of_a_connection_are_reproducible() {
    for (hash, expected, numbers) in [
        (
            7,
            0x09fc_9752,
            [0.739_817_014_355_082_4, 0.386_768_045_983_934],
        ),
        (
            0xfedc_ba98_7654_3210,
            0xac01_66bc,
            [0.887_758_805_527_627_8, 0.685_777_124_978_861_2],
        ),
    ] {
        assert_eq!(router_hash(hash), expected);
        for (step, number) in numbers.into_iter().enumerate() {
            assert!(
                (pseudorandom(hash, step) - number).abs() < 1e-12,
                "{hash} {step}"
            );
        }
    }
}

#[test]
fn smallest_and_largest_values_are_accepted() {
    for (directors, servers, sample) in [(1, 2, 1), (1_000, 30_000, 10_000_000)] {
        let group = Group {
            directors,
            servers,
            sample,
            ..GROUP
        };
        assert_eq!(group.check(), Ok(()));
    }
}

#[test]
fn design_and_router_names_are_stable() {
    let designs = Design::ALL.map(Design::name);
    let expected = [
        "hash mod N",
        "Maglev",
        "flow table",
        "GLB",
        "[sync]",
        "second hop",
    ];
    assert_eq!(designs, expected);
    assert_eq!(
        Router::ALL.map(Router::name),
        ["plain ECMP", "resilient ECMP"]
    );
}

#[test]
fn values_out_of_range_are_rejected() {
    let rejection = |group: Group| group.check().expect_err("out of range").to_string();
    assert_eq!(
        rejection(Group {
            servers: 1,
            ..GROUP
        }),
        "servers must be between 2 and 30000"
    );
    assert_eq!(
        rejection(Group {
            directors: 0,
            ..GROUP
        }),
        "directors must be between 1 and 1000"
    );
    assert_eq!(
        rejection(Group { sample: 0, ..GROUP }),
        "sample must be between 1 and 10000000"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// A design with more state never breaks more connections, and no connection is counted twice.
    #[test]
    fn designs_with_more_state_never_break_more_connections(
        seed in any::<u64>(),
        directors in 1u32..20,
        servers in 2u32..40,
        scenario in 0usize..Scenario::ALL.len(),
        router in 0usize..2,
    ) {
        let group = Group { directors, servers, sample: 1_000, unsynced: 0.01, seed };
        let run = |design| Simulation::new(group, design).unwrap().run(Router::ALL[router], &Scenario::ALL[scenario]);
        let (stateless, without_sync, synced) = (run(Design::Maglev), run(Design::FlowTable), run(Design::Sync));
        prop_assert!(without_sync.broken <= stateless.broken);
        prop_assert!(synced.broken <= without_sync.broken);
        prop_assert!(run(Design::SecondHop).broken <= without_sync.broken);
        prop_assert!(stateless.broken + stateless.lost <= 1.0 + 1e-9);
        prop_assert_eq!(run(Design::FlowTable), without_sync);
    }
}
