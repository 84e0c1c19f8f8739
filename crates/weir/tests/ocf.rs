//! Tests the OCF agent `ocf:weir:weir` for Pacemaker.

mod world;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use world::{World, privileged, wait_for};

const SUCCESS: i32 = 0;
const ERR_GENERIC: i32 = 1;
const ERR_CONFIGURED: i32 = 6;
const NOT_RUNNING: i32 = 7;
const DEGRADED: i32 = 190;
const TIMEOUT: Duration = Duration::from_secs(30);

/// A director that the agent starts and stops.
struct Director {
    world: World,
    config: PathBuf,
}

fn agent_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contrib/ocf/weir")
}

impl Director {
    fn new() -> Self {
        let world = World::new(1);
        world.ip("director", "addr add 10.0.0.10/32 dev eth0");
        let config = world.write_config(
            "[pool.p]\nservers = [\"10.0.0.5\"]\n[service.s]\nlisten = [\"10.0.0.10:80\"]\nforward = \"direct\"\npool \
             = \"p\"\n",
        );
        Self { world, config }
    }

    fn parameters(&self) -> [(&'static str, String); 4] {
        let text = |path: PathBuf| path.to_str().expect("path is valid UTF-8").to_owned();
        [
            ("binary", env!("CARGO_BIN_EXE_weir").to_owned()),
            ("config", text(self.config.clone())),
            ("runtime_dir", text(self.world.path("ocf"))),
            ("pin_dir", text(self.world.pin_dir("director"))),
        ]
    }

    fn run_action(&self, action: &str, level: &str) -> Output {
        self.command(action, level).output().expect("run the agent")
    }

    fn command(&self, action: &str, level: &str) -> Command {
        let mut command = self.world.command(
            "director",
            agent_path().to_str().expect("path is valid UTF-8"),
        );
        for (name, value) in self.parameters() {
            command.env(format!("OCF_RESKEY_{name}"), value);
        }
        command.arg(action).env("OCF_ROOT", "/usr/lib/ocf");
        command.env("OCF_CHECK_LEVEL", level);
        command
    }

    fn assert_exit_code(&self, action: &str, level: &str, code: i32) {
        let output = self.run_action(action, level);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{action} {level}: {output:?}"
        );
    }

    fn weir(&self, arguments: &[&str]) -> Output {
        let mut command = self.world.command("director", env!("CARGO_BIN_EXE_weir"));
        let [_, _, (_, runtime_dir), (_, pin_dir)] = self.parameters();
        let output = command
            .args(["--runtime-dir", &runtime_dir, "--pin-dir", &pin_dir])
            .args(arguments)
            .output()
            .expect("run weir");
        assert!(output.status.success(), "{output:?}");
        output
    }

    fn daemon_pid(&self) -> Pid {
        let output = self.weir(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("parse JSON");
        let pid = status["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        pid.and_then(Pid::from_raw)
            .expect("the daemon's process ID")
    }
}

fn signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).expect("send a signal to the daemon");
}

impl Drop for Director {
    fn drop(&mut self) {
        self.run_action("stop", "0");
    }
}

#[test]
fn ocf_tester_reports_no_error() {
    if !privileged() {
        return;
    }
    let director = Director::new();
    let mut command = director.world.command("director", "ocf-tester");
    command.args(["-n", "weir"]);
    for (name, value) in director.parameters() {
        command.args(["-o", &format!("{name}={value}")]);
    }
    // Every user must be able to run the agent, but the repository may be in a private directory.
    let agent = director.world.path("agent");
    std::fs::copy(agent_path(), &agent).expect("copy the agent");
    let output = command.arg(agent).output().expect("run ocf-tester");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("passed all tests"),
        "{output:?}"
    );
}

#[test]
fn actions_return_standard_exit_codes() {
    if !privileged() {
        return;
    }
    let director = Director::new();
    director.assert_exit_code("monitor", "0", NOT_RUNNING);
    director.assert_exit_code("stop", "0", SUCCESS);
    director.assert_exit_code("start", "0", SUCCESS);
    director.assert_exit_code("start", "0", SUCCESS);
    for level in ["0", "10", "20"] {
        director.assert_exit_code("monitor", level, SUCCESS);
    }
    director.weir(&["server", "p/10.0.0.5", "drain"]);
    director.assert_exit_code("monitor", "10", SUCCESS);
    director.assert_exit_code("monitor", "20", DEGRADED);
    director.weir(&["server", "p/10.0.0.5", "ready"]);
    director.assert_exit_code("monitor", "20", SUCCESS);
    director.assert_exit_code("reload", "0", SUCCESS);
    director.assert_exit_code("reload-agent", "0", SUCCESS);
    // An invalid file has no effect.
    let valid_text = std::fs::read_to_string(&director.config).expect("read the file");
    std::fs::write(&director.config, "[pool.p]\nserver = 5\n").expect("write the file");
    director.assert_exit_code("validate-all", "0", ERR_CONFIGURED);
    director.assert_exit_code("reload", "0", ERR_CONFIGURED);
    director.assert_exit_code("monitor", "10", SUCCESS);
    std::fs::write(&director.config, valid_text).expect("write the file");
    director.assert_exit_code("stop", "0", SUCCESS);
    director.assert_exit_code("monitor", "0", NOT_RUNNING);
    let pins = std::fs::read_dir(director.world.pin_dir("director"));
    assert!(
        pins.map_or(0, Iterator::count) == 0,
        "BPF programs must be removed"
    );
}

#[test]
fn monitor_reports_pool_below_quorum_and_detached_data_plane() {
    if !privileged() {
        return;
    }
    let director = Director::new();
    let config = std::fs::read_to_string(&director.config).expect("read the file");
    let config = config.replacen("[pool.p]\n", "[pool.p]\nquorum = 2\n", 1);
    std::fs::write(&director.config, config).expect("write the file");
    director.assert_exit_code("start", "0", SUCCESS);
    // The only server is usable, but the pool needs more weight.
    director.weir(&["server", "p/10.0.0.5", "weight", "1"]);
    director.assert_exit_code("monitor", "10", SUCCESS);
    let output = director.run_action("monitor", "20");
    assert_eq!(output.status.code(), Some(DEGRADED), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("a pool is below its quorum"), "{message}");
    // The data plane is attached only to this interface.
    director.world.ip("director", "link del eth0");
    wait_for("a failing monitor", TIMEOUT, || {
        director.run_action("monitor", "10").status.code() == Some(ERR_GENERIC)
    });
    let output = director.run_action("monitor", "10");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("the data plane is not attached to any interface"),
        "{message}"
    );
    director.assert_exit_code("monitor", "20", ERR_GENERIC);
    director.assert_exit_code("monitor", "0", SUCCESS);
}

/// A daemon that is busy or being restarted must not make Pacemaker restart the director, which would lose all flows.
#[test]
fn monitor_waits_for_busy_daemon() {
    if !privileged() {
        return;
    }
    let director = Director::new();
    director.assert_exit_code("start", "0", SUCCESS);
    let pid = director.daemon_pid();
    signal(pid, Signal::STOP);
    let resume = std::thread::spawn(move || {
        // Wait longer than `weir status` waits for a response.
        std::thread::sleep(Duration::from_secs(3));
        signal(pid, Signal::CONT);
    });
    director.assert_exit_code("monitor", "10", SUCCESS);
    resume.join().expect("resume the daemon");
    signal(pid, Signal::STOP);
    let output = director
        .command("monitor", "0")
        .env("OCF_RESKEY_CRM_meta_timeout", "7000")
        .output();
    signal(pid, Signal::CONT);
    let output = output.expect("run the agent");
    assert_eq!(output.status.code(), Some(ERR_GENERIC), "{output:?}");
    signal(pid, Signal::KILL);
    director.assert_exit_code("monitor", "10", SUCCESS);
    assert_ne!(director.daemon_pid(), pid);
}

#[test]
fn metadata_lists_reload_agent_since_version_1_1() {
    let metadata = |minor: &str| {
        let mut command = Command::new(agent_path());
        let command = command.arg("meta-data").env("OCF_RA_VERSION_MINOR", minor);
        String::from_utf8(command.output().expect("run the agent").stdout)
            .expect("text is valid UTF-8")
    };
    assert!(!metadata("0").contains("reload-agent"));
    let new = metadata("1");
    assert!(
        new.contains("<action name=\"reload-agent\"") && new.contains("<version>1.1</version>")
    );
}
