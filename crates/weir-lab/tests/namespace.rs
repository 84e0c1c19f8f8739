//! Tests the lab with the running kernel: hosts and links, a server at a high rate, the reports, and the cleanup.
//!
//! The cleanup removes all objects. The tests require root and the peers. Otherwise, they are skipped with a message,
//! or fail if `WEIR_TEST_REQUIRE_ROOT` is set.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

const LAB: &str = env!("CARGO_BIN_EXE_weir-lab");

fn directory(test: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&path).expect("temporary directory");
    path
}

fn lab(arguments: &[&str], test: &str) -> Command {
    let mut command = Command::new(LAB);
    command
        .args(arguments)
        .arg("--report")
        .arg(directory(test))
        .stdin(Stdio::null());
    command
}

fn json(output: &Output) -> serde_json::Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}; stderr: {errors}"))
}

/// Returns the names of objects that the lab process `pid` left behind.
fn remaining_objects(pid: u32) -> Vec<String> {
    let prefix = format!("weir-lab-{pid}-");
    ["/run", "/run/netns", "/sys/fs/bpf"]
        .iter()
        .filter_map(|directory| std::fs::read_dir(directory).ok())
        .flat_map(|entries| entries.flatten())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&prefix))
        .collect()
}

fn wait_for(event: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(
            Instant::now() < end,
            "timed out after 30 s waiting for {event}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn report_has_rates_of_one_server_and_haproxy() {
    if !weir_testing::require_root() {
        return;
    }
    let words = [
        "run",
        "saturated-uplink",
        "--json",
        "--rate",
        "200mbit",
        "--requests",
        "6",
    ];
    let mut command = lab(&words, "uplink");
    let child = command
        .args(["--methods", "one-server,haproxy"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the lab");
    let pid = child.id();
    let report = json(&child.wait_with_output().expect("wait for the lab"));

    assert_eq!(report["experiment"], "saturated-uplink");
    let rows = report["rows"].as_array().expect("rows");
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(names, ["one-server", "haproxy"]);
    assert_eq!(rows[0]["ratio"], 1.0);
    for row in rows {
        assert_eq!(row["failed"], 0, "{row}");
        // The shaper is active if no response is faster than the link: 200 Mbit/s, which is 24,414 KB/s.
        let rate = row["kbytes_per_second"].as_f64().expect("is a number");
        assert!(rate > 0.0 && rate < 200e6 / 8.0 / 1024.0 * 1.05, "{row}");
    }
    let page = std::fs::read_to_string(directory("uplink").join("saturated-uplink.html"))
        .expect("the HTML file");
    assert_eq!(page.matches("<figure>").count(), 2);
    assert_eq!(remaining_objects(pid), Vec::<String>::new());
}

/// Starts an experiment that takes longer than a test, and waits until its hosts exist.
fn start_slow_run(directory: &str) -> Child {
    let words = [
        "run",
        "saturated-uplink",
        "--methods",
        "one-server",
        "--rate",
        "1mbit",
    ];
    let child = lab(&words, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start the lab");
    wait_for("the hosts to exist", || {
        remaining_objects(child.id())
            .iter()
            .any(|name| name.ends_with("-client"))
    });
    child
}

#[test]
fn signal_stops_the_run_and_removes_its_objects() {
    if !weir_testing::require_root() {
        return;
    }
    let mut child = start_slow_run("signal");
    let pid = child.id();
    let process = Pid::from_raw(i32::try_from(pid).expect("process ID fits"))
        .expect("process ID is not zero");
    rustix::process::kill_process(process, Signal::INT).expect("send the signal");
    let mut status = None;
    wait_for("the lab to exit", || {
        status = child.try_wait().expect("wait for the lab");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    assert_eq!(remaining_objects(pid), Vec::<String>::new());
}

#[test]
fn next_run_removes_objects_of_killed_run() {
    if !weir_testing::require_root() {
        return;
    }
    let mut child = start_slow_run("killed");
    let pid = child.id();
    child.kill().expect("kill the lab");
    child.wait().expect("wait for the lab");
    assert_ne!(
        remaining_objects(pid),
        Vec::<String>::new(),
        "a killed run must leave its objects behind"
    );

    let words = [
        "run",
        "saturated-uplink",
        "--json",
        "--methods",
        "one-server",
        "--rate",
        "1gbit",
        "--requests",
        "2",
    ];
    json(&lab(&words, "killed").output().expect("run the lab"));
    assert_eq!(remaining_objects(pid), Vec::<String>::new());
}

#[test]
fn failed_method_does_not_stop_other_methods() {
    if !weir_testing::require_root() {
        return;
    }
    let words = [
        "run",
        "saturated-uplink",
        "--json",
        "--rate",
        "1gbit",
        "--requests",
        "2",
        "--weir",
        "/bin/false",
    ];
    let output = lab(&words, "failing")
        .args(["--methods", "direct,one-server"])
        .output()
        .expect("run the lab");
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("parse the JSON despite the failure");
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(
        rows.iter()
            .map(|row| row["name"].clone())
            .collect::<Vec<_>>(),
        ["one-server"]
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains("direct: FAILED"));
}

#[test]
fn usage_errors_are_reported_before_anything_is_created() {
    for (words, part) in [
        (vec!["run", "saturated"], "unknown experiment \"saturated\""),
        (
            vec!["run", "saturated-uplink", "--methods", "dsr"],
            "unknown method \"dsr\"",
        ),
        (vec!["run", "saturated-uplink", "--rate", "10"], "no unit"),
    ] {
        let output = lab(&words, "usage").output().expect("run the lab");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(part),
            "{words:?}"
        );
    }
}
