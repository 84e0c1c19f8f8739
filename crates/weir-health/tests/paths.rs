//! Tests a server in a pool of two services with different VIPs: a broken path affects only its service.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use weir_health::{Monitor, Outcome, Output, SavedState, ServerHealth, State, SuspendedServers};
use weir_model::{
    Check, Desired, Forward, Listener, PATH_BROKEN_PREFIX, Pool, Ports, Probe, Protocol, Require,
    Server, Service, Timing, Via,
};

const SERVER: &str = "10.0.0.5";
const A: &str = "192.0.2.10";
const B: &str = "192.0.2.11";

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn service(name: &str, vip: &str) -> Service {
    let mut service = Service::new(name, Forward::Direct, "p");
    service.listen = vec![Listener {
        protocol: Protocol::Tcp,
        address: address(vip),
        ports: Ports::One(80),
    }];
    service
}

fn desired(services: &[(&str, &str)], via: Via) -> Desired {
    let mut check = Check::new(Probe::Tcp);
    check.target.via = via;
    check.timing = Timing {
        rise: 1,
        fall: 2,
        ..Timing::default()
    };
    let mut pool = Pool::new("p");
    let server = Server::new(SERVER, address(SERVER), Some(80));
    pool.servers.push(server);
    pool.checks.push(check);
    pool.health.slow_start = Duration::from_secs(10);
    Desired {
        pools: vec![pool],
        services: services.iter().map(|it| service(it.0, it.1)).collect(),
        ..Desired::default()
    }
}

/// The monitor, virtual time, and the addresses that do not respond: VIPs, or the server's own address.
struct Fixture {
    monitor: Monitor,
    now: Duration,
    silent: Vec<&'static str>,
    reported: Option<ServerHealth>,
    /// State changes of the server, and of individual services.
    changes: Vec<String>,
}

impl Fixture {
    fn new(desired: &Desired, saved: Option<SavedState>) -> Self {
        let mut fixture = Self {
            monitor: Monitor::new(1),
            now: Duration::from_secs(1000),
            silent: Vec::new(),
            reported: None,
            changes: Vec::new(),
        };
        fixture.configure(desired, saved);
        fixture
    }

    fn configure(&mut self, desired: &Desired, saved: Option<SavedState>) {
        let saved_state = |_: &str, _: &str| saved.clone();
        self.monitor.configure(
            desired,
            &SuspendedServers::default(),
            &saved_state,
            self.now,
        );
        self.process_outputs();
    }

    /// Advances by one minute.
    fn run_one_minute(&mut self) {
        let end = self.now + Duration::from_secs(60);
        while let Some(next) = self.monitor.next_deadline().filter(|next| *next < end) {
            self.now = next.max(self.now);
            self.monitor.advance(self.now);
            self.process_outputs();
        }
        self.now = end;
    }

    fn process_outputs(&mut self) {
        while let Some(output) = self.monitor.poll_output() {
            match output {
                Output::Probe(request) => {
                    let path = request.target.path;
                    let destination = path.map_or(request.target.address, |path| path.vip);
                    let is_silent = |destination: IpAddr| {
                        self.silent.iter().any(|it| address(it) == destination)
                    };
                    let fails = is_silent(destination) || is_silent(request.target.address);
                    let outcome = if fails {
                        Outcome::failed(format!("no answer from {destination}"))
                    } else {
                        Outcome::passed("ok")
                    };
                    self.monitor.handle_result(request.id, outcome, self.now);
                }
                Output::HealthChanged {
                    server_health,
                    from,
                    paths,
                    ..
                } => {
                    let state = |service: &str| {
                        let server_health = server_health.as_ref().map(|it| it.in_service(service));
                        server_health.map(|it| it.state)
                    };
                    self.changes
                        .extend(from.map(|_| format!("{:?}", state("").unwrap())));
                    for (service, _) in paths {
                        let state = state(&service).unwrap();
                        self.changes.push(format!("{service} {state:?}"));
                    }
                    self.reported = server_health;
                }
            }
        }
    }

    fn states(&self) -> [State; 3] {
        let reported = self.reported.as_ref().unwrap();
        [reported, reported.in_service("a"), reported.in_service("b")].map(|it| it.state)
    }

    fn changes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.changes)
    }
}

use State::{Down, Up};

#[test]
fn broken_path_affects_only_its_service() {
    for via in [Via::Both, Via::Path] {
        let mut fixture = Fixture::new(&desired(&[("a", A), ("b", B)], via), None);
        fixture.run_one_minute();
        assert_eq!(fixture.states(), [Up, Up, Up]);
        assert_eq!(fixture.changes(), ["Up"]);

        fixture.silent = vec![B];
        fixture.run_one_minute();
        assert_eq!(fixture.states(), [Up, Up, Down]);
        assert_eq!(fixture.changes(), ["b Down"]);
        let view = |service| fixture.monitor.view("p", SERVER, Some(service)).unwrap();
        assert_eq!(view("a").reason, "ok");
        assert!(view("b").reason.ends_with("no answer from 192.0.2.11"));
        let expected = if via == Via::Both { 2 } else { 1 };
        assert_eq!(
            view("b").checks.len(),
            expected,
            "checks of other services must not be listed"
        );

        fixture.silent = Vec::new();
        fixture.run_one_minute();
        assert_eq!(fixture.states(), [Up, Up, Up]);
        assert_eq!(fixture.changes(), ["b Up"]);
    }
}

#[test]
fn server_is_down_if_all_paths_are_down() {
    let mut fixture = Fixture::new(&desired(&[("a", A), ("b", B)], Via::Both), None);
    fixture.run_one_minute();
    fixture.changes();
    fixture.silent = vec![A, B];
    fixture.run_one_minute();
    assert_eq!(fixture.states(), [Down, Down, Down]);
    assert_eq!(fixture.changes().last().unwrap(), "Down");
    // The path that is still broken is reported when the server comes up.
    fixture.silent = vec![B];
    fixture.run_one_minute();
    assert_eq!(fixture.states(), [Up, Up, Down]);
    assert_eq!(fixture.changes(), ["Up", "b Down"]);

    // The last reported change is about the server, not about a service.
    fixture.silent = Vec::new();
    fixture.run_one_minute();
    fixture.changes();
    fixture.silent = vec![SERVER];
    fixture.run_one_minute();
    assert_eq!(fixture.states(), [Down, Down, Down]);
    assert_eq!(fixture.changes().last().unwrap(), "Down");
}

#[test]
fn reason_comes_from_a_path_with_the_same_state_as_the_server() {
    for (silent, expected) in [(vec![B], (Up, "ok")), (vec![A], (Up, "ok"))] {
        let mut fixture = Fixture::new(&desired(&[("a", A), ("b", B)], Via::Path), None);
        fixture.silent = vec![A, B];
        fixture.run_one_minute();
        assert_eq!(fixture.states(), [Down, Down, Down]);
        fixture.silent = silent;
        fixture.run_one_minute();
        let reported = fixture.reported.unwrap();
        assert_eq!((reported.state, reported.reason.as_str()), expected);
    }
}

#[test]
fn slow_start_begins_in_the_service_whose_path_recovered() {
    let mut fixture = Fixture::new(&desired(&[("a", A), ("b", B)], Via::Path), None);
    fixture.run_one_minute();
    fixture.silent = vec![B];
    fixture.run_one_minute();
    fixture.silent = Vec::new();
    while fixture.states() != [Up, Up, Up] {
        fixture.now = fixture.monitor.next_deadline().unwrap();
        fixture.monitor.advance(fixture.now);
        fixture.process_outputs();
    }
    let reported = fixture.reported.clone().unwrap();
    assert_eq!((reported.ramp, reported.in_service("a").ramp), (1000, 1000));
    assert!(reported.in_service("b").ramp < 1000);
    fixture.run_one_minute();
    assert_eq!(fixture.reported.unwrap().in_service("b").ramp, 1000);
}

#[test]
fn broken_path_survives_reloads_and_restarts() {
    let both = desired(&[("a", A), ("b", B)], Via::Both);
    let mut fixture = Fixture::new(&both, None);
    fixture.run_one_minute();
    fixture.silent = vec![B];
    fixture.run_one_minute();
    let reported = fixture.reported.clone().unwrap();

    let changed_configuration = desired(&[("b", "192.0.2.12"), ("a", A)], Via::Both);
    fixture.configure(&changed_configuration, None);
    assert_eq!(
        fixture.reported.clone().unwrap(),
        reported,
        "the order and the VIP must not matter"
    );

    let mut restarted = Fixture::new(&both, Some(SavedState::from(&reported)));
    assert_eq!(restarted.states(), [Up, Up, Down]);
    let restored_health = restarted.reported.clone().unwrap();
    assert_eq!(
        restored_health.in_service("b").reason,
        reported.in_service("b").reason
    );
    restarted.silent = vec![B];
    restarted.run_one_minute();
    assert_eq!(restarted.states(), [Up, Up, Down]);
    assert_eq!(restarted.changes(), [""; 0]);

    // Only the remaining service determines the state.
    restarted.configure(&desired(&[("b", B)], Via::Both), None);
    let reported = restarted.reported.clone().unwrap();
    assert_eq!((reported.state, reported.paths), (Down, BTreeMap::new()));
    assert_eq!(restarted.changes(), [""; 0]);
}

#[test]
fn service_without_a_path_has_the_state_of_the_server() {
    let mut desired = desired(&[("a", A), ("b", B), ("c", A)], Via::Both);
    desired.services[2].listen[0].ports = Ports::Range(81, 90);
    let mut fixture = Fixture::new(&desired, None);
    fixture.run_one_minute();
    fixture.silent = vec![A];
    fixture.run_one_minute();
    assert_eq!(fixture.states(), [Up, Down, Up]);
    assert_eq!(fixture.reported.as_ref().unwrap().in_service("c").state, Up);
}

#[test]
fn reload_reports_only_servers_with_changes() {
    let mut fixture = Fixture::new(&desired(&[("a", A), ("b", B)], Via::Both), None);
    fixture.run_one_minute();
    let mut report_after = |services: &[(&str, &str)]| {
        fixture.reported = None;
        fixture.configure(&desired(services, Via::Both), None);
        let reported = fixture.reported.take()?;
        Some(reported.paths.into_keys().collect::<Vec<_>>())
    };
    assert_eq!(report_after(&[("a", A), ("b", B)]), None);
    let services = [("a", A), ("b", B), ("c", "192.0.2.12")];
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    assert_eq!(report_after(&services), Some(names));
    assert_eq!(report_after(&services), None);
}

/// Returns the state and the reason after one minute in which `silent` addresses did not respond, for a server with
/// these checks: probe, path, and an address if it is not the server's.
fn health_with(
    checks: &[(Probe, Via, Option<&str>)],
    require: Require,
    silent: &[&'static str],
) -> (State, String) {
    let mut desired = desired(&[("a", A)], Via::Both);
    let pool = &mut desired.pools[0];
    let template = pool.checks.remove(0);
    for (probe, via, other_address) in checks {
        let mut check = template.clone();
        check.probe = probe.clone();
        check.target.via = *via;
        check.target.address = other_address.map(address);
        pool.checks.push(check);
    }
    pool.health.require = require;
    let mut fixture = Fixture::new(&desired, None);
    fixture.run_one_minute();
    fixture.silent = silent.to_vec();
    fixture.run_one_minute();
    let view = fixture.monitor.view("p", SERVER, None).unwrap();
    (view.server_health.state, view.reason)
}

#[test]
fn reason_mentions_the_path_only_if_the_same_probe_passes_directly() {
    const OTHER: &str = "10.0.0.9";
    let reason = |checks: &[_], silent: &[&'static str]| {
        let (state, reason) = health_with(checks, Require::All, silent);
        assert_eq!(state, if silent.is_empty() { Up } else { Down });
        reason
    };
    let http = || Probe::Http(Box::default());
    let failure = "no answer from 192.0.2.10";
    let broken_path = format!("{PATH_BROKEN_PREFIX}{failure}");

    let both = [(Probe::Tcp, Via::Both, None)];
    assert_eq!(reason(&both, &[A]), broken_path);
    assert_eq!(reason(&both, &[SERVER]), "no answer from 10.0.0.5");
    let path = [(Probe::Tcp, Via::Path, None)];
    assert_eq!(reason(&path, &[A]), failure);
    let direct_of_other_kind = [
        (Probe::Tcp, Via::Path, None),
        (http(), Via::Server, Some(OTHER)),
    ];
    assert_eq!(reason(&direct_of_other_kind, &[A]), failure);
    let same_kind = [
        (Probe::Tcp, Via::Path, None),
        (Probe::Tcp, Via::Server, None),
    ];
    assert_eq!(reason(&same_kind, &[A]), broken_path);
    assert_eq!(reason(&same_kind, &[]), "ok");
    let two_direct = [
        (Probe::Tcp, Via::Server, None),
        (Probe::Tcp, Via::Server, Some(OTHER)),
    ];
    assert_eq!(reason(&two_direct, &[OTHER]), "no answer from 10.0.0.9");
}

#[test]
fn check_passes_only_if_all_its_probes_pass() {
    const OTHER: &str = "10.0.0.9";
    let checks = [
        (Probe::Tcp, Via::Both, None),
        (Probe::Tcp, Via::Server, Some(OTHER)),
    ];
    for (require, silent, expected) in [
        (Require::Any, vec![], Up),
        (Require::Any, vec![A], Up),
        (Require::Any, vec![OTHER], Up),
        (Require::Any, vec![A, OTHER], Down),
        (Require::All, vec![A], Down),
        (Require::All, vec![OTHER], Down),
    ] {
        let (state, _) = health_with(&checks, require, &silent);
        assert_eq!(state, expected, "{require:?} {silent:?}");
    }
}
