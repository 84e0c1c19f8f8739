//! Runs the short form of the lab's reload experiment, in which Weir's clients must see no errors.
//!
//! The experiment reloads the peers and Weir under load.

mod world;

use std::process::{Command, Stdio};

use world::privileged;

#[test]
fn no_request_fails_during_reloads_upgrades_and_kills_soak() {
    if !privileged() {
        return;
    }
    let (requests, repeat) = match std::env::var_os("WEIR_SOAK") {
        Some(_) => ("200000", "1"),
        None => ("3000", "1"),
    };
    let report = std::env::temp_dir().join(format!("weir-lab-test-{}", std::process::id()));
    let methods = "haproxy-master,haproxy-protect,proxy,direct,proxy-upgrade,direct-kill";
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args([
            "lab",
            "run",
            "reload-under-load",
            "--json",
            "--requests",
            requests,
            "--repeat",
            repeat,
        ])
        .args(["--methods", methods, "--report"])
        .arg(&report)
        .stdin(Stdio::null())
        .output()
        .expect("run weir");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let page =
        std::fs::read_to_string(report.join("reload-under-load.html")).expect("read the file");
    std::fs::remove_dir_all(&report).expect("remove the directory");
    assert_eq!(page.matches("<figure>").count(), 6);

    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("output is valid JSON");
    let rows = document["rows"].as_array().expect("rows is an array");
    assert_eq!(rows.len(), 6 * 4, "{text}");
    for row in rows {
        let name = row["name"].as_str().expect("name is a string");
        let (method, workload) = name
            .split_once('/')
            .expect("name has the form METHOD/WORKLOAD");
        println!("{row}");
        let disturbances = row["disturbances"].as_u64().expect("value is a number")
            + row["refused"].as_u64().expect("value is a number");
        assert_eq!(workload.ends_with("disturbed"), disturbances > 0, "{row}");
        assert!(
            row["latency_ms"]["100"].as_f64() >= row["latency_ms"]["50"].as_f64(),
            "{row}"
        );
        // The peers' requests may fail; the test shows the failures.
        let may_fail = method.starts_with("haproxy")
            && (method != "haproxy-protect" || workload.starts_with("keep-alive"));
        if !may_fail {
            assert_eq!(row["failed"], 0, "{row}; {text}");
        }
    }
}
