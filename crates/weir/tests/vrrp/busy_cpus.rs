//! Tests that a backup director does not take over while the active one works, even though all CPUs are busy.
//!
//! `WEIR_VRRP_STEADY_SECONDS` sets the duration; the default is 3,600.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::pair::Pair;
use super::recorder::Recorder;
use super::world::privileged;
use super::{config, two_directors};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);

/// Threads of normal priority that never sleep, one per CPU.
struct BusyCpus(Arc<AtomicBool>);

impl BusyCpus {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = std::thread::available_parallelism().expect("read the number of CPUs");
        for _ in 0..cpus.get() {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(stop)
    }
}

impl Drop for BusyCpus {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sets the advertisement interval of both directors and returns the number of takeovers within the duration.
fn count_takeovers(pair: &Pair, interval: &str, duration: Duration) -> u64 {
    for (host, priority) in [("director", 150), ("second", 100)] {
        pair.reload(host, &config(priority, "").replace("100ms", interval));
    }
    pair.wait_for("one active director", || {
        pair.router("director")["state"] == "active"
            && pair.router("second")["state"] == "backup"
            && pair.router("second")["active_peer"] == "10.0.0.3"
    });
    let takeovers = || {
        let mut number = None;
        pair.wait_for("the number of takeovers", || {
            number = pair.router("second")["takeovers"].as_u64();
            number.is_some()
        });
        number.unwrap_or_default()
    };
    let before = takeovers();
    let recorder = Recorder::start(pair);
    let started = Instant::now();
    while let Some(remaining) = duration.checked_sub(started.elapsed()) {
        std::thread::sleep(remaining.min(PROGRESS_INTERVAL));
        println!(
            "advertisements every {interval}, after {:?}: longest gap {:?}, takeovers {}",
            started.elapsed(),
            recorder.longest_gap("10.0.0.3", started),
            takeovers() - before,
        );
    }
    takeovers() - before
}

#[test]
fn backup_does_not_take_over_while_cpus_are_busy_soak() {
    if std::env::var_os("WEIR_SOAK").is_none() || !privileged() {
        return;
    }
    let seconds = std::env::var("WEIR_VRRP_STEADY_SECONDS").ok();
    let seconds = seconds
        .and_then(|text| text.parse().ok())
        .unwrap_or(3_600_u64);
    let pair = two_directors();
    let _busy = BusyCpus::start();
    // RFC 9568 allows intervals down to 10 ms. With that interval, a pause of 30 ms causes a takeover, so the test only
    // prints the number.
    let shortest = count_takeovers(&pair, "10ms", Duration::from_secs(seconds.div_ceil(10)));
    println!("{shortest} takeovers with advertisements every 10 ms");
    let takeovers = count_takeovers(&pair, "100ms", Duration::from_secs(seconds));
    assert_eq!(takeovers, 0, "the backup took over without a fault");
}
