//! Tests scheduling from long server lists without a tree, which the data plane searches.
//!
//! A count change updates the trees of only a limited number of services that share a pool, so the other services
//! search the list. Also tests how `lblc` and `lblcr` search if a cached server is full. The model also searches the
//! list, by the kernel's rules.

use weir_sched::{Kind, Mode};

use crate::bench::Bench;
use crate::scheduler::Step::{self, Add, Empty, End, Fill, Flows, Remove, SetWeight};
use crate::scheduler::{Script, TREE_SCHEDULERS, VIP};

const SERVERS: usize = 100;

/// Tests every scheduler with a hundred servers, while counts change, servers are edited and removed, and thresholds
/// are reached.
#[test]
fn lists_without_a_tree_match_the_model() {
    let list_schedulers = [(Kind::Lblc, None), (Kind::Dh, None)];
    for (kind, max_load) in TREE_SCHEDULERS.into_iter().chain(list_schedulers) {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        bench.seed_random_numbers(4711);
        let mut script = Script::new(&mut bench, kind, Mode::Repair, false, VIP);
        script.disable_tree();
        script.set_max_load(max_load);
        script.run(&[Add(1); SERVERS]);
        let edits: Vec<Step> = (1..=SERVERS)
            .step_by(7)
            .map(|number| SetWeight(number, (number as u32 % 5) * 2))
            .collect();
        script.run(&edits);
        let chosen = script.run(&[Flows(130)]);
        assert!(
            kind == Kind::Dh || chosen.iter().any(|number| *number > 64),
            "{kind}: no server beyond the sixty-fourth is chosen: {chosen:?}"
        );
        let ends: Vec<Step> = (1..130).step_by(3).map(End).collect();
        script.run(&ends);
        script.run(&[
            Fill(2),
            Fill(77),
            Fill(100),
            Flows(40),
            Empty(77),
            Flows(10),
        ]);
        script.run(&[
            Remove(1),
            Remove(66),
            Remove(99),
            Flows(20),
            Add(3),
            Flows(20),
        ]);
        assert!(!script.bench.has_matching_tree(script.service), "{kind}");
        bench.assert_same_state();
    }
}

/// Tests that an address moves to another server only while a server accepts flows, with and without a tree. Only
/// `lblc` still uses a cached server at its threshold (ip_vs_lblc.c checks the server's weight and load;
/// ip_vs_dest_set_min() in ip_vs_lblcr.c also checks the threshold).
#[test]
fn address_moves_only_while_a_server_accepts_flows() {
    const FEW_SERVERS: usize = 24;
    for (kind, treeless) in [
        (Kind::Lblc, false),
        (Kind::Lblc, true),
        (Kind::Lblcr, false),
        (Kind::Lblcr, true),
    ] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        let mut script = Script::new(&mut bench, kind, Mode::Repair, false, VIP);
        if treeless {
            script.disable_tree();
        }
        script.run(&[Add(1); FEW_SERVERS]);
        let spread = script.run(&[Flows(3 * FEW_SERVERS as u16)]);
        for server in 1..=FEW_SERVERS {
            assert!(
                spread.contains(&server),
                "{kind}: no flow to server {server}: {spread:?}"
            );
        }
        // All servers are now at or above half of their weight.
        let chosen_when_full = script.run(&[Flows(2 * FEW_SERVERS as u16)]);
        if kind == Kind::Lblc {
            assert!(
                chosen_when_full
                    .iter()
                    .all(|server| *server == chosen_when_full[0]),
                "{chosen_when_full:?}"
            );
        }
        let fill_all: Vec<Step> = (1..=FEW_SERVERS).map(Fill).collect();
        script.run(&fill_all);
        let chosen = script.run(&[Flows(5)]);
        let expected = if kind == Kind::Lblc {
            chosen_when_full[0]
        } else {
            0
        };
        assert_eq!(chosen, [expected; 5], "{kind}");
        // One server accepts flows again: either it is in the set, or the search finds it.
        assert_eq!(
            script.run(&[Empty(9), SetWeight(9, 1000), Flows(1)]),
            [9],
            "{kind}"
        );
        bench.assert_same_state();
    }
}
