//! Tests that the flows of a director reach its peer while the director is upgraded.
//!
//! The next program is always a script that waits until the test lets it continue.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::world::program::program_under_test;
use super::world::{privileged, wait_for};
use super::{ADDRESSES, Connection, DIRECT, Pair, TIMEOUT};

/// Environment variable that is set if the machine has the account `weir`, so that the engine is in a separate process.
const WITH_ACCOUNT: &str = "WEIR_TEST_WITH_ACCOUNT";
/// Number of connections that are opened while the next program has not started yet.
const EARLY_CONNECTIONS: usize = 8;
/// Minimum number of connections that are opened after the next program may start.
const LATE_CONNECTIONS: usize = 5;

/// An upgrade of the first director to a program that does not start yet.
struct Upgrade {
    command: Child,
    end: PathBuf,
}

impl Upgrade {
    /// Begins an upgrade to a script that ends with `command`. Returns when the script runs.
    fn begin(pair: &Pair, command: &str) -> Self {
        let path = |name: &str| pair.world.path(name);
        let (begun, end, script) = (path("begun"), path("end"), path("next"));
        for file in [&begun, &end] {
            let _ = fs::remove_file(file);
        }
        let text = format!(
            "#!/bin/sh\n: >{}\nwhile [ ! -e {} ]; do sleep 0.05; done\n{command}\n",
            begun.display(),
            end.display()
        );
        fs::write(&script, text).expect("write the file");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&script, mode).expect("set the file mode");
        let mut weir = pair.world.weir("director");
        weir.stdout(Stdio::piped()).stderr(Stdio::piped());
        let upgrade = Self {
            command: weir.arg("upgrade").arg(&script).spawn().expect("run weir"),
            end,
        };
        wait_for("the start of the script", TIMEOUT, || begun.exists());
        upgrade
    }

    /// Lets the script continue.
    fn permit_start(&self) {
        fs::write(&self.end, "").expect("write the file");
    }

    fn has_ended(&mut self) -> bool {
        self.command
            .try_wait()
            .expect("query the process")
            .is_some()
    }

    fn wait(self) -> Output {
        self.command.wait_with_output().expect("wait for weir")
    }
}

fn start_both() -> Pair {
    let mut pair = Pair::new("direct");
    for (host, _) in ADDRESSES {
        pair.start(host, &DIRECT);
    }
    wait_for("an established peer", TIMEOUT, || {
        pair.peer("director")["state"] == "established" && pair.peer("second")["complete"] == true
    });
    if std::env::var_os(WITH_ACCOUNT).is_some() {
        let log = fs::read_to_string(pair.world.path("director.log")).expect("read the log");
        assert!(!log.contains("the daemon runs as root"), "{log}");
    }
    pair
}

/// Opens connections, and waits until all connections are on the second director. Returns how long that took.
fn open(pair: &Pair, connections: &mut Vec<Connection>, count: usize) -> Duration {
    connections.extend(pair.open_connections(count));
    let opened_at = Instant::now();
    wait_for("the flows to reach the second director", TIMEOUT, || {
        pair.total("second") == connections.len() as u64
    });
    opened_at.elapsed()
}

fn assert_connections_survive(pair: &Pair, connections: &mut [Connection]) {
    pair.move_vip_to("second", Some("director"));
    assert!(connections.iter_mut().all(Connection::reaches_same_server));
}

/// Makes the pinned maps unsuitable for the next program, which therefore replaces them.
fn replace_pinned_map(pair: &Pair) {
    let pin_dir = pair.world.pin_dir("director");
    let filter = pin_dir.join("state-1/weir_filters");
    fs::remove_file(&filter).expect("remove the pin");
    let output = Command::new("bpftool")
        .args(["map", "create"])
        .arg(&filter)
        .args(["type", "array", "key", "4", "value", "16384"])
        .args(["entries", "1", "name", "weir_filters", "flags", "1024"])
        .output();
    assert!(output.expect("run bpftool").status.success());
}

fn assert_flows_reach_the_peer(replaces_maps: bool) {
    let pair = start_both();
    let mut connections = Vec::new();
    open(&pair, &mut connections, 1);
    if replaces_maps {
        replace_pinned_map(&pair);
    }
    let program = format!("exec {} \"$@\"", program_under_test().display());
    let mut upgrade = Upgrade::begin(&pair, &program);
    open(&pair, &mut connections, EARLY_CONNECTIONS);
    upgrade.permit_start();
    let (mut longest, mut late_count) = (Duration::ZERO, 0);
    while late_count < LATE_CONNECTIONS || !upgrade.has_ended() {
        longest = longest.max(open(&pair, &mut connections, 1));
        late_count += 1;
    }
    // This includes the time of at least one `weir status`.
    println!("{late_count} flows reached the peer within {longest:?} during the handover");
    let output = upgrade.wait();
    assert!(output.status.success(), "{output:?}");
    open(&pair, &mut connections, 1);
    assert_connections_survive(&pair, &mut connections);
}

#[test]
fn flows_reach_the_peer_during_an_upgrade() {
    if privileged() {
        assert_flows_reach_the_peer(false);
    }
}

#[test]
fn flows_reach_the_peer_during_an_upgrade_that_replaces_the_maps() {
    if privileged() {
        assert_flows_reach_the_peer(true);
    }
}

/// The first program does not start. The second one has replaced the maps and synchronizes flows when it fails, because
/// the path of its socket is a mount point.
#[test]
fn flows_reach_the_peer_after_failed_upgrades() {
    if !privileged() {
        return;
    }
    let pair = start_both();
    let mut connections = Vec::new();
    let fail = |program: &str| {
        let upgrade = Upgrade::begin(&pair, program);
        upgrade.permit_start();
        let output = upgrade.wait();
        assert!(!output.status.success(), "{output:?}");
    };
    fail("exit 1");
    open(&pair, &mut connections, 1);
    replace_pinned_map(&pair);
    let socket = pair.world.path("run-director").join("weir.sock");
    let run = |command: &mut Command| {
        let output = command.arg(&socket).output().expect("run mount or umount");
        assert!(output.status.success(), "{output:?}");
    };
    run(Command::new("mount").arg("--bind").arg(&socket));
    fail(&format!("exec {} \"$@\"", program_under_test().display()));
    run(Command::new("umount").arg("--lazy"));
    open(&pair, &mut connections, EARLY_CONNECTIONS);
    assert_connections_survive(&pair, &mut connections);
}

/// Runs the other tests of this module in a mount namespace in which the account `weir` exists. The engine then runs in
/// a separate process, which synchronizes flows.
#[test]
fn flows_from_separate_engine_process_reach_the_peer() {
    if !privileged() {
        return;
    }
    let directory = std::env::temp_dir().join(format!("weir-account-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("create a directory");
    let accounts = [
        ("passwd", "weir:x:991:991::/nonexistent:/usr/sbin/nologin\n"),
        ("group", "weir:x:991:\n"),
    ];
    let mut script = String::new();
    for (name, line) in accounts {
        let original = format!("/etc/{name}");
        let mut text = fs::read_to_string(&original).expect("read the file");
        if !text.lines().any(|it| it.starts_with("weir:")) {
            text.push_str(line);
        }
        let file = directory.join(name);
        fs::write(&file, text).expect("write the file");
        script.push_str(&format!("mount --bind {} {original} && ", file.display()));
    }
    let test = std::env::current_exe().expect("the path of this program");
    script.push_str(&format!(
        "exec {} upgrade::flows_reach --test-threads=1",
        test.display()
    ));
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .env(WITH_ACCOUNT, "1")
        .output()
        .expect("run unshare");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("3 passed"), "{text}");
    fs::remove_dir_all(&directory).expect("remove the directory");
}
