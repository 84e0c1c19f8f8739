//! Runs a short `weir-lab attack` against Weir only, and asserts that no abandoned request remains at the server.

mod world;

use std::path::PathBuf;

use weir_lab::{AttackArguments, AttackReport, attack};
use world::privileged;

/// Runs the attacks with these names.
fn run_attacks(only: &[&str]) -> AttackReport {
    let arguments = AttackArguments {
        list: false,
        json: false,
        rounds: 1,
        seconds: 2,
        delay: 60,
        only: only.iter().map(|name| (*name).to_owned()).collect(),
        proxies: vec!["weir".to_owned()],
        weir: Some(PathBuf::from(env!("CARGO_BIN_EXE_weir"))),
        haproxy: None,
        nginx: None,
    };
    attack(&arguments).expect("run the attacks")
}

#[test]
fn reset_attack_leaves_no_request_at_server() {
    if !privileged() {
        return;
    }
    let report = run_attacks(&["reset"]);
    println!("{}", report.table());
    let row = report.rows.first().expect("table has a row");
    // An attack that sends no data does not test anything.
    assert!(row.sent_per_second > 500.0, "{row:?}");
    assert_eq!(row.remaining_requests(), 0.0, "{row:?}");
    assert!(report.passed());
}
