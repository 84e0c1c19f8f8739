//! Tests upgrades to programs that fail to take over, at any stage: the running daemon continues with its whole state.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::scenario::{DIRECT, NAT, Walk, older};
use super::world::program::present;
use super::world::{Family, privileged, wait_for};

fn executable(path: PathBuf, bytes: &[u8]) -> PathBuf {
    fs::write(&path, bytes).expect("write the file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set the file mode");
    path
}

fn assert_upgrade_fails(walk: &mut Walk, program: &Path, why: &str) {
    let (done, printed) = walk.upgrade(present(), program);
    assert!(
        !done && printed.contains(why),
        "{}: {printed}",
        program.display()
    );
    walk.assert_unchanged();
}

#[test]
fn upgrade_to_invalid_program_changes_nothing() {
    if !privileged() {
        return;
    }
    let (mut walk, _) = Walk::start(&NAT, present());
    let path = |name: &str| walk.world.path(name);
    let whole = fs::read(present()).expect("read the program file");
    let ends = executable(path("ends"), b"#!/bin/sh\nexit 1\n");
    let cut = executable(path("cut"), &whole[..65_536]);
    let (text, directory) = (path("text"), path("directory"));
    fs::write(&text, "no program").expect("write the file");
    fs::create_dir(&directory).expect("create a directory");
    assert_upgrade_fails(
        &mut walk,
        &ends,
        "ended before it was ready (exit status: 1)",
    );
    assert_upgrade_fails(&mut walk, &cut, "");
    assert_upgrade_fails(&mut walk, &text, "Permission denied");
    assert_upgrade_fails(&mut walk, &directory, "Permission denied");
    assert_upgrade_fails(&mut walk, Path::new("/nonexistent"), "No such file");
    walk.end();
}

/// Makes the next program fail when everything except its socket is ready and it has taken over the data plane: the
/// socket's path is a mount point, which a rename cannot replace.
fn assert_upgrade_fails_late(walk: &mut Walk, program: &Path) {
    let socket = walk.world.path("run-director").join("weir.sock");
    let run = |command: &mut Command| {
        let output = command
            .arg(&socket)
            .output()
            .expect("run the util-linux program");
        assert!(output.status.success(), "{output:?}");
    };
    run(Command::new("mount").arg("--bind").arg(&socket));
    let mut command = walk.world.weir_by(present(), "director");
    let output = command
        .arg("upgrade")
        .arg(program)
        .output()
        .expect("run weir");
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
    walk.assert_unchanged();
}

/// Asserts that the daemon applies an override in the kernel and persists it.
fn assert_override_applies(walk: &mut Walk, pid: u32) {
    let forward = "direct";
    let server = format!("{forward}/{}", Family::V4.server(1));
    walk.world.run_weir(&["server", &server, "drain"]);
    let (before, others) = walk.new_connections(forward, 1);
    walk.assert_unchanged();
    let (after, later) = walk.new_connections(forward, 1);
    assert!(later > others, "new clients must reach the other servers");
    assert_eq!(after, before, "{:#}", walk.world.status());
    walk.world.kill_director(pid);
    walk.world.start_director(&walk.config.clone());
    walk.assert_unchanged();
    let (again, _) = walk.new_connections(forward, 1);
    assert_eq!(again, before, "{:#}", walk.world.status());
}

#[test]
fn upgrade_that_fails_at_the_end_is_reverted() {
    if !privileged() {
        return;
    }
    let (mut walk, pid) = Walk::start(&DIRECT, present());
    assert_upgrade_fails_late(&mut walk, &older());
    assert_override_applies(&mut walk, pid);
    walk.end();
}

/// The other build has already created new maps and moved all flows to them.
#[test]
fn upgrade_that_fails_after_map_replacement_is_reverted() {
    if !privileged() {
        return;
    }
    let (mut walk, pid) = Walk::start(&DIRECT, present());
    let filter = walk.world.pin_dir("director").join("state-1/weir_filters");
    fs::remove_file(&filter).expect("remove the pin");
    let made = Command::new("bpftool")
        .args(["map", "create"])
        .arg(&filter)
        .args(["type", "array", "key", "4", "value", "16384"])
        .args(["entries", "1", "name", "weir_filters", "flags", "1024"])
        .output();
    assert!(made.expect("run bpftool").status.success());
    assert_upgrade_fails_late(&mut walk, present());
    assert!(!filter.exists(), "the new maps must be removed");
    assert!(walk.world.log().contains("reverting its changes"));
    assert_override_applies(&mut walk, pid);
    walk.end();
}

/// The new program is killed at an arbitrary time, or soon after it has taken over.
#[test]
fn upgrade_killed_at_any_time_loses_nothing() {
    if !privileged() {
        return;
    }
    let (mut walk, _) = Walk::start(&NAT, present());
    let path = |name: &str| walk.world.path(name);
    let (armed, ticks, program) = (path("armed"), path("ticks"), path("dies"));
    for seconds in ["0.02", "0.05", "0.1", "0.2", "0.4", "0.7", "1.0"] {
        fs::write(&armed, "").expect("write the file");
        // Only once: the next program is not killed.
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
        walk.assert_unchanged();
    }
    walk.end();
}
