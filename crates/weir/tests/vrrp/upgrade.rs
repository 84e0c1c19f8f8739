//! Tests that `weir upgrade` replaces the agent and the helper without a missing advertisement.
//!
//! There is never a second active director, and the previous agent advertises until the next one has taken over.

use std::time::{Duration, Instant};

use super::config;
use super::pair::Pair;
use super::recorder::Recorder;
use super::world::privileged;

/// Number of pools in a large configuration.
const POOLS: usize = 2_000;

#[test]
fn upgrade_does_not_interrupt_advertisements_soak() {
    if !privileged() {
        return;
    }
    // A longer interval gives slow machines half a second for steps that normally take a few milliseconds.
    let limit = match std::env::var_os("WEIR_SOAK") {
        Some(_) => Duration::from_millis(1500),
        None => Duration::from_secs(3),
    };
    assert_upgrades_without_gap("1s", "", limit);
}

/// With this interval, the other director becomes active after 300 ms.
#[test]
fn upgrade_with_short_interval_causes_no_failover_soak() {
    if privileged() && std::env::var_os("WEIR_SOAK").is_some() {
        assert_upgrades_without_gap("100ms", "", Duration::from_millis(200));
    }
}

/// Reading this file takes longer than several advertisement intervals. The new agent must not wait for it.
#[test]
fn upgrade_with_large_file_causes_no_failover_soak() {
    if privileged() && std::env::var_os("WEIR_SOAK").is_some() {
        let pool = |number| format!("[pool.p{number}]\nservers = [\"10.9.0.1\", \"10.9.0.2\"]\n");
        let pools: String = (0..POOLS).map(pool).collect();
        assert_upgrades_without_gap("100ms", &pools, Duration::from_millis(200));
    }
}

/// With this interval, the other director becomes active after less than 40 ms, so an upgrade may cause a failover on a
/// slow machine. Prints the longest time between two advertisements.
#[test]
fn same_director_is_active_after_upgrades_with_the_shortest_interval_soak() {
    if privileged() && std::env::var_os("WEIR_SOAK").is_some() {
        let pair = start_pair("10ms", "");
        let recorder = Recorder::start(&pair);
        let since = wait_for_advertisement(&pair, &recorder);
        upgrade_twice(&pair, &recorder);
        let gap = recorder.longest_gap("10.0.0.3", since);
        let takeovers = pair.router("second")["takeovers"].clone();
        println!("longest time between two advertisements: {gap:?}, failovers: {takeovers}");
        // Even after a failover, the director with the higher priority is active in the end.
        pair.wait_for_state("director", "active");
    }
}

/// The next agent starts and receives the signal to take over, but never does so. The previous agent must continue.
#[test]
fn agent_continues_if_next_one_does_not_take_over() {
    if !privileged() {
        return;
    }
    let pair = start_pair("1s", "");
    let recorder = Recorder::start(&pair);
    let since = wait_for_advertisement(&pair, &recorder);
    let agent = pair.process_id("director", "vrrp-agent");
    let (next, weir) = (pair.path("weir-next"), env!("CARGO_BIN_EXE_weir"));
    let standby = "printf weir-standby > /proc/$$/comm; trap : USR1; while :; do sleep 0.1; done";
    let script = format!(r#"case "$*" in *--standby*) {standby};; esac; exec {weir} "$@""#);
    pair.write_script(&next, &script);
    pair.weir("director", &["upgrade", &next]);
    pair.wait_for("the failed replacement", || {
        pair.log("director")
            .contains("failed to upgrade the VRRP agent")
    });
    let count = recorder.received().len();
    pair.wait_for("advertisements", || recorder.received().len() > count + 1);
    assert_eq!(pair.process_id("director", "vrrp-agent"), agent);
    assert_eq!(pair.router("director")["state"], "active");
    let gap = recorder.longest_gap("10.0.0.3", since);
    assert!(gap < Duration::from_secs(3), "no advertisement for {gap:?}");
    assert_eq!(pair.router("second")["takeovers"], 0);
}

fn start_pair(interval: &str, more: &str) -> Pair {
    let config = |priority| config(priority, more).replace("100ms", interval);
    let mut pair = Pair::new();
    pair.start("director", &config(150));
    pair.wait_for_state("director", "active");
    pair.start("second", &config(100));
    pair.wait_for("the peer", || {
        pair.router("second")["active_peer"] == "10.0.0.3"
    });
    pair
}

/// Returns when the first advertisement was received.
fn wait_for_advertisement(pair: &Pair, recorder: &Recorder) -> Instant {
    pair.wait_for("an advertisement", || !recorder.received().is_empty());
    recorder.received()[0].received_at
}

fn upgrade_twice(pair: &Pair, recorder: &Recorder) {
    let sent = || pair.router("director")["sent"].as_u64().unwrap_or(0);
    // Copy the program, because the upgrade would not restart the same file.
    let next = pair.path("weir-next");
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), &next).expect("copy the file");
    for program in [next.as_str(), env!("CARGO_BIN_EXE_weir")] {
        let agent = pair.process_id("director", "vrrp-agent");
        pair.weir("director", &["upgrade", program]);
        pair.wait_for("the next agent", || {
            pair.find_process("director", "vrrp-agent")
                .is_some_and(|next| next != agent)
        });
        let count = recorder.received().len();
        pair.wait_for("advertisements", || {
            sent() > 1 && recorder.received().len() > count + 1
        });
    }
}

/// Upgrades the active director twice. Checks that no time between two of its advertisements exceeds `limit`, and that
/// the other director sends no advertisement. `more` is appended to the configuration.
fn assert_upgrades_without_gap(interval: &str, more: &str, limit: Duration) {
    let pair = start_pair(interval, more);
    let recorder = Recorder::start(&pair);
    let since = wait_for_advertisement(&pair, &recorder);
    upgrade_twice(&pair, &recorder);
    assert_eq!(pair.router("director")["state"], "active");
    let gap = recorder.longest_gap("10.0.0.3", since);
    println!("longest time between two advertisements: {gap:?}");
    assert!(gap <= limit, "no advertisement for {gap:?}");
    let received = recorder.received();
    let from_peer = received
        .iter()
        .filter(|it| it.source.to_string() != "10.0.0.3");
    assert_eq!(from_peer.count(), 0, "{received:?}");
    // No advertisement may have priority 0, which a director sends when it stops.
    assert!(received.iter().all(|it| it.priority == 150), "{received:?}");
    assert_eq!(pair.router("second")["takeovers"], 0);
}
