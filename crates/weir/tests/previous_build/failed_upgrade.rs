//! Tests upgrades to programs that fail to take over at any stage: the running daemon continues with all its state.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::scenario::{DIRECT, DirectorUnderLoad, NAT, older_program};
use super::world::program::program_under_test;
use super::world::{Family, privileged, wait_for};

fn write_executable(path: PathBuf, bytes: &[u8]) -> PathBuf {
    fs::write(&path, bytes).expect("write the file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set the file mode");
    path
}

fn assert_upgrade_fails(director: &mut DirectorUnderLoad, program: &Path, reason: &str) {
    let (succeeded, printed) = director.upgrade(program_under_test(), program);
    assert!(
        !succeeded && printed.contains(reason),
        "{}: {printed}",
        program.display()
    );
    director.assert_unchanged();
}

#[test]
fn upgrade_to_invalid_program_has_no_effect() {
    if !privileged() {
        return;
    }
    let (mut director, _) = DirectorUnderLoad::start(&NAT, program_under_test());
    let path = |name: &str| director.world.path(name);
    let program = fs::read(program_under_test()).expect("read the program file");
    let failing = write_executable(path("ends"), b"#!/bin/sh\nexit 1\n");
    let truncated = write_executable(path("cut"), &program[..65_536]);
    let (text, directory) = (path("text"), path("directory"));
    fs::write(&text, "no program").expect("write the file");
    fs::create_dir(&directory).expect("create a directory");
    assert_upgrade_fails(
        &mut director,
        &failing,
        "exited before it was ready (exit status: 1)",
    );
    assert_upgrade_fails(&mut director, &truncated, "");
    assert_upgrade_fails(&mut director, &text, "Permission denied");
    assert_upgrade_fails(&mut director, &directory, "Permission denied");
    assert_upgrade_fails(&mut director, Path::new("/nonexistent"), "No such file");
    director.stop();
}

/// Pacemaker's agent and keepalived's scripts consider a director faulty if it does not report its status within
/// seconds.
#[test]
fn status_is_reported_during_upgrade() {
    if !privileged() {
        return;
    }
    let (mut director, _) = DirectorUnderLoad::start(&NAT, program_under_test());
    let path = |name: &str| director.world.path(name);
    let (begun, end) = (path("begun"), path("end"));
    let text = format!(
        "#!/bin/sh\n: >{}\nwhile [ ! -e {} ]; do sleep 0.05; done\nexit 1\n",
        begun.display(),
        end.display()
    );
    let slow_program = write_executable(path("slow"), text.as_bytes());
    let command = || {
        let mut command = director.world.weir_with(program_under_test(), "director");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let upgrade = command()
        .arg("upgrade")
        .arg(&slow_program)
        .spawn()
        .expect("run weir");
    wait_for(
        "the start of the new program",
        Duration::from_secs(60),
        || begun.exists(),
    );
    // This request waits until the upgrade has ended. It must not delay the status.
    let server = format!("nat/{}", Family::V4.server(1));
    let change = command()
        .args(["server", &server, "ready"])
        .spawn()
        .expect("run weir");
    for _ in 0..3 {
        let status = command()
            .args(["status", "--json"])
            .output()
            .expect("run weir");
        assert!(status.status.success(), "{status:?}");
    }
    fs::write(&end, "").expect("write the file");
    let upgrade = upgrade.wait_with_output().expect("wait for the process");
    let errors = String::from_utf8_lossy(&upgrade.stderr);
    assert!(
        !upgrade.status.success() && errors.contains("exited before it was ready"),
        "{errors}"
    );
    let change = change.wait_with_output().expect("wait for the process");
    assert!(change.status.success(), "{change:?}");
    director.assert_unchanged();
    director.stop();
}

/// Makes the next program fail late: it has taken over the data plane, and everything except its socket is ready. The
/// socket's path is a mount point, which a rename cannot replace.
fn assert_upgrade_fails_late(director: &mut DirectorUnderLoad, program: &Path) {
    let socket = director.world.path("run-director").join("weir.sock");
    let run = |command: &mut Command| {
        let output = command.arg(&socket).output().expect("run mount or umount");
        assert!(output.status.success(), "{output:?}");
    };
    run(Command::new("mount").arg("--bind").arg(&socket));
    let mut command = director.world.weir_with(program_under_test(), "director");
    let output = command
        .arg("upgrade")
        .arg(program)
        .output()
        .expect("run weir");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    run(Command::new("umount").arg("--lazy"));
    let reason = if std::env::var_os("WEIR_OLD_BINARY").is_none() {
        "weir.sock: Device or resource busy"
    } else {
        "exited before it was ready"
    };
    assert!(
        !output.status.success() && errors.contains(reason),
        "{errors}"
    );
    director.assert_unchanged();
}

/// Asserts that the daemon applies an override in the kernel and persists it.
fn assert_override_applies(director: &mut DirectorUnderLoad, pid: u32) {
    let forward = "direct";
    let server = format!("{forward}/{}", Family::V4.server(1));
    director.world.run_weir(&["server", &server, "drain"]);
    let (before, others_before) = director.new_connections(forward, 1);
    director.assert_unchanged();
    let (after, others_after) = director.new_connections(forward, 1);
    assert!(
        others_after > others_before,
        "new clients must reach the other servers"
    );
    assert_eq!(after, before, "{:#}", director.world.status());
    director.world.kill_keeper(pid);
    director.world.start_daemon(&director.config.clone());
    director.assert_unchanged();
    let (after_restart, _) = director.new_connections(forward, 1);
    assert_eq!(after_restart, before, "{:#}", director.world.status());
}

#[test]
fn upgrade_that_fails_at_the_end_is_reverted() {
    if !privileged() {
        return;
    }
    let (mut director, pid) = DirectorUnderLoad::start(&DIRECT, program_under_test());
    assert_upgrade_fails_late(&mut director, &older_program());
    assert_override_applies(&mut director, pid);
    director.stop();
}

/// When the upgrade fails, the other build has already created new maps and moved all flows to them.
#[test]
fn upgrade_that_fails_after_map_replacement_is_reverted() {
    if !privileged() {
        return;
    }
    let (mut director, pid) = DirectorUnderLoad::start(&DIRECT, program_under_test());
    let filter = director
        .world
        .pin_dir("director")
        .join("state-1/weir_filters");
    fs::remove_file(&filter).expect("remove the pin");
    let output = Command::new("bpftool")
        .args(["map", "create"])
        .arg(&filter)
        .args(["type", "array", "key", "4", "value", "16384"])
        .args(["entries", "1", "name", "weir_filters", "flags", "1024"])
        .output();
    assert!(output.expect("run bpftool").status.success());
    assert_upgrade_fails_late(&mut director, program_under_test());
    assert!(!filter.exists(), "the new maps must be removed");
    assert!(director.world.log().contains("reverting its changes"));
    assert_override_applies(&mut director, pid);
    director.stop();
}

/// The new program is killed at an arbitrary time, or soon after it has taken over.
#[test]
fn upgrade_killed_at_any_time_loses_nothing() {
    if !privileged() {
        return;
    }
    let (mut director, _) = DirectorUnderLoad::start(&NAT, program_under_test());
    let path = |name: &str| director.world.path(name);
    let (armed, timer, program) = (path("armed"), path("timer"), path("dies"));
    for delay_s in ["0.02", "0.05", "0.1", "0.2", "0.4", "0.7", "1.0"] {
        fs::write(&armed, "").expect("write the file");
        // The program is killed only once, because the next start does not find `armed`.
        let text = format!(
            "#!/bin/sh\nif mv {armed} {timer} 2>/dev/null; then (sleep {delay_s}; kill -9 $$; rm {timer}) & fi\nexec \
             {} \"$@\"\n",
            older_program().display(),
            armed = armed.display(),
            timer = timer.display()
        );
        write_executable(program.clone(), text.as_bytes());
        let (succeeded, printed) = director.upgrade(program_under_test(), &program);
        println!("killed after {delay_s} s: {succeeded} {printed}");
        wait_for("the program to be killed", Duration::from_secs(30), || {
            !timer.exists()
        });
        director.world.wait_for_daemon();
        director.assert_unchanged();
    }
    director.stop();
}
