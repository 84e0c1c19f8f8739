//! Calculates how many connections may break for each event and method.

use weir_scaling::router::share_moved_by_last_region;
use weir_scaling::simulation::Step;
use weir_scaling::{Design, Group, Router, Scenario, Simulation};

use super::event::Event;
use super::rig::SERVERS;
use super::{Balancer, Method};

/// Factor by which the measured share may exceed the expected share, the product of changed slots and moved flows.
const TOLERANCE: f64 = 1.1;
/// Number of simulated connections.
const SAMPLE: u32 = 200_000;

/// Returns the maximum number of connections that may break in a run; `None` = there is no goal for the event and
/// method.
pub(super) fn max_broken(
    event: Event,
    method: Method,
    directors: u8,
    connections: u32,
) -> Option<u64> {
    let (tunnel, has_sync) = match method.balancer {
        Balancer::Rules => return None,
        Balancer::Weir { tunnel, has_sync } => (tunnel, has_sync),
    };
    let step = match event {
        Event::ServerAddedDirectorKilled
        | Event::RolloutDirectorKilled
        | Event::RolloutFirstDirectorKilled => Step::ServerAdded,
        // Draining or removing a server changes the table in the same way.
        Event::ServerDrainedDirectorAdded
        | Event::ServerRemovedDirectorAdded
        | Event::ServerRemovedDirectorKilled
        | Event::ServerRemovedDirectorStarted => Step::ServerDrained,
        // The table does not change, so all directors select the same server.
        Event::DirectorAdded
        | Event::DirectorDrained
        | Event::DirectorKilled
        | Event::DirectorCut
        | Event::MajorityLost
        | Event::MixedBuildsDirectorKilled
        | Event::DirectorUpgraded => return Some(0),
    };
    if tunnel || has_sync {
        return Some(0);
    }
    let after = directors.saturating_add_signed(event.path_change());
    let moved = share_moved_by_last_region(u32::from(directors), u32::from(after));
    let share = changed_slots(step)? * moved * TOLERANCE;
    Some((share * f64::from(connections)).ceil() as u64)
}

/// Returns the share of the table's slots that a change to the servers moves; `None` = the step is not such a change,
/// or no event uses it.
fn changed_slots(step: Step) -> Option<f64> {
    let steps: &'static [Step] = match step {
        Step::ServerAdded => &[Step::ServerAdded],
        Step::ServerDrained => &[Step::ServerDrained],
        Step::ServerDied | Step::DirectorAdded | Step::DirectorRemoved => return None,
    };
    let group = Group {
        directors: 1,
        servers: u32::from(SERVERS),
        sample: SAMPLE,
        unsynced: 0.0,
        seed: 1,
    };
    let scenario = Scenario { name: "", steps };
    // All values of the group are in their ranges.
    let simulation = Simulation::new(group, Design::FlowTable).ok()?;
    Some(simulation.run(Router::Threshold, &scenario).changed)
}

#[cfg(test)]
mod tests {
    use super::super::METHODS;
    use super::*;

    #[test]
    fn goal_is_product_of_changed_slots_and_moved_flows() {
        let goal = |event| METHODS.map(|method| max_broken(event, method, 4, 10_000));
        let [rules, direct, sync, gue] = goal(Event::ServerAddedDirectorKilled);
        assert_eq!((rules, sync, gue), (None, Some(0), Some(0)));
        // The product of at least a fifth of the slots and half of the flows.
        let direct = direct.expect("has a goal");
        assert!((1_100..1_700).contains(&direct), "{direct}");
        for event in [
            Event::ServerDrainedDirectorAdded,
            Event::ServerRemovedDirectorAdded,
        ] {
            let [_, direct, sync, gue] = goal(event);
            assert_eq!((sync, gue), (Some(0), Some(0)));
            let direct = direct.expect("has a goal");
            assert!((1_300..1_900).contains(&direct), "{direct}");
        }
    }

    #[test]
    fn goal_is_zero_during_rollout_with_synchronization_or_second_hop() {
        let goal = |event| METHODS.map(|method| max_broken(event, method, 4, 10_000));
        let [_, direct, sync, gue] = goal(Event::RolloutDirectorKilled);
        assert_eq!((sync, gue), (Some(0), Some(0)));
        assert!(direct > Some(0));
    }

    #[test]
    fn goal_is_zero_if_only_directors_change() {
        for event in [
            Event::DirectorAdded,
            Event::DirectorCut,
            Event::MajorityLost,
            Event::MixedBuildsDirectorKilled,
            Event::DirectorUpgraded,
        ] {
            for method in &METHODS[1..] {
                assert_eq!(max_broken(event, *method, 4, 400), Some(0));
            }
        }
    }
}
