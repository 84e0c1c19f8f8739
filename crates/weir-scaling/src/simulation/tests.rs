//! Tests the shares of broken connections for known changes and for random designs.

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

/// A server forwards to only one previous version of the table.
#[test]
fn second_change_breaks_some_connections_with_a_second_hop() {
    const STEPS: &[Step] = &[Step::ServerAdded, Step::ServerAdded, Step::DirectorRemoved];
    let (second, without_sync) = (
        run(Design::SecondHop, STEPS).broken,
        run(Design::FlowTable, STEPS).broken,
    );
    assert!(
        0.0 < second && second < without_sync,
        "{second} {without_sync}"
    );
}

#[test]
fn connections_of_dead_server_are_lost_and_not_broken() {
    let outcome = run(Design::FlowTable, &[Step::ServerDied]);
    assert!((0.01..0.03).contains(&outcome.lost), "{}", outcome.lost);
    assert_eq!(outcome.broken, 0.0);
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
    fn designs_with_more_state_break_fewer_connections(
        seed in any::<u64>(),
        directors in 1u32..20,
        servers in 2u32..40,
        scenario in 0usize..Scenario::ALL.len(),
        router in 0usize..2,
    ) {
        let group = Group { directors, servers, sample: 1_000, unsynced: 0.01, seed };
        let run = |design| Simulation::new(group, design).unwrap().run(Router::ALL[router], &Scenario::ALL[scenario]);
        let (none, without_sync, synced) = (run(Design::Maglev), run(Design::FlowTable), run(Design::Sync));
        prop_assert!(without_sync.broken <= none.broken);
        prop_assert!(synced.broken <= without_sync.broken);
        prop_assert!(run(Design::SecondHop).broken <= without_sync.broken);
        prop_assert!(none.broken + none.lost <= 1.0 + 1e-9);
        prop_assert_eq!(run(Design::FlowTable), without_sync);
    }
}
