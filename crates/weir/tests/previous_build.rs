//! Tests upgrades and downgrades between two builds under traffic, by `weir upgrade` and after a crash. `WEIR_OLDER` is
//! the path of the other build's program; without it, the current build replaces itself.

#[path = "previous_build/failed_upgrade.rs"]
mod failed_upgrade;
#[path = "previous_build/scenario.rs"]
mod scenario;
mod world;

use scenario::{DIRECT, NAT, Scene, Walk, older};
use world::privileged;
use world::program::present;

fn adopt_state(scene: &Scene) {
    let older = older();
    let (mut walk, mut pid) = Walk::start(scene, &older);
    for next in [present(), &older, present()] {
        walk.world.kill_director(pid);
        pid = walk.world.start_director_by(next, &walk.config.clone());
        walk.assert_unchanged();
    }
    walk.end();
}

#[test]
fn state_of_previous_build_is_adopted_under_direct() {
    if privileged() {
        adopt_state(&DIRECT);
    }
}

#[test]
fn state_of_previous_build_is_adopted_under_nat() {
    if privileged() {
        adopt_state(&NAT);
    }
}

fn upgrade_and_downgrade(scene: &Scene) {
    let older = older();
    let (mut walk, _) = Walk::start(scene, &older);
    for (by, to) in [
        (&*older, present()),
        (present(), &*older),
        (present(), present()),
        (&*older, &*older),
        (&*older, present()),
    ] {
        let (done, output) = walk.upgrade(by, to);
        assert!(done, "to {}: {output}", to.display());
        walk.assert_unchanged();
    }
    walk.end();
}

#[test]
fn upgrade_and_downgrade_keep_state_under_direct() {
    if privileged() {
        upgrade_and_downgrade(&DIRECT);
    }
}

#[test]
fn upgrade_and_downgrade_keep_state_under_nat() {
    if privileged() {
        upgrade_and_downgrade(&NAT);
    }
}

/// Downgrades to the older build, which has not created any state before.
fn downgrade(scene: &Scene) {
    let older = older();
    let (mut walk, _) = Walk::start(scene, present());
    for to in [&*older, present(), &*older] {
        let (done, output) = walk.upgrade(present(), to);
        assert!(done, "to {}: {output}", to.display());
        walk.assert_unchanged();
    }
    walk.end();
}

#[test]
fn downgrade_keeps_state_under_direct() {
    if privileged() {
        downgrade(&DIRECT);
    }
}

#[test]
fn downgrade_keeps_state_under_nat() {
    if privileged() {
        downgrade(&NAT);
    }
}
