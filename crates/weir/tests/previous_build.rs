//! Two builds alternate under traffic, by `weir upgrade` and by a crash. `WEIR_OLDER` is the path of another build's
//! program; without it the present build alternates with itself.

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
        walk.continues();
    }
    walk.end();
}

#[test]
fn previous_builds_state_is_adopted_direct() {
    if privileged() {
        adopt_state(&DIRECT);
    }
}

#[test]
fn previous_builds_state_is_adopted_nat() {
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
        walk.continues();
    }
    walk.end();
}

#[test]
fn upgrade_and_downgrade_keep_everything_direct() {
    if privileged() {
        upgrade_and_downgrade(&DIRECT);
    }
}

#[test]
fn upgrade_and_downgrade_keep_everything_nat() {
    if privileged() {
        upgrade_and_downgrade(&NAT);
    }
}

/// The older build has not created any state before.
fn downgrade(scene: &Scene) {
    let older = older();
    let (mut walk, _) = Walk::start(scene, present());
    for to in [&*older, present(), &*older] {
        let (done, output) = walk.upgrade(present(), to);
        assert!(done, "to {}: {output}", to.display());
        walk.continues();
    }
    walk.end();
}

#[test]
fn downgrade_keeps_everything_direct() {
    if privileged() {
        downgrade(&DIRECT);
    }
}

#[test]
fn downgrade_keeps_everything_nat() {
    if privileged() {
        downgrade(&NAT);
    }
}
