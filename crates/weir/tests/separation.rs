//! Tests privilege separation: when root starts Weir, the processes that read client data are unprivileged.

#[path = "world/attempts.rs"]
mod attempts;
mod world;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use attempts::{assert_attempts_failed, assert_lines};
use world::privileged;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// A directory that every account can enter.
struct SharedDirectory(PathBuf);

impl SharedDirectory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("create a directory");
        Self(path)
    }

    /// Runs a script in separate namespaces. Returns its output, and the daemon's log followed by the lost requests.
    fn run(&self, script: &str, extra: &[&str]) -> (String, String) {
        let output = Command::new("unshare")
            .args(["--mount", "--net", "--propagation", "private", "sh"])
            .arg(format!("{CRATE}/tests/{script}"))
            .arg(env!("CARGO_BIN_EXE_weir"))
            .arg(&self.0)
            .args(extra)
            .output()
            .expect("run unshare");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let read = |file| fs::read_to_string(self.0.join(file)).unwrap_or_default();
        (text, read("out/log") + &read("out/losses"))
    }
}

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
    ("write /dev/shm", "Permission denied"),
    ("ptrace", "not permitted"),
    ("become root", "not permitted"),
    ("new namespace", "not permitted"),
    (
        "request /etc/shadow",
        "does not permit the daemon to read /etc/shadow",
    ),
    (
        "attempt to append to /etc/shadow",
        "does not permit the daemon to write /etc/shadow",
    ),
    (
        "request a port",
        "does not permit the daemon to listen on 127.0.0.1:81",
    ),
    (
        "request an address",
        "does not permit the daemon to listen on 127.0.0.9:443",
    ),
    (
        "request a script as root",
        "does not permit the daemon to run",
    ),
    (
        "request a notifier program",
        "does not permit the daemon to run",
    ),
];

#[test]
fn unprivileged_daemon_serves_clients() {
    if !privileged() {
        return;
    }
    let directory = SharedDirectory::new("separation");
    let old_binary =
        std::env::var("WEIR_OLD_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_weir").to_owned());
    let (text, log) = directory.run("separation.sh", &[&old_binary]);
    let expected = [
        "start: served",
        "files: served",
        "daemon: CapAmb:0000000000000000 CapBnd:0000000000000000 CapEff:0000000000000000 CapPrm:0000000000000000 \
         NoNewPrivs:1 Seccomp:2",
        "daemon: root 991 991 991 991",
        "processes: NoNewPrivs:1",
        "directory: weir 700, socket: weir 600, lock: root 600",
        "script: daemon",
        "log: root 644",
        "status: ok",
        "text: refused",
        "the daemon runs as the account weir",
        "copy it over the daemon's file",
        "after-refusal: served",
        "file: applied",
        "a.pem.ocsp: not an OCSP response",
        "file: served",
        "without-helper: served",
        "new helper: reloaded",
        "new-helper: served",
        "killed-daemon: served",
        "foreign program: refused",
        "failed upgrade: refused",
        "directory: weir 700",
        "upgrade: ok",
        "upgraded: served",
        "upgrade through a symlink: ok",
        "replaced-link: served",
        "older: ok",
        "older: served",
        "newer: ok",
        "newer: served",
        "restarted: \"restarts\": 1",
        "unpermitted program: refused",
        "stopped: root 700",
    ];
    assert_lines(&text, &expected, &log);
    for (attempt, error) in ATTEMPTS {
        let quoted = format!("attempt=\"{attempt}\"");
        let mut lines = log.lines().filter(|line| line.contains(&quoted));
        assert!(lines.all(|line| line.contains(error)), "{attempt}: {log}");
        assert!(log.contains(&quoted), "{attempt}: {log}");
    }
    assert!(log.contains("refused a request from the daemon"), "{log}");
    assert!(!log.contains("succeeded"), "{log}");
}

/// Additional attempts that must fail in a director's daemon, with the expected errors.
const LAYER_4_ATTEMPTS: &[(&str, &str)] = &[
    ("request a VIP", "does not permit the daemon to apply"),
    (
        "request an interface",
        "does not permit the daemon to apply",
    ),
    (
        "request an interface address",
        "does not permit the daemon to apply",
    ),
    (
        "request another map size",
        "does not permit the daemon to apply",
    ),
    (
        "request a flow sync peer",
        "does not permit the daemon to apply",
    ),
    ("request a probe", "the path is not configured"),
    (
        "request an ipvsadm edit",
        "no client has requested these ipvsadm edits",
    ),
    (
        "attempt to permit an ipvsadm edit",
        "user 991 is not allowed to edit ipvsadm services",
    ),
];

#[test]
fn daemon_with_layer_4_services_is_unprivileged() {
    if !privileged() {
        return;
    }
    let directory = SharedDirectory::new("separation-director");
    let (text, log) = directory.run("separation_director.sh", &[]);
    let expected = [
        "start nat: served",
        "start direct: served",
        "start proxy: served",
        "daemon: CapBnd:0000000000000000 CapEff:0000000000000000 CapPrm:0000000000000000 NoNewPrivs:1 Seccomp:2",
        "daemon: 991 991 991 991",
        "engine: user 0, other capabilities: 0, NoNewPrivs: 1",
        "directory: root weir 1771, state: root 600, overrides: weir 600",
        "status: ok",
        "added VIPs: 2",
        "server: drained",
        "ipvsadm: lists weight 0",
        "server: ready",
        "ipvsadm as root: done",
        "ipvsadm: served",
        "ipvsadm as a group member: done",
        "ipvsadm as another user: refused",
        "Service already exists",
        "ipvsadm -D -t 10.77.1.1:8081",
        "text: refused",
        "after-refusal nat: served",
        "after-refusal direct: served",
        "after-refusal proxy: served",
        "file: applied",
        "file: served",
        "killed-engine: 0 lost",
        "new engine: served",
        "new engine: weight set",
        "new engine: reloaded",
        "killed-daemon: 0 lost",
        "killed-daemon: served",
        "failed upgrade: refused",
        "directory: root weir 1771",
        "upgrade: ok",
        "upgrade: 0 lost",
        "upgraded: served",
        "ipvsadm: kept",
        "daemon: 991 991 991 991",
        "stopped: root 700",
        "stopped: served",
        "ipvsadm without a daemon: done",
        "clean: done",
    ];
    assert_lines(&text, &expected, &log);
    assert_attempts_failed(&log, &[LAYER_4_ATTEMPTS, ATTEMPTS].concat());
}

/// Additional attempts that must fail in the daemon of a director with virtual routers and announced VIPs.
const FAILOVER_ATTEMPTS: &[(&str, &str)] = &[(
    "request an announcement",
    "does not permit the requested [announce]",
)];

#[test]
fn daemon_with_failover_is_unprivileged() {
    if !privileged() {
        return;
    }
    let directory = SharedDirectory::new("separation-failover");
    let (text, log) = directory.run("separation_failover.sh", &[]);
    let expected = [
        "start: served",
        "daemon: 991 0000000000000000 1",
        "directory: root weir 1770",
        "program of the router: daemon",
        "announced: yes",
        "status: active",
        "withdrawn: yes",
        "notifier: daemon",
        "again: served",
        "attempted address: absent",
        "text: refused",
        "after-refusal: served",
        "file: applied",
        "file: moved",
        "killed daemon: served",
        "daemon: 991 0000000000000000 1",
        "killed helper: served",
        "killed announcer: served",
        "upgrade: ok",
        "daemon: 991 0000000000000000 1",
        "drained: released",
        "ready: served",
        "vip_interface: applied",
        "router: applied",
        "absent: never",
        "without: applied",
        "without: removed",
        "stopped: root 700",
        "clean: done",
    ];
    assert_lines(&text, &expected, &log);
    assert_attempts_failed(&log, &[FAILOVER_ATTEMPTS, ATTEMPTS].concat());
}

#[test]
fn daemon_with_flow_sync_and_path_checks_is_unprivileged() {
    if !privileged() {
        return;
    }
    let directory = SharedDirectory::new("separation-layer4");
    let (text, log) = directory.run("separation_layer4.sh", &[]);
    let expected = [
        "start: served",
        "first daemon: 991 0000000000000000 1",
        "second daemon: 991 0000000000000000 1",
        "peer: established",
        "flow: synchronized",
        "proxied connection: listed",
        "takeover: segments sent",
        "daemons: listed",
        "daemon: stopped by root",
        "daemons: stopped",
        "daemon: started by root",
        "path: the server replies to ARP requests",
        "path: up",
        "path: VIP missing",
        "path: up",
        "new engine: served",
        "new daemon: 991 0000000000000000 1",
        "upgrade: ok",
        "upgraded: served",
        "no server went down while the engine was absent",
        "text: refused",
        "file: applied",
        "file: new peer",
        "clean: done",
        "clean: done",
    ];
    assert_lines(&text, &expected, &log);
    assert!(!log.contains("succeeded"), "{log}");
}

/// Additional attempts that must fail in the daemon of a group member, with the expected errors.
const GROUP_ATTEMPTS: &[(&str, &str)] = &[
    ("attempt to publish a VIP", "of [cluster.publish]"),
    (
        "attempt to publish with wider permissions",
        "of [cluster.publish]",
    ),
    (
        "attempt to publish an interface",
        "`node` cannot be published",
    ),
    (
        "request services of another group",
        "does not permit the daemon to apply",
    ),
    ("request a VIP", "does not permit the daemon to apply"),
];

#[test]
fn daemon_of_group_with_layer_4_services_is_unprivileged() {
    if !privileged() {
        return;
    }
    let directory = SharedDirectory::new("separation-cluster");
    let (text, log) = directory.run(
        "separation_cluster.sh",
        &[&format!("{CRATE}/../../docs/packaging")],
    );
    let expected = [
        "first daemon: 991 0000000000000000 1",
        "second daemon: 991 0000000000000000 1",
        "published",
        "start: served",
        "virtual router: accepts the published service",
        "published VIP: announced",
        "second: services applied",
        "198.51.100.1 is not in `vips` of [cluster.publish]",
        "10.80.1.2 is not in `servers` of",
        "direct is not in `forwards` of",
        "port 82 is not in `ports` of",
        "was stopped by first",
        "198.51.100.1 is not in `vips` of",
        "after-refusal: served",
        "published again",
        "publication: 0 lost",
        "published with a guard",
        "log: staged",
        "log2: staged",
        "killed engine, helper and daemon: 0 lost",
        "killed engine, helper and daemon: served",
        "killed service: 0 lost",
        "killed service: served",
        "killed agent and announcer: served",
        "upgrade: ok",
        "upgrade: 0 lost",
        "first daemon: 991 0000000000000000 1",
        "published after the upgrade",
        "without etcd: served",
        "10.80.9.4 is not in `vips` of",
        "cannot be published without [cluster.publish]",
        "restored: applied",
        "end: served",
        "attempted address: absent",
        "stopped: served",
        "clean: done",
        "clean: done",
    ];
    let helper = fs::read_to_string(directory.0.join("out/helper")).unwrap_or_default();
    let second = fs::read_to_string(directory.0.join("out/log2")).unwrap_or_default();
    assert_lines(&text, &expected, &format!("{log}\n{helper}\n{second}"));
    assert_attempts_failed(&log, &[GROUP_ATTEMPTS, FAILOVER_ATTEMPTS].concat());
}
