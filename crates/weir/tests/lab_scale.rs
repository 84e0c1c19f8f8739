//! Runs the lab's experiment with a group of directors, in a short form, or at full length with `WEIR_SOAK`.

mod world;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use world::privileged;

fn is_soak() -> bool {
    std::env::var_os("WEIR_SOAK").is_some()
}

/// Number of experiments that this process has started. They may run at the same time, so each has its own directory.
static RUNS: AtomicU32 = AtomicU32::new(0);

/// Runs the experiment and returns the rows of its JSON document.
fn run(options: &[&str]) -> Vec<Value> {
    run_with_report(options).0
}

/// Runs the experiment. Returns the rows of its JSON document, and the page of the report.
fn run_with_report(options: &[&str]) -> (Vec<Value>, String) {
    let (pid, run) = (std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let directory = std::env::temp_dir().join(format!("weir-lab-scale-{pid}-{run}"));
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["lab", "run", "scale-out", "--json", "--report"])
        .arg(&directory)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .expect("run weir");
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{errors}");
    assert!(output.status.success(), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("output is valid JSON");
    let rows = document["rows"].as_array().expect("rows is an array");
    let page = std::fs::read_to_string(directory.join("scale-out.html")).expect("read the file");
    std::fs::remove_dir_all(&directory).expect("remove the directory");
    (rows.clone(), page)
}

/// The second hop keeps connections whose director fails right after the servers change. Stateless rules, which keep no
/// previous table, lose many of these connections, which shows that the fault does break connections.
#[test]
fn connections_survive_director_failure_after_server_change() {
    if !privileged() {
        return;
    }
    let options = [
        "--directors",
        "2",
        "--concurrency",
        "200",
        "--faults",
        "server-added-director-killed",
        "--methods",
        "nftables,tunnel-gue",
    ];
    let (rows, page) = run_with_report(&options);
    assert_eq!(page.matches("<section").count(), 1);
    let broken = |row: &Value| row["broken"].as_u64().expect("value is a number");
    let methods: Vec<_> = rows.iter().map(|it| it["method"].clone()).collect();
    assert_eq!(methods, ["nftables", "tunnel-gue"]);
    assert!(broken(&rows[0]) > 50, "{rows:?}");
    assert_eq!(broken(&rows[1]), 0, "{rows:?}");
    assert!(rows[1]["outage_ms"].is_u64(), "{rows:?}");
}

/// The command that drains a server returns once all directors have entries for the moved flows, so a director that
/// joins right afterwards breaks no flow.
#[test]
fn connections_survive_director_that_joins_after_drain() {
    if !privileged() {
        return;
    }
    let options = [
        "--directors",
        "2",
        "--concurrency",
        "200",
        "--faults",
        "server-drained-director-added",
        "--methods",
        "direct-sync",
    ];
    let rows = run(&options);
    assert_eq!(
        (&rows[0]["broken"], &rows[0]["error"]),
        (&0.into(), &Value::Null),
        "{rows:?}"
    );
}

/// All directors insert the flows of a removed server, no matter which director removes it first. This includes a
/// director that had no flows and one that starts afterwards.
#[test]
fn connections_to_removed_server_survive_change_of_directors() {
    if !privileged() {
        return;
    }
    let options = [
        "--directors",
        "2",
        "--concurrency",
        "200",
        "--faults",
        "server-removed-director-added,server-removed-director-killed,server-removed-director-started",
        "--methods",
        "direct-sync",
    ];
    let rows = run(&options);
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(
            (&row["broken"], &row["error"]),
            (&0.into(), &Value::Null),
            "{row}"
        );
    }
}

/// Directors with different builds select the same servers, and an upgrade breaks no connection. `WEIR_OLD_BINARY` is
/// the path of the other build's program; if it is unset, the other build is a copy of the program.
#[test]
fn connections_survive_directors_with_different_builds() {
    if !privileged() {
        return;
    }
    let other_build = std::env::var("WEIR_OLD_BINARY").unwrap_or_default();
    let mut options = vec![
        "--directors",
        "3",
        "--concurrency",
        "200",
        "--faults",
        "mixed-builds-director-killed,director-upgraded",
        "--methods",
        "direct",
    ];
    if !other_build.is_empty() {
        options.extend(["--second-weir", &other_build]);
    }
    let rows = run(&options);
    let expected_builds: [&[&str]; 2] = [
        // The third director was killed, so its packet count is unknown.
        &["tested", "second"],
        &["tested", "tested", "second"],
    ];
    assert_eq!(rows.len(), expected_builds.len());
    for (row, expected) in rows.iter().zip(expected_builds) {
        assert_eq!(
            (&row["broken"], &row["error"]),
            (&0.into(), &Value::Null),
            "{row}"
        );
        // The kernel's statistics contain the time of each director's programs.
        assert!(row["ns_per_packet"].as_u64() > Some(0), "{row}");
        let costs = row["costs"].as_array().expect("costs is an array");
        let builds: Vec<_> = costs.iter().map(|it| it["build"].clone()).collect();
        assert_eq!(builds, expected, "{row}");
    }
}

/// If the only director that has a new version of the configuration fails, its new connections continue through the
/// second hop. Tables alone lose some of them, which shows that the fault does break connections.
#[test]
fn connections_survive_director_failure_during_rollout() {
    if !privileged() {
        return;
    }
    let options = [
        "--directors",
        "3",
        "--concurrency",
        "200",
        "--faults",
        "rollout-first-director-killed",
        "--methods",
        "direct,tunnel-gue",
    ];
    let rows = run(&options);
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(row["error"], Value::Null, "{row}");
    }
    assert!(rows[0]["broken"].as_u64() > Some(0), "{rows:?}");
    assert_eq!(rows[1]["broken"], 0, "{rows:?}");
}

/// The router removes the path to a disconnected director when BFD detects the failure, long before BGP's hold time of
/// 9 s expires.
#[test]
fn router_detects_disconnected_director_by_bfd() {
    if !privileged() {
        return;
    }
    // The directors with `nftables` also use BIRD, and start immediately.
    let options = [
        "--directors",
        "2",
        "--concurrency",
        "20",
        "--faults",
        "director-cut",
        "--methods",
        "nftables",
    ];
    let rows = run(&options);
    assert_eq!(rows.len(), 1);
    let route_ms = rows[0]["route_ms"].as_u64();
    assert!(route_ms.is_some_and(is_detected_by_bfd), "{rows:?}");
    assert_eq!(
        (&rows[0]["broken"], &rows[0]["goal"]),
        (&0.into(), &Value::Null)
    );
}

/// Returns whether a path was removed long before BGP's hold time expired.
const fn is_detected_by_bfd(route_ms: u64) -> bool {
    route_ms < 5_000
}

/// Measures how long the router takes to remove the path to a disconnected director. BFD sends every 300 ms and detects
/// a failure after three intervals.
#[test]
fn router_removes_path_to_disconnected_director_soak() {
    if !is_soak() || !privileged() {
        return;
    }
    let options = [
        "--directors",
        "2",
        "--concurrency",
        "20",
        "--faults",
        "director-cut",
        "--methods",
        "nftables",
        "--repeat",
        "30",
    ];
    let rows = run(&options);
    let row = &rows[0];
    assert_eq!((&row["runs"], &row["error"]), (&30.into(), &Value::Null));
    println!(
        "path removed after {} ms (median), {} ms (worst of {}; goal: 1200 ms)",
        row["route_ms"], row["worst_route_ms"], row["runs"]
    );
    let worst_ms = row["worst_route_ms"].as_u64();
    assert!(worst_ms.is_some_and(is_detected_by_bfd), "{row}");
}

const MANY_CONNECTIONS: u64 = 10_000;

/// Returns 10 000, or fewer if the open-file limit does not allow that many connections and cannot be raised: the
/// client and the servers are in the same process.
fn many_connections() -> String {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed_files = 2 * MANY_CONNECTIONS + 200;
    let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let raised = Rlimit {
        current: Some(needed_files.max(maximum)),
        maximum: Some(needed_files.max(maximum)),
    };
    let connections = if maximum >= needed_files || setrlimit(Resource::Nofile, raised).is_ok() {
        MANY_CONNECTIONS
    } else {
        (maximum / 2).saturating_sub(100).min(MANY_CONNECTIONS)
    };
    connections.to_string()
}

/// With 10 000 connections over four directors, changes to the set of directors alone do not break any connection.
#[test]
fn director_changes_break_no_connection_soak() {
    if !is_soak() || !privileged() {
        return;
    }
    let connections = many_connections();
    println!("{connections} connections");
    let options = [
        "--concurrency",
        &connections,
        "--faults",
        "director-added,director-drained,director-killed,director-cut,majority-lost,mixed-builds-director-killed,\
         director-upgraded",
        "--methods",
        "direct,tunnel-gue",
    ];
    let rows = run(&options);
    assert_eq!(rows.len(), 14);
    for row in rows {
        assert_eq!(
            (&row["broken"], &row["error"]),
            (&0.into(), &Value::Null),
            "{row}"
        );
    }
}

/// In the most difficult cases, neither the second hop nor flow synchronization loses a connection. With tables alone,
/// only flows in slots whose server changed may break.
#[test]
fn broken_connections_stay_within_goal_soak() {
    if !is_soak() || !privileged() {
        return;
    }
    let connections = many_connections();
    let options = [
        "--concurrency",
        &connections,
        "--faults",
        "server-added-director-killed,server-drained-director-added,server-removed-director-added,\
         server-removed-director-killed,rollout-director-killed,rollout-first-director-killed",
        "--methods",
        "direct,direct-sync,tunnel-gue",
    ];
    let rows = run(&options);
    assert_eq!(rows.len(), 18);
    for row in rows {
        assert_eq!(row["error"], Value::Null, "{row}");
        let (broken, goal) = (row["broken"].as_u64(), row["goal"].as_u64());
        assert!(
            broken.expect("broken is a number") <= goal.expect("goal is a number"),
            "{row}"
        );
    }
}
