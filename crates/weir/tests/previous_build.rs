//! Two builds alternate under traffic, by `weir upgrade` and by a crash. `WEIR_OLDER` is the path of another build's
//! program; without it the present build alternates with itself.

#[path = "previous_build/failed_upgrade.rs"]
mod failed_upgrade;
#[path = "previous_build/scenario.rs"]
mod scenario;
mod world;

use scenario::{STRAIGHT, Scene, THROUGH, Walk, older};
use world::privileged;
use world::program::present;

fn adopted(scene: &Scene) {
    let older = older();
    let (mut walk, mut pid) = Walk::start(scene, &older);
    for next in [present(), &older, present()] {
        walk.world.kill_director(pid);
        pid = walk.world.start_director_by(next, &walk.config.clone());
        walk.goes_on();
    }
    walk.end();
}

#[test]
fn previous_builds_state_is_adopted_direct() {
    if privileged() {
        adopted(&STRAIGHT);
    }
}

#[test]
fn previous_builds_state_is_adopted_nat() {
    if privileged() {
        adopted(&THROUGH);
    }
}

fn upgraded(scene: &Scene) {
    let older = older();
    let (mut walk, _) = Walk::start(scene, &older);
    for (by, to) in [
        (&*older, present()),
        (present(), &*older),
        (present(), present()),
        (&*older, &*older),
        (&*older, present()),
    ] {
        let (done, said) = walk.upgrade(by, to);
        assert!(done, "to {}: {said}", to.display());
        walk.goes_on();
    }
    walk.end();
}

#[test]
fn upgrade_and_downgrade_keep_everything_direct() {
    if privileged() {
        upgraded(&STRAIGHT);
    }
}

#[test]
fn upgrade_and_downgrade_keep_everything_nat() {
    if privileged() {
        upgraded(&THROUGH);
    }
}

/// The older build has made nothing here before.
fn went_back(scene: &Scene) {
    let older = older();
    let (mut walk, _) = Walk::start(scene, present());
    for to in [&*older, present(), &*older] {
        let (done, said) = walk.upgrade(present(), to);
        assert!(done, "to {}: {said}", to.display());
        walk.goes_on();
    }
    walk.end();
}

#[test]
fn downgrade_keeps_everything_direct() {
    if privileged() {
        went_back(&STRAIGHT);
    }
}

#[test]
fn downgrade_keeps_everything_nat() {
    if privileged() {
        went_back(&THROUGH);
    }
}
