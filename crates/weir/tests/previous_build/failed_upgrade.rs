//! Programs that fail to take over at any stage: the running daemon continues, with its whole state.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::scenario::{DIRECT, NAT, Walk, older};
use super::world::program::present;
use super::world::{Family, privileged, wait_for};

fn executable(path: PathBuf, bytes: &[u8]) -> PathBuf {
    fs::write(&path, bytes).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its owner");
    path
}

fn fails(walk: &mut Walk, program: &Path, why: &str) {
    let (done, printed) = walk.upgrade(present(), program);
    assert!(
        !done && printed.contains(why),
        "{}: {printed}",
        program.display()
    );
    walk.continues();
}

#[test]
fn upgrade_to_a_non_program_changes_nothing() {
    if !privileged() {
        return;
    }
    let (mut walk, _) = Walk::start(&NAT, present());
    let path = |name: &str| walk.world.path(name);
    let whole = fs::read(present()).expect("the program");
    let ends = executable(path("ends"), b"#!/bin/sh\nexit 1\n");
    let cut = executable(path("cut"), &whole[..65_536]);
    let (text, directory) = (path("text"), path("directory"));
    fs::write(&text, "no program").expect("written");
    fs::create_dir(&directory).expect("a directory");
    fails(
        &mut walk,
        &ends,
        "ended before it was ready (exit status: 1)",
    );
    fails(&mut walk, &cut, "");
    fails(&mut walk, &text, "Permission denied");
    fails(&mut walk, &directory, "Permission denied");
    fails(&mut walk, Path::new("/nonexistent"), "No such file");
    walk.end();
}

/// The next program that starts fails when everything except its socket is ready; the data plane has been taken over by
/// then. A mount point cannot be replaced by a rename.
fn fails_late(walk: &mut Walk, program: &Path) {
    let socket = walk.world.path("run-director").join("weir.sock");
    let run = |command: &mut Command| {
        let output = command.arg(&socket).output().expect("util-linux is there");
        assert!(output.status.success(), "{output:?}");
    };
    run(Command::new("mount").arg("--bind").arg(&socket));
    let mut command = walk.world.weir_by(present(), "director");
    let output = command
        .arg("upgrade")
        .arg(program)
        .output()
        .expect("weir runs");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    run(Command::new("umount").arg("--lazy"));
    let why = if std::env::var_os("WEIR_OLDER").is_none() {
        "weir.sock: Device or resource busy"
    } else {
        "ended before it was ready"
    };
    assert!(
        !output.status.success() && printed.contains(why),
        "{printed}"
    );
    walk.continues();
}

/// An override is applied in the kernel, and persisted.
fn obeys(walk: &mut Walk, pid: u32) {
    let forward = "direct";
    let server = format!("{forward}/{}", Family::V4.server(1));
    walk.world.run_weir(&["server", &server, "drain"]);
    let (before, others) = walk.new_connections(forward, 1);
    walk.continues();
    let (after, later) = walk.new_connections(forward, 1);
    assert!(later > others, "clients come to the others");
    assert_eq!(after, before, "{:#}", walk.world.status());
    walk.world.kill_director(pid);
    walk.world.start_director(&walk.config.clone());
    walk.continues();
    let (again, _) = walk.new_connections(forward, 1);
    assert_eq!(again, before, "{:#}", walk.world.status());
}

#[test]
fn upgrade_failing_at_the_end_is_undone() {
    if !privileged() {
        return;
    }
    let (mut walk, pid) = Walk::start(&DIRECT, present());
    fails_late(&mut walk, &older());
    obeys(&mut walk, pid);
    walk.end();
}

/// Another build would have created its maps again and moved all flows to them.
#[test]
fn upgrade_failing_after_map_replacement_leaves_nothing() {
    if !privileged() {
        return;
    }
    let (mut walk, pid) = Walk::start(&DIRECT, present());
    let filter = walk.world.pin_dir("director").join("state-1/weir_filters");
    fs::remove_file(&filter).expect("it is pinned");
    let made = Command::new("bpftool")
        .args(["map", "create"])
        .arg(&filter)
        .args(["type", "array", "key", "4", "value", "16384"])
        .args(["entries", "1", "name", "weir_filters", "flags", "1024"])
        .output();
    assert!(made.expect("bpftool runs").status.success());
    fails_late(&mut walk, present());
    assert!(!filter.exists(), "the maps are others");
    assert!(walk.world.log().contains("reverting its changes"));
    obeys(&mut walk, pid);
    walk.end();
}

/// Killed at an arbitrary moment, or soon after it has taken over.
#[test]
fn upgrade_killed_at_any_point_loses_nothing() {
    if !privileged() {
        return;
    }
    let (mut walk, _) = Walk::start(&NAT, present());
    let path = |name: &str| walk.world.path(name);
    let (armed, ticks, program) = (path("armed"), path("ticks"), path("dies"));
    for seconds in ["0.02", "0.05", "0.1", "0.2", "0.4", "0.7", "1.0"] {
        fs::write(&armed, "").expect("written");
        // Once: the next one is not killed.
        let text = format!(
            "#!/bin/sh\nif mv {armed} {ticks} 2>/dev/null; then (sleep {seconds}; kill -9 $$; rm {ticks}) & fi\nexec \
             {} \"$@\"\n",
            older().display(),
            armed = armed.display(),
            ticks = ticks.display()
        );
        executable(program.clone(), text.as_bytes());
        let (done, printed) = walk.upgrade(present(), &program);
        println!("killed after {seconds} s: {done} {printed}");
        wait_for("the end", Duration::from_secs(30), || !ticks.exists());
        walk.world.wait_for_daemon();
        walk.continues();
    }
    walk.end();
}
