//! Tests upgrades and downgrades between two builds under traffic, with `weir upgrade` and after a crash.
//! `WEIR_OLD_BINARY` is the path of the other build's program; if it is unset, the current build replaces itself.

#[path = "previous_build/failed_upgrade.rs"]
mod failed_upgrade;
#[path = "previous_build/scenario.rs"]
mod scenario;
mod world;

use scenario::{DIRECT, DirectorUnderLoad, NAT, Setup, older_program};
use world::program::program_under_test;
use world::{Family, World, privileged};

fn assert_state_is_adopted(setup: &Setup) {
    let older = older_program();
    let (mut director, mut pid) = DirectorUnderLoad::start(setup, &older);
    for next in [program_under_test(), &older, program_under_test()] {
        director.world.kill_keeper(pid);
        pid = director
            .world
            .start_daemon_with(next, &director.config.clone());
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
    for (program, target) in [
        (&*older, program_under_test()),
        (program_under_test(), &*older),
        (program_under_test(), program_under_test()),
        (&*older, &*older),
        (&*older, program_under_test()),
    ] {
        let (succeeded, output) = director.upgrade(program, target);
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

/// Downgrades to an older build that has not previously created any state.
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

/// An older build does not remove the link `PIN_DIR/owner`, which must not prevent any build from starting.
#[test]
fn clean_by_previous_build_does_not_prevent_start() {
    if !privileged() {
        return;
    }
    let older = older_program();
    let mut world = World::new(1);
    let config = format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nservers = [\"{}:80\"]\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n",
        Family::V4.server(0),
        Family::V4.vip()
    );
    for next in [&*older, program_under_test()] {
        let keeper = world.start_daemon(&config);
        world.kill_keeper(keeper);
        let output = world.weir_with(&older, "director").arg("clean").output();
        let output = output.expect("run weir");
        assert!(output.status.success(), "{output:?}");
        assert!(!world.pin_dir("director").join("layout").exists());
        let keeper = world.start_daemon_with(next, &config);
        world.kill_keeper(keeper);
    }
    world.run_weir(&["clean"]);
    assert!(!world.pin_dir("director").exists());
}
