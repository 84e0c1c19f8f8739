//! Tests the times at which probes are due, in virtual time.

use std::time::Duration;

use weir_health::{Monitor, Outcome, Output, ProbeRequest, State, SuspendedServers};
use weir_model::{Check, Desired, Pool, Probe, Server, Timing};

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
