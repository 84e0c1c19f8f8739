//! Runs Weir with the accounts and capabilities of the package's systemd units, without a service manager.
//!
//! Two setups are tested: `weir.service` as an unprivileged account with `weir-helper.service`, and a single unit that
//! runs as root.

#[path = "world/attempts.rs"]
mod attempts;
mod world;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use attempts::{assert_attempts_failed, assert_lines};
use world::privileged;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// A directory that every account can enter.
struct SharedDirectory(PathBuf);

impl Drop for SharedDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Attempts that must fail in the daemon, with the expected errors.
const ATTEMPTS: &[(&str, &str)] = &[
    ("open /etc/shadow", "Permission denied"),
    ("execve", "not permitted"),
    ("bpf", "not permitted"),
    ("packet socket", "not permitted"),
    ("write outside", "Permission denied"),
    ("ptrace", "not permitted"),
    ("become root", "not permitted"),
    ("new namespace", "not permitted"),
    (
        "request /etc/shadow",
        "does not permit the daemon to read /etc/shadow",
    ),
    (
        "request a port",
        "does not permit the daemon to listen on 127.0.0.1:81",
    ),
    (
        "request a script as root",
        "does not permit the daemon to run",
    ),
    ("request a VIP", "does not permit the daemon to apply"),
    (
        "request an interface",
        "does not permit the daemon to apply",
    ),
    (
        "request an ipvsadm edit",
        "no client has requested these ipvsadm edits",
    ),
    (
        "attempt to permit an ipvsadm edit",
        "cannot reach the socket",
    ),
];

/// Runs a script from the tests directory in separate network and mount namespaces, with an empty directory.
fn run_script(script: &str) -> (SharedDirectory, Output) {
    let directory = std::env::temp_dir().join(format!("weir-{script}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).expect("create a directory");
    let directory = SharedDirectory(directory);
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--propagation", "private", "sh"])
        .arg(format!("{CRATE}/tests/{script}"))
        .args([
            env!("CARGO_BIN_EXE_weir"),
            directory.0.to_str().expect("path is valid UTF-8"),
            &format!("{CRATE}/../../docs/packaging"),
        ])
        .output()
        .expect("run unshare");
    (directory, output)
}

#[test]
fn unprivileged_keeper_and_daemon_serve_clients() {
    if !privileged() {
        return;
    }
    let (directory, output) = run_script("units.sh");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let read = |name: &str| fs::read_to_string(directory.0.join(name)).unwrap_or_default();
    let (log, helper) = (read("out/log"), read("out/helper"));
    let no_capabilities = "CapEff 0000000000000000, NoNewPrivs 1";
    let expected = [
        "start nat: served",
        "start proxy: served",
        "files: served",
        &format!("keeper: user 991, {no_capabilities}"),
        &format!("daemon: user 991, {no_capabilities}, CapBnd 0000000000000000, Seccomp 2"),
        "directories: root weir 1771, root weir 750, root weir 660",
        "socket: weir lbadmin 660",
        "status as a group member: ok",
        "files: lock root root 600, state root root 600, log root root 644",
        "status: ok",
        r#"{"refused":{"reason":"user 991 is not permitted to request this"}}"#,
        r#"{"refused":{"reason":"user 1 is not permitted to request this"}}"#,
        r#"{"refused":{"reason":"the helper service does not support protocol version 99"}}"#,
        "must be owned by root",
        "reload: reloaded",
        "reload: served",
        "new engine: weight set",
        "ipvsadm as root: done",
        "edits: root lbadmin 660",
        "WEIR_TEST_VIP is not set",
        "have different values",
        "new service: reloaded",
        "new service: served",
        "service ended: 0",
        "directories: root weir 1771",
        "killed daemon: served",
        "foreign program: refused",
        "failed upgrade: refused",
        "program owned by the account: refused",
        "upgrade: ok",
        "upgraded: served",
        "all steps: 0 lost",
        "killed keeper: served",
        "directories: root weir 1771",
        "keeper ended: 0",
        "directories: root root 700",
        "service ended: 0",
        "stopped: served",
        "clean: done",
        "failed start: 1, files: lock",
    ];
    assert_lines(&text, &expected, &format!("{log}\n{helper}"));
    assert_attempts_failed(&log, ATTEMPTS);
    assert!(helper.contains("has not permitted"), "{helper}");
}

#[test]
fn switching_between_root_unit_and_split_units_loses_no_request() {
    if !privileged() {
        return;
    }
    let (directory, output) = run_script("units_store.sh");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = fs::read_to_string(directory.0.join("out/log")).unwrap_or_default();
    let expected = [
        "root: served",
        "root: keeper 0",
        "root to units: 0 lost",
        "units: keeper 991 0000000000000000, daemon 991 0000000000000000",
        "units: reloaded",
        "killed keeper: 0 lost",
        "units to root: 0 lost",
        "root: keeper 0",
        "stopped: 0",
        "clean: done",
    ];
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        expected,
        "{log}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The units, each with its maximum permitted exposure level (`systemd-analyze security`).
const UNITS: &[(&str, f64)] = &[
    ("weir.service", 1.6),
    ("weir-helper.service", 4.5),
    ("weir-proxy.service", 1.7),
];

/// Without the helper service, no process can withdraw the announced routes, so systemd must never give up.
#[test]
fn only_the_helper_service_is_restarted_without_limit() {
    let packaging = PathBuf::from(CRATE).join("../../docs/packaging");
    for (unit, _) in UNITS {
        let text = fs::read_to_string(packaging.join(unit)).expect("read the unit");
        let setting = |key: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        };
        let expected = match *unit {
            "weir-helper.service" => (Some("0"), Some("1s")),
            _ => (Some("10"), Some("100ms")),
        };
        let actual = (setting("StartLimitIntervalSec"), setting("RestartSec"));
        assert_eq!(actual, expected, "{unit}");
        assert_eq!(setting("Restart"), Some("on-failure"), "{unit}");
    }
}

#[test]
fn exposure_levels_of_units_stay_below_limits() {
    let packaging = PathBuf::from(CRATE).join("../../docs/packaging");
    for (unit, max_level) in UNITS {
        let output = Command::new("systemd-analyze")
            .args(["security", "--offline=true"])
            .arg(packaging.join(unit))
            .output();
        let output = match output {
            Err(error) if !weir_testing::require_root() => {
                eprintln!("skipped: systemd-analyze: {error}");
                return;
            }
            output => output.expect("run systemd-analyze (tools/install-deps.sh installs it)"),
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let overall = text
            .lines()
            .find_map(|line| line.split_once("Overall exposure level for "));
        let level =
            overall.and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<f64>().ok());
        assert!(
            level.is_some_and(|level| level <= *max_level),
            "{unit}: {text}"
        );
    }
}
