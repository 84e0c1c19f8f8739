//! Tests `weir lab run … --fail`, in which a server stops under load and returns.

mod world;

use std::process::Command;

use world::privileged;

fn assert_experiment_succeeds(experiment: &str, method: &str) {
    if !privileged() {
        return;
    }
    let report =
        std::env::temp_dir().join(format!("weir-fail-{experiment}-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["lab", "run", experiment, "--fail", "--json", "--report"])
        .arg(&report)
        .output()
        .expect("run weir");
    let _ = std::fs::remove_dir_all(&report);
    // The command fails if a request that must succeed has failed.
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let status: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("output is valid JSON");
    let rows = status["rows"].as_array().expect("rows is an array");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    let expected = ["before", "stopped", "restarted"].map(|phase| format!("{method}/{phase}"));
    assert_eq!(names, expected);
    assert_eq!(
        (&rows[0]["failed"], &rows[2]["failed"]),
        (&0.into(), &0.into())
    );
    assert!(
        rows[1]["failed"].as_u64() > Some(0),
        "no request failed while the server was stopped: {status:#}"
    );
    assert!(
        status["events"]
            .as_array()
            .is_some_and(|events| events.len() == 4),
        "{status:#}"
    );
}

#[test]
fn failed_server_recovers_with_nat() {
    assert_experiment_succeeds("small-box-nat", "nat");
}

#[test]
fn failed_server_recovers_with_direct() {
    assert_experiment_succeeds("clustered-rest", "direct");
}
