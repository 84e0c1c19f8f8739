//! Tests that `weir upgrade` replaces the agent and the helper without a missing advertisement and without a second
//! active director.

use std::time::Duration;

use super::config;
use super::pair::Pair;
use super::recorder::Recorder;
use super::world::privileged;

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
    assert_upgrades_without_gap("1s", limit);
}

/// With this interval, the other director becomes active after 300 ms.
#[test]
fn upgrade_with_short_interval_causes_no_failover_soak() {
    if privileged() && std::env::var_os("WEIR_SOAK").is_some() {
        assert_upgrades_without_gap("100ms", Duration::from_millis(200));
    }
}

/// Upgrades the active director twice. Checks that no time between two of its advertisements exceeds `limit`, and that
/// the other director sends no advertisement.
fn assert_upgrades_without_gap(interval: &str, limit: Duration) {
    let config = |priority| config(priority, "").replace("100ms", interval);
    let mut pair = Pair::new();
    pair.start("director", &config(150));
    pair.wait_for_state("director", "active");
    pair.start("second", &config(100));
    pair.wait_for("the peer", || {
        pair.router("second")["active_peer"] == "10.0.0.3"
    });
    let recorder = Recorder::start(&pair);
    let sent = |pair: &Pair| pair.router("director")["sent"].as_u64().unwrap_or(0);
    pair.wait_for("an advertisement", || !recorder.received().is_empty());
    let since = recorder.received()[0].received_at;
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
            sent(&pair) > 1 && recorder.received().len() > count + 1
        });
        assert_eq!(pair.router("director")["state"], "active");
    }
    let gap = recorder.longest_gap("10.0.0.3", since);
    println!("longest time between two advertisements: {gap:?}");
    assert!(gap <= limit, "no advertisement for {gap:?}");
    let received = recorder.received();
    let others = received
        .iter()
        .filter(|it| it.source.to_string() != "10.0.0.3");
    assert_eq!(others.count(), 0, "{received:?}");
    // No advertisement may have priority 0, which a director sends when it stops.
    assert!(received.iter().all(|it| it.priority == 150), "{received:?}");
    assert_eq!(pair.router("second")["takeovers"], 0);
}
