//! Tests that a director reports pins that will be lost, and rejects pins that another director uses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::world::{Family, World, privileged, wait_for};

fn config() -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n[pool.web]\nservers = [\"{}:80\"]\n\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n",
        Family::V4.server(0),
        Family::V4.vip()
    )
}

/// A bpffs that is unmounted on drop.
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

/// Starts a director with `ip netns exec`.
fn start_with_ip_netns_exec(world: &World, pin_dir: &Path) -> Child {
    let log = fs::File::create(world.path("director.log")).expect("create the log file");
    let weir = world.weir("director");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "ip", "netns", "exec"]);
    command.arg(world.namespace("director"));
    command.arg(env!("CARGO_BIN_EXE_weir"));
    for (name, value) in weir.get_envs() {
        command.env(name, value.expect("environment variable is removed"));
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
    let pid = pid.expect("invalid process ID");
    kill_process(pid, Signal::TERM).expect("send a signal to the process");
    child.wait().expect("wait for the process");
}

/// The pins are in a bpffs that belongs to the command's mount namespace and disappears with it.
#[test]
fn temporary_pins_are_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    world.write_config(&config());
    let child = start_with_ip_netns_exec(&world, &world.pin_dir("director"));
    let log = world.log();
    assert!(
        log.contains("WARN forwarding ends when this process is stopped or killed"),
        "{log}"
    );
    assert!(log.contains("nsenter --net=/run/netns/NAME"), "{log}");
    let doctor = world.weir("director").arg("doctor").output();
    let report = String::from_utf8(doctor.expect("run weir").stdout).expect("not UTF-8");
    assert!(
        report.contains("the daemon runs in a mount namespace that ends with its command"),
        "{report}"
    );
    stop(child);
    let log = world.log();
    assert!(
        log.contains("stopped; forwarding ends with this mount namespace"),
        "{log}"
    );
    assert!(!log.contains("the kernel continues to forward"), "{log}");
}

/// A bpffs of the host is also visible under `ip netns exec`, and its pins remain.
#[test]
fn persistent_pins_are_not_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    world.write_config(&config());
    let bpffs = Bpffs::mount(world.path("bpf"));
    let child = start_with_ip_netns_exec(&world, &bpffs.path.join("weir"));
    let doctor = world.weir("director").arg("doctor").output();
    let report = String::from_utf8(doctor.expect("run weir").stdout).expect("not UTF-8");
    assert!(!report.contains("mount namespace"), "{report}");
    stop(child);
    let log = world.log();
    assert!(
        log.contains("stopped; the kernel continues to forward"),
        "{log}"
    );
    assert!(!log.contains("WARN forwarding ends"), "{log}");
    assert!(bpffs.path.join("weir/layout").exists());
}

/// Returns a command that runs `weir` on the director's host with the director's pin directory but a different runtime
/// directory.
fn second_weir(world: &World) -> Command {
    let mut command = world.weir("director");
    command.env("WEIR_RUNTIME_DIR", world.path("run-second"));
    command
}

/// Starts a second daemon and waits until it responds.
fn start_second(world: &World, config: &Path) -> Child {
    let child = second_weir(world)
        .args(["run", "-c"])
        .arg(config)
        .stdout(Stdio::null())
        .stderr(fs::File::create(world.path("second.log")).expect("create the log file"))
        .spawn()
        .expect("start the daemon");
    wait_for("the second daemon", Duration::from_secs(60), || {
        second_weir(world)
            .args(["status", "--json"])
            .output()
            .is_ok_and(|output| output.status.success())
    });
    child
}

/// Runs a command of the second director, which must fail, and returns its error.
fn second_error(world: &World, arguments: &[&str]) -> String {
    let output = second_weir(world).args(arguments).output();
    let output = output.expect("run weir");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).expect("not UTF-8")
}

/// The second director has a different runtime directory.
#[test]
fn pins_of_another_director_are_rejected() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let path = world.write_config(&config());
    let keeper = world.start_daemon(&config());
    let run = ["run", "-c", path.to_str().expect("not UTF-8")];
    let expected = format!(
        "{} is used by the daemon with the runtime directory {} (pid {keeper}); a second daemon needs a separate \
         --runtime-dir and --pin-dir",
        world.pin_dir("director").display(),
        world.path("run-director").display()
    );
    for arguments in [&run[..], &["clean"]] {
        let message = second_error(&world, arguments);
        assert!(message.contains(&expected), "{arguments:?}: {message}");
    }
    // A daemon without layer 4 services does not need the pin directory and does not change it.
    let proxy = world.path("proxy.toml");
    let text = "[pool.web]\nservers = [\"127.0.0.1:81\"]\ncheck = { kind = \"tcp\" }\n\n\
                [service.web]\nlisten = [\"127.0.0.1:8080\"]\nforward = \"proxy\"\nprotocol = \"tcp\"\n\
                pool = \"web\"\n";
    fs::write(&proxy, text).expect("write the configuration");
    stop(start_second(&world, &proxy));
    assert!(world.pin_dir("director").join("layout").exists());
    // Successive daemons of the same director use the same pins.
    let daemon = world.status()["pid"].clone();
    world.run_weir(&["upgrade"]);
    assert_ne!(world.status()["pid"], daemon);
    let message = second_error(&world, &run);
    assert!(message.contains(&expected), "{message}");
    world.kill_keeper(keeper);
    let keeper = world.start_daemon(&config());
    let message = second_error(&world, &run);
    assert!(message.contains(&format!("(pid {keeper})")), "{message}");
    let log = world.log();
    assert!(!log.contains("rewrote map elements"), "{log}");
}

/// A killed daemon leaves its link behind.
#[test]
fn pins_of_a_killed_director_are_usable() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let path = world.write_config(&config());
    let keeper = world.start_daemon(&config());
    world.kill_keeper(keeper);
    stop(start_second(&world, &path));
    assert!(world.pin_dir("director").join("owner").is_symlink());
    let keeper = world.start_daemon(&config());
    world.kill_keeper(keeper);
    let output = second_weir(&world).arg("clean").output();
    let output = output.expect("run weir");
    assert!(output.status.success(), "{output:?}");
    assert!(!world.pin_dir("director").exists());
}
