//! Tests the times at which probes are due, in virtual time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use weir_health::{
    Monitor, Outcome, Output, ProbeCounts, ProbeRequest, SavedState, State, SuspendedServers,
};
use weir_model::{Check, Desired, OnFailure, Pool, Probe, Require, Server, Timing};

const INTERVAL: Duration = Duration::from_secs(2);

/// Returns a configuration with one server, which is checked every [`INTERVAL`].
fn desired(probe: Probe, name: &str) -> Desired {
    let mut check = Check::new(probe);
    check.timing = Timing {
        interval: INTERVAL,
        ..Timing::default()
    };
    let mut pool = Pool::new("p");
    let address = [10, 0, 0, 5].into();
    pool.servers.push(Server::new(name, address, Some(80)));
    pool.checks.push(check);
    Desired {
        pools: vec![pool],
        ..Desired::default()
    }
}

fn monitor(probe: Probe) -> Monitor {
    let desired = desired(probe, "10.0.0.5");
    let mut monitor = Monitor::new(1);
    let start = Duration::from_secs(1000);
    monitor.configure(&desired, &SuspendedServers::default(), &|_, _| None, start);
    monitor
}

/// Advances to the next deadline. Returns the time and the probe that is due then.
fn next_probe(monitor: &mut Monitor) -> (Duration, ProbeRequest) {
    let due = monitor.next_deadline().expect("a probe is scheduled");
    monitor.advance(due);
    while let Some(output) = monitor.poll_output() {
        if let Output::Probe(probe) = output {
            return (due, probe);
        }
    }
    panic!("no probe at {due:?}");
}

#[test]
fn slow_results_do_not_delay_later_probes() {
    let mut monitor = monitor(Probe::Tcp);
    let (mut due, mut probe) = next_probe(&mut monitor);
    for _ in 0..20 {
        let result_time = due + Duration::from_millis(1500);
        monitor.handle_result(probe.id, Outcome::passed("ok"), result_time);
        let (next_due, next_probe) = next_probe(&mut monitor);
        let interval = next_due - due;
        let jitter = INTERVAL / 20;
        assert!(
            interval >= INTERVAL - jitter && interval <= INTERVAL + jitter,
            "{interval:?}"
        );
        (due, probe) = (next_due, next_probe);
    }
}

#[test]
fn result_later_than_the_interval_schedules_the_next_probe_immediately() {
    let mut monitor = monitor(Probe::Tcp);
    let (due, probe) = next_probe(&mut monitor);
    let result_time = due + 3 * INTERVAL;
    monitor.handle_result(probe.id, Outcome::passed("ok"), result_time);
    assert_eq!(monitor.next_deadline(), Some(result_time));
}

#[test]
fn probe_now_reruns_a_running_probe_once() {
    let path = "/run/weight".to_owned();
    let mut monitor = monitor(Probe::File { path });
    let is_file = |probe: &Probe| matches!(probe, Probe::File { .. });
    let (due, probe) = next_probe(&mut monitor);
    let change_time = due + Duration::from_millis(10);
    monitor.probe_now(is_file, change_time);
    assert_eq!(monitor.next_deadline(), None, "the probe still runs");

    let result_time = due + Duration::from_millis(20);
    monitor.handle_result(probe.id, Outcome::passed("ok"), result_time);
    let (rerun_due, probe) = next_probe(&mut monitor);
    assert_eq!(rerun_due, result_time, "the file changed while it was read");
    monitor.handle_result(probe.id, Outcome::passed("ok"), result_time);
    let next = monitor.next_deadline().unwrap();
    assert!(
        next > result_time + INTERVAL / 2,
        "only one rerun: {next:?}"
    );

    monitor.probe_now(is_file, result_time + INTERVAL / 4);
    assert_eq!(monitor.next_deadline(), Some(result_time + INTERVAL / 4));
}

#[test]
fn probes_and_their_lateness_are_counted() {
    let mut monitor = monitor(Probe::Tcp);
    assert_eq!((monitor.target_count(), monitor.probe_count()), (1, 0));
    let due = monitor.next_deadline().unwrap();
    monitor.advance(due + Duration::from_millis(30));
    let probe = loop {
        if let Some(Output::Probe(probe)) = monitor.poll_output() {
            break probe;
        }
    };
    assert_eq!(
        probe.deadline,
        due + Duration::from_millis(1030),
        "1 s after its start"
    );
    assert_eq!((monitor.target_count(), monitor.probe_count()), (1, 1));
    assert_eq!(monitor.lateness().quantile_ms(100), Some(50));
    assert_eq!(monitor.lateness().counts().iter().sum::<u64>(), 1);

    assert_eq!(monitor.last_pass("p", "10.0.0.5"), None);
    let passed = due + Duration::from_millis(100);
    monitor.handle_result(probe.id, Outcome::passed("ok"), passed);
    assert_eq!(monitor.last_pass("p", "10.0.0.5"), Some(passed));
    for (pool, server) in [("q", "10.0.0.5"), ("p", "10.0.0.6")] {
        assert_eq!(monitor.last_pass(pool, server), None);
    }
    let (due, probe) = next_probe(&mut monitor);
    monitor.handle_result(probe.id, Outcome::failed("refused"), due);
    assert_eq!(monitor.last_pass("p", "10.0.0.5"), Some(passed));
}

#[test]
fn repeated_result_does_not_count_for_the_next_probe() {
    let mut monitor = monitor(Probe::Tcp);
    let (due, first) = next_probe(&mut monitor);
    monitor.handle_result(first.id, Outcome::passed("ok"), due);
    let (due, second) = next_probe(&mut monitor);
    monitor.handle_result(first.id, Outcome::failed("late"), due);
    let reason = |monitor: &Monitor| monitor.view("p", "10.0.0.5", None).unwrap().reason;
    assert_eq!(reason(&monitor), "ok");
    monitor.handle_result(second.id, Outcome::failed("refused"), due);
    assert_eq!(reason(&monitor), "refused (failed 1 of 3)");
}

#[test]
fn results_durations_and_downtime_are_counted() {
    const MS: Duration = Duration::from_millis(1);
    let mut monitor = monitor(Probe::Tcp);
    // Each result arrives this many milliseconds after its probe started; returns the time of the last one.
    let handle = |monitor: &mut Monitor, results: &[(Outcome, u32)]| {
        let mut now = Duration::ZERO;
        for (outcome, duration_ms) in results {
            let (due, probe) = next_probe(monitor);
            now = due + MS * *duration_ms;
            monitor.handle_result(probe.id, outcome.clone(), now);
        }
        now
    };
    let (passed, failed) = (Outcome::passed("ok"), Outcome::failed("refused"));
    let view = |monitor: &Monitor| monitor.view("p", "10.0.0.5", None).unwrap();

    let [first, last] = [20, 40].map(|duration_ms| (failed.clone(), duration_ms));
    let results = [(passed.clone(), 10), first.clone(), first, last.clone()];
    let down_at = handle(&mut monitor, &results);
    let counts = ProbeCounts {
        probes: 4,
        failures: 3,
        total_duration: MS * 90,
        last_duration: MS * 40,
        downs: 1,
        downtime: Duration::ZERO,
        down_since: Some(down_at),
        thresholds: (2, 3),
    };
    let status = view(&monitor);
    assert_eq!(status.server_health.state, State::Down);
    assert_eq!(status.server_health.since, down_at);
    assert_eq!(status.server_health.reason, "refused");
    assert_eq!(status.reason, "refused");
    assert_eq!(status.checks.len(), 1);
    assert_eq!(status.checks[0].results, "+---");
    assert_eq!(status.checks[0].counts, counts);

    let results = [(Outcome::unknown("no port"), 80), (passed.clone(), 30)];
    handle(&mut monitor, &results);
    assert_eq!(view(&monitor).reason, "ok (passed 1 of 2)");
    let first_downtime = handle(&mut monitor, &[(passed, 50)]) - down_at;
    let counts = ProbeCounts {
        probes: 6,
        total_duration: MS * 170,
        last_duration: MS * 50,
        downtime: first_downtime,
        down_since: None,
        ..counts
    };
    let new_counts = view(&monitor).checks[0].counts;
    assert_eq!(new_counts, counts, "unknown results must not be counted");

    let down_at = handle(&mut monitor, &[last.clone(), last.clone(), last]);
    let counts = view(&monitor).checks[0].counts;
    assert_eq!((counts.failures, counts.downs), (6, 2));
    assert_eq!(counts.down_since, Some(down_at));
    assert_eq!(
        counts.downtime, first_downtime,
        "only ended downtimes count"
    );
}

/// A reload writes the server's address differently.
#[test]
fn state_is_reported_under_the_new_name_of_a_server() {
    let mut monitor = monitor(Probe::Tcp);
    let (due, probe) = next_probe(&mut monitor);
    monitor.handle_result(probe.id, Outcome::passed("ok"), due);
    while monitor.poll_output().is_some() {}
    let renamed = desired(Probe::Tcp, "10.0.0.5:80");
    monitor.configure(&renamed, &SuspendedServers::default(), &|_, _| None, due);
    let mut reported = Vec::new();
    while let Some(output) = monitor.poll_output() {
        if let Output::HealthChanged {
            server,
            server_health,
            ..
        } = output
        {
            reported.push((server, server_health.map(|it| it.state)));
        }
    }
    let expected = [
        ("10.0.0.5:80".to_owned(), Some(State::Up)),
        ("10.0.0.5".to_owned(), None),
    ];
    assert_eq!(reported, expected);
}

#[test]
fn saved_reason_is_shown_until_the_first_result() {
    let mut monitor = monitor(Probe::Tcp);
    let reason = |monitor: &Monitor| monitor.view("p", "10.0.0.5", None).unwrap().reason;
    assert_eq!(reason(&monitor), "no result yet");
    let saved_state = SavedState {
        state: State::Down,
        since: Duration::from_secs(900),
        reason: "refused before the restart".to_owned(),
        paths: BTreeMap::new(),
    };
    let mut restarted = Monitor::new(1);
    restarted.configure(
        &desired(Probe::Tcp, "10.0.0.5"),
        &SuspendedServers::default(),
        &|_, _| Some(saved_state.clone()),
        Duration::from_secs(1000),
    );
    assert_eq!(reason(&restarted), "refused before the restart");
    for monitor in [&mut monitor, &mut restarted] {
        let (due, probe) = next_probe(monitor);
        monitor.handle_result(probe.id, Outcome::failed("timeout"), due);
        assert_eq!(reason(monitor), "timeout");
    }
}

#[test]
fn health_that_a_reload_changes_is_reported_once() {
    let with_two_checks = |require| {
        let mut desired = desired(Probe::Tcp, "10.0.0.5");
        let pool = &mut desired.pools[0];
        let mut other_check = Check::new(Probe::Http(Box::default()));
        other_check.timing = pool.checks[0].timing;
        pool.checks.push(other_check);
        pool.health.require = require;
        desired
    };
    let mut monitor = Monitor::new(1);
    let mut now = Duration::from_secs(1000);
    let configure = |monitor: &mut Monitor, require, now| {
        let desired = with_two_checks(require);
        monitor.configure(&desired, &SuspendedServers::default(), &|_, _| None, now);
    };
    configure(&mut monitor, Require::All, now);
    for _ in 0..2 {
        let (due, probe) = next_probe(&mut monitor);
        let outcome = match probe.target.probe {
            Probe::Tcp => Outcome::passed("ok"),
            _ => Outcome::failed("refused"),
        };
        monitor.handle_result(probe.id, outcome, due);
        now = due;
    }
    while monitor.poll_output().is_some() {}
    configure(&mut monitor, Require::Any, now);
    let mut reported = Vec::new();
    while let Some(output) = monitor.poll_output() {
        if let Output::HealthChanged {
            server_health,
            from,
            ..
        } = output
        {
            reported.push((from, server_health.map(|it| it.state)));
        }
    }
    assert_eq!(reported, [(Some(State::Down), Some(State::Up))]);
}

#[test]
fn suspended_servers_are_not_probed_and_keep_their_state() {
    let mut monitor = monitor(Probe::Tcp);
    let (now, probe) = next_probe(&mut monitor);
    monitor.handle_result(probe.id, Outcome::failed("refused"), now);
    let desired = desired(Probe::Tcp, "10.0.0.5");
    let server = ("p".to_owned(), "10.0.0.5".to_owned());
    let suspended = SuspendedServers::from([server]);
    for (suspended, checks) in [(suspended, 0), (SuspendedServers::default(), 1)] {
        monitor.configure(&desired, &suspended, &|_, _| None, now);
        assert_eq!(monitor.target_count(), checks);
        let view = monitor.view("p", "10.0.0.5", None).unwrap();
        assert_eq!(view.checks.len(), checks);
        assert_eq!(view.server_health.state, State::Down);
    }
}

#[test]
fn failed_check_removes_the_server_if_configured() {
    for on_failure in OnFailure::ALL {
        let mut desired = desired(Probe::Tcp, "10.0.0.5");
        let check = &mut desired.pools[0].checks[0];
        (check.timing.fall, check.on_failure) = (1, on_failure);
        let mut monitor = Monitor::new(1);
        let start = Duration::from_secs(1000);
        monitor.configure(&desired, &SuspendedServers::default(), &|_, _| None, start);
        let (now, probe) = next_probe(&mut monitor);
        monitor.handle_result(probe.id, Outcome::failed("refused"), now);
        let health = monitor.view("p", "10.0.0.5", None).unwrap().server_health;
        let expected = (State::Down, on_failure == OnFailure::Remove);
        assert_eq!((health.state, health.remove), expected, "{on_failure:?}");
    }
}

/// A new check can get the slot of a removed check, whose timer remains.
#[test]
fn timer_of_a_removed_check_does_not_start_another_check() {
    let mut monitor = monitor(Probe::Tcp);
    let configure = |monitor: &mut Monitor, probe, now| {
        let desired = desired(probe, "10.0.0.5");
        monitor.configure(&desired, &SuspendedServers::default(), &|_, _| None, now);
    };
    let (now, probe) = next_probe(&mut monitor);
    monitor.handle_result(probe.id, Outcome::passed("ok"), now);
    let stale_due = monitor.next_deadline().unwrap();
    let now = stale_due - Duration::from_millis(1);
    configure(&mut monitor, Probe::Redis, now);
    configure(&mut monitor, Probe::Ping, now);
    let start_probe = |monitor: &mut Monitor, now| {
        monitor.advance(now);
        std::iter::from_fn(|| monitor.poll_output()).find_map(|output| match output {
            Output::Probe(probe) => Some(probe.target.probe.clone()),
            Output::HealthChanged { .. } => None,
        })
    };
    assert_eq!(start_probe(&mut monitor, stale_due), None);
    let started_probes = std::iter::from_fn(|| {
        let due = monitor.next_deadline()?;
        Some(start_probe(&mut monitor, due))
    });
    assert_eq!(started_probes.flatten().next(), Some(Probe::Ping));
}

#[test]
fn slow_start_continues_after_a_reload() {
    let mut desired = desired(Probe::Tcp, "10.0.0.5");
    let pool = &mut desired.pools[0];
    pool.health.slow_start = Duration::from_secs(10);
    (pool.checks[0].timing.rise, pool.checks[0].timing.fall) = (1, 1);
    let mut monitor = Monitor::new(1);
    let configure = |monitor: &mut Monitor, now| {
        monitor.configure(&desired, &SuspendedServers::default(), &|_, _| None, now);
    };
    configure(&mut monitor, Duration::from_secs(1000));
    let mut up_at = Duration::ZERO;
    for outcome in [Outcome::failed("refused"), Outcome::passed("ok")] {
        let (due, probe) = next_probe(&mut monitor);
        monitor.handle_result(probe.id, outcome, due);
        up_at = due;
    }
    let reports = Cell::new(0);
    let run_until = |monitor: &mut Monitor, end: Duration| {
        reports.set(0);
        while let Some(now) = monitor.next_deadline().filter(|now| *now < end) {
            monitor.advance(now);
            while let Some(output) = monitor.poll_output() {
                match output {
                    Output::Probe(probe) => {
                        monitor.handle_result(probe.id, Outcome::passed("ok"), now);
                    }
                    Output::HealthChanged { .. } => reports.set(reports.get() + 1),
                }
            }
        }
        monitor
            .view("p", "10.0.0.5", None)
            .unwrap()
            .server_health
            .ramp
    };
    let after = |millis| up_at + Duration::from_millis(millis);
    let share = run_until(&mut monitor, after(4001));
    assert!((350..=400).contains(&share), "{share}");
    configure(&mut monitor, after(4201));
    let share = run_until(&mut monitor, after(8001));
    assert!((750..=800).contains(&share), "{share}");
    // The share changes every half second, as before the reload.
    assert!((7..=8).contains(&reports.get()), "{}", reports.get());
    assert_eq!(run_until(&mut monitor, after(11_000)), 1000);
}
