//! Tests that a director reports pins that will be lost, and rejects pins that another director uses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::world::{Family, World, privileged};

fn config() -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n[pool.web]\nservers = [\"{}:80\"]\n\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n",
        Family::V4.server(0),
        Family::V4.vip()
    )
}

/// A bpffs, which is unmounted when it is dropped.
struct Bpffs {
    path: PathBuf,
}

impl Bpffs {
    fn mount(path: PathBuf) -> Self {
        fs::create_dir(&path).expect("create a directory");
        weir_sys::mount_bpffs(&path).expect("mount a bpffs");
        Self { path }
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

/// Starts a director below `ip netns exec`.
fn start_below_ip_netns_exec(world: &World, pin_dir: &Path) -> Child {
    let log = fs::File::create(world.path("director.log")).expect("create the log file");
    let inside = world.weir("director");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "ip", "netns", "exec"]);
    command.arg(world.namespace("director"));
    command.arg(env!("CARGO_BIN_EXE_weir"));
    for (name, value) in inside.get_envs() {
        command.env(name, value.expect("the variable is set"));
    }
    let child = command
        .env("WEIR_PIN_DIR", pin_dir)
        .args(["run", "-c"])
        .arg(world.path("weir.toml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("duplicate the file descriptor"))
        .stderr(log)
        .spawn()
        .expect("start the daemon");
    world.wait_for_daemon();
    child
}

fn stop(mut child: Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.expect("the process has an ID");
    kill_process(pid, Signal::TERM).expect("send a signal to the process");
    child.wait().expect("wait for the process");
}

/// The pins are in a bpffs of a mount namespace that ends with the command.
#[test]
fn temporary_pins_are_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    world.write_config(&config());
    let child = start_below_ip_netns_exec(&world, &world.pin_dir("director"));
    let log = world.log();
    assert!(
        log.contains("WARN forwarding ends when this process is stopped or killed"),
        "{log}"
    );
    assert!(log.contains("nsenter --net=/run/netns/NAME"), "{log}");
    let doctor = world.weir("director").arg("doctor").output();
    let found = String::from_utf8(doctor.expect("run weir").stdout).expect("text is valid UTF-8");
    assert!(
        found.contains("the daemon runs in a mount namespace that ends with its command"),
        "{found}"
    );
    stop(child);
    let log = world.log();
    assert!(
        log.contains("stopped; forwarding ends with this mount namespace"),
        "{log}"
    );
    assert!(!log.contains("the kernel continues to forward"), "{log}");
}

/// A bpffs of the host is also mounted below `ip netns exec`, and its pins remain.
#[test]
fn lasting_pins_are_not_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    world.write_config(&config());
    let bpffs = Bpffs::mount(world.path("bpf"));
    let child = start_below_ip_netns_exec(&world, &bpffs.path.join("weir"));
    let doctor = world.weir("director").arg("doctor").output();
    let found = String::from_utf8(doctor.expect("run weir").stdout).expect("text is valid UTF-8");
    assert!(!found.contains("mount namespace"), "{found}");
    stop(child);
    let log = world.log();
    assert!(
        log.contains("stopped; the kernel continues to forward"),
        "{log}"
    );
    assert!(!log.contains("WARN forwarding ends"), "{log}");
    assert!(bpffs.path.join("weir/layout").exists());
}

/// The second director has a different runtime directory and network namespace.
#[test]
fn pins_of_another_director_are_rejected() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let path = world.write_config(&config());
    let keeper = world.start_director(&config());
    let second = || {
        let output = world
            .command("server0", "timeout")
            .args(["60", env!("CARGO_BIN_EXE_weir"), "--runtime-dir"])
            .arg(world.path("run-server0"))
            .arg("--pin-dir")
            .arg(world.pin_dir("director"))
            .args(["run", "-c"])
            .arg(&path)
            .output();
        let output = output.expect("run weir");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("text is valid UTF-8")
    };
    let expected = format!(
        "{} is used by the daemon with the runtime directory {} (pid {keeper}); a second daemon needs a separate \
         --runtime-dir and --pin-dir",
        world.pin_dir("director").display(),
        world.path("run-director").display()
    );
    let message = second();
    assert!(message.contains(&expected), "{message}");
    // The daemons of one Weir use the same pins in turn.
    let daemon = world.status()["pid"].clone();
    world.run_weir(&["upgrade"]);
    assert_ne!(world.status()["pid"], daemon);
    let message = second();
    assert!(message.contains(&expected), "{message}");
    world.kill_director(keeper);
    let keeper = world.start_director(&config());
    let log = world.log();
    assert!(!log.contains("rewrote map elements"), "{log}");
    // Only a link of a daemon that no longer runs remains; `weir clean` removes it.
    world.kill_director(keeper);
    world.run_weir(&["clean"]);
    assert!(!world.pin_dir("director").exists());
}
