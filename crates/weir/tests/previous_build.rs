//! Tests upgrades and downgrades between two builds under traffic, by `weir upgrade` and after a crash. `WEIR_OLDER` is
//! the path of the other build's program; without it, the current build replaces itself.

#[path = "previous_build/failed_upgrade.rs"]
mod failed_upgrade;
#[path = "previous_build/scenario.rs"]
mod scenario;
mod world;

use scenario::{DIRECT, DirectorUnderLoad, NAT, Setup, older_program};
use world::privileged;
use world::program::program_under_test;

fn assert_state_is_adopted(setup: &Setup) {
    let older = older_program();
    let (mut director, mut pid) = DirectorUnderLoad::start(setup, &older);
    for next in [program_under_test(), &older, program_under_test()] {
        director.world.kill_director(pid);
        pid = director
            .world
            .start_director_with(next, &director.config.clone());
        director.assert_unchanged();
    }
    director.stop();
}

#[test]
fn state_of_previous_build_is_adopted_with_direct() {
    if privileged() {
        assert_state_is_adopted(&DIRECT);
    }
}

#[test]
fn state_of_previous_build_is_adopted_with_nat() {
    if privileged() {
        assert_state_is_adopted(&NAT);
    }
}

fn assert_upgrades_and_downgrades_keep_state(setup: &Setup) {
    let older = older_program();
    let (mut director, _) = DirectorUnderLoad::start(setup, &older);
    for (command, target) in [
        (&*older, program_under_test()),
        (program_under_test(), &*older),
        (program_under_test(), program_under_test()),
        (&*older, &*older),
        (&*older, program_under_test()),
    ] {
        let (succeeded, output) = director.upgrade(command, target);
        assert!(succeeded, "to {}: {output}", target.display());
        director.assert_unchanged();
    }
    director.stop();
}

#[test]
fn upgrade_and_downgrade_keep_state_with_direct() {
    if privileged() {
        assert_upgrades_and_downgrades_keep_state(&DIRECT);
    }
}

#[test]
fn upgrade_and_downgrade_keep_state_with_nat() {
    if privileged() {
        assert_upgrades_and_downgrades_keep_state(&NAT);
    }
}

/// Downgrades to the older build, which has not created any state before.
fn assert_downgrades_keep_state(setup: &Setup) {
    let older = older_program();
    let (mut director, _) = DirectorUnderLoad::start(setup, program_under_test());
    for target in [&*older, program_under_test(), &*older] {
        let (succeeded, output) = director.upgrade(program_under_test(), target);
        assert!(succeeded, "to {}: {output}", target.display());
        director.assert_unchanged();
    }
    director.stop();
}

#[test]
fn downgrade_keeps_state_with_direct() {
    if privileged() {
        assert_downgrades_keep_state(&DIRECT);
    }
}

#[test]
fn downgrade_keeps_state_with_nat() {
    if privileged() {
        assert_downgrades_keep_state(&NAT);
    }
}
