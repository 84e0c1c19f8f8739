//! Tests the server states with events in virtual time, and with planes that reject changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_health::{Ejection, ReportedWeight, Sample, ServerHealth, State, Transition};
use weir_model::{Check, Pool, Probe, Scheduler, Server};

use super::*;
use crate::order::{Driver, OverrideError};
use crate::record::OverrideRecord;

const FIRST: &str = "10.0.0.1";
const SECOND: &str = "10.0.0.2";

fn server(name: &str, weight: u32) -> Server {
    Server {
        weight,
        ..Server::new(name, name.parse().unwrap(), None)
    }
}

/// Returns a pool with one check and two servers, which have weights 4 and 2.
fn pool() -> Pool {
    let mut pool = Pool::new("p");
    pool.servers = vec![server(FIRST, 4), server(SECOND, 2)];
    pool.checks = vec![Check::new(Probe::Tcp)];
    pool.health.max_ejected = 50;
    pool
}

fn server_health(state: State) -> ServerHealth {
    ServerHealth::new(state, Duration::from_secs(1))
}

fn event(server: &str, server_health: ServerHealth) -> HealthEvent {
    HealthEvent {
        pool: "p".to_owned(),
        server: server.to_owned(),
        server_health: Some(server_health),
    }
}

fn effective(states: &ServerStates, pool: &Pool, service: Option<&str>) -> Vec<u32> {
    let weights = states.weights(pool, service);
    weights
        .servers
        .iter()
        .map(|server| server.effective)
        .collect()
}

/// Sends samples that eject the first server from a service, or from all proxy services. Returns the events.
fn eject(states: &mut ServerStates, pool: &Pool, service: Option<&str>) -> Vec<EjectionEvent> {
    let source = match service {
        Some(_) => Source::Handshakes,
        None => Source::Requests,
    };
    let mut events = Vec::new();
    for second in 0..5 {
        let sample = |syns, answered| Sample { syns, answered };
        let samples = vec![
            (FIRST.to_owned(), sample(second * 3, 0)),
            (SECOND.to_owned(), sample(second, second)),
        ];
        let watched = [PoolSamples {
            pool,
            service,
            samples,
        }];
        let now = Duration::from_secs(second);
        let explain = |_: &str, _: &str, ejection: &mut Ejection| {
            ejection.reason = "explained".to_owned();
        };
        events.extend(states.handle_samples(source, &watched, &explain, now).0);
    }
    events
}

/// Tests the first server's weight with overrides, health, slow start and ejection. The second server is up with weight
/// 2.
#[test]
fn effective_weight_depends_on_override_health_slow_start_and_ejection() {
    let slow = |ramp| ServerHealth {
        ramp,
        ..server_health(State::Up)
    };
    let reported = ServerHealth {
        weights: vec![ReportedWeight::Percent(50)],
        ..server_health(State::Up)
    };
    let up = || server_health(State::Up);
    let weight = |weight| Some(Override::Weight(weight));
    // Each case: override, health and ejection, then the expected effective weight, `quiesced` and `down`.
    let cases = [
        (None, up(), false, (4, false, false)),
        (None, slow(500), false, (2, false, false)),
        (None, slow(1), false, (1, false, false)),
        (None, reported.clone(), false, (2, false, false)),
        (None, server_health(State::Down), false, (0, false, true)),
        (
            None,
            server_health(State::Starting),
            false,
            (0, false, false),
        ),
        (None, up(), true, (0, false, false)),
        (weight(8), up(), false, (8, false, false)),
        (weight(8), slow(500), false, (4, false, false)),
        (weight(8), reported, false, (4, false, false)),
        (
            weight(8),
            server_health(State::Down),
            false,
            (0, false, true),
        ),
        (weight(8), up(), true, (0, false, false)),
        (weight(0), up(), false, (0, true, false)),
        (
            weight(0),
            server_health(State::Down),
            false,
            (0, true, true),
        ),
        (Some(Override::Drain), up(), false, (0, false, false)),
        (Some(Override::Drain), slow(500), true, (0, false, false)),
        (Some(Override::Maint), up(), false, (0, false, false)),
        (
            Some(Override::Maint),
            server_health(State::Down),
            false,
            (0, false, true),
        ),
    ];
    for (new_override, first, ejected, expected) in cases {
        let case = format!("{new_override:?} {first:?} ejected {ejected}");
        let pool = pool();
        let mut states = ServerStates::default();
        states.set_override("p", FIRST, new_override);
        states.handle_health(vec![
            event(FIRST, server_health(State::Up)),
            event(SECOND, server_health(State::Up)),
        ]);
        if ejected {
            assert_eq!(eject(&mut states, &pool, None).len(), 1);
        }
        states.handle_health(vec![event(FIRST, first)]);
        let weights = states.weights(&pool, None);
        let weight = weights.servers[0];
        let found = (weight.effective, weight.quiesced, weight.down);
        assert_eq!(found, expected, "{case}");
        assert_eq!(weights.servers[1].effective, 2, "{case}");
    }
}

#[test]
fn checked_servers_start_without_weight_while_another_is_up() {
    let pool = pool();
    let mut states = ServerStates::default();
    assert_eq!(effective(&states, &pool, None), [4, 2]);
    states.handle_health(vec![event(SECOND, server_health(State::Up))]);
    assert_eq!(effective(&states, &pool, None), [0, 2]);
}

#[test]
fn pool_settles_when_every_server_has_a_result_or_no_checks_to_wait_for() {
    use State::{Down, Starting, Up};
    let weight = Some(Override::Weight(3));
    for (first, second, second_override, is_settling) in [
        (None, None, None, true),
        (Some(Up), None, None, true),
        (Some(Up), Some(Starting), None, true),
        (Some(Up), Some(Starting), weight, true),
        (Some(Up), Some(Starting), Some(Override::Drain), false),
        (Some(Up), None, Some(Override::Maint), false),
        (None, Some(Up), Some(Override::Maint), true),
        (Some(Up), Some(Down), None, false),
        (Some(Up), Some(Up), Some(Override::Drain), false),
        (Some(Down), Some(Down), None, false),
    ] {
        let mut states = ServerStates::default();
        states.set_override("p", SECOND, second_override);
        for (server, state) in [(FIRST, first), (SECOND, second)] {
            if let Some(state) = state {
                states.handle_health(vec![event(server, server_health(state))]);
            }
        }
        let case = format!("{first:?} {second:?} {second_override:?}");
        assert_eq!(states.is_settling(&pool()), is_settling, "{case}");
    }
    let mut unchecked = pool();
    unchecked.checks.clear();
    assert!(!ServerStates::default().is_settling(&unchecked));
}

#[test]
fn sorry_server_has_weight_while_its_checks_pass() {
    let mut pool = pool();
    pool.sorry = Some(Server {
        checks: Some(vec![Check::new(Probe::Tcp)]),
        ..server("10.0.0.9", 0)
    });
    let mut states = ServerStates::default();
    states.handle_health(vec![event("10.0.0.9", server_health(State::Up))]);
    assert_eq!(states.weights(&pool, None).sorry.unwrap().effective, 1);
    states.set_override("p", "10.0.0.9", Some(Override::Drain));
    assert_eq!(states.weights(&pool, None).sorry.unwrap().effective, 1);
    states.handle_health(vec![event("10.0.0.9", server_health(State::Down))]);
    let sorry = states.weights(&pool, None).sorry.unwrap();
    assert_eq!((sorry.effective, sorry.down), (0, true));
}

#[test]
fn service_and_proxy_ejections_are_separate() {
    let pool = pool();
    let mut states = ServerStates::default();
    states.handle_health(vec![
        event(FIRST, server_health(State::Up)),
        event(SECOND, server_health(State::Up)),
    ]);
    let events = eject(&mut states, &pool, Some("p"));
    assert_eq!(events[0].server.service.as_deref(), Some("p"));
    let Transition::Ejected(ejection) = &events[0].transition else {
        panic!("{events:?}");
    };
    assert_eq!(ejection.reason, "explained");
    assert_eq!(effective(&states, &pool, Some("p")), [0, 2]);
    assert_eq!(effective(&states, &pool, Some("other")), [4, 2]);
    assert_eq!(effective(&states, &pool, None), [4, 2]);
    // A proxy group with the same name has its own history.
    eject(&mut states, &pool, None);
    assert_eq!(effective(&states, &pool, None), [0, 2]);
    assert_eq!(states.ejected().len(), 2);
    // The proxy no longer watches any pool: only ejections based on handshakes remain.
    let keep_reason = |_: &str, _: &str, _: &mut Ejection| {};
    let now = Duration::from_secs(6);
    let (_, changed) = states.handle_samples(Source::Requests, &[], &keep_reason, now);
    assert_eq!(changed, BTreeSet::from(["p".to_owned()]));
    assert_eq!(effective(&states, &pool, None), [4, 2]);
    assert_eq!(effective(&states, &pool, Some("p")), [0, 2]);
    assert_eq!(
        states.end_ejections_except(&BTreeSet::new()),
        BTreeSet::from(["p".to_owned()])
    );
    assert_eq!(effective(&states, &pool, Some("p")), [4, 2]);
    assert_eq!(
        states.end_ejections_except(&BTreeSet::new()),
        BTreeSet::new()
    );
}

#[test]
fn broken_path_removes_weight_in_its_service_and_is_persisted() {
    let pool = pool();
    let mut first = server_health(State::Up);
    let mut broken = server_health(State::Down);
    broken.reason = "no reply from the VIP 192.0.2.11".to_owned();
    first.paths = BTreeMap::from([
        ("a".to_owned(), server_health(State::Up)),
        ("b".to_owned(), broken.clone()),
    ]);
    let mut states = ServerStates::default();
    let records = states.handle_health(vec![event(FIRST, first)]);
    let mut journal = SavedServers::default();
    journal.replay(Vec::new(), records);
    let mut from_journal = ServerStates::default();
    from_journal.adopt(journal, true);
    let text = serde_json::to_string(&states.saved_health()).unwrap();
    let file = SavedServers {
        health_states: serde_json::from_str(&text).unwrap(),
        ..SavedServers::default()
    };
    let mut from_file = ServerStates::default();
    from_file.adopt(file, true);
    for states in [states, from_journal, from_file] {
        assert_eq!(effective(&states, &pool, None)[0], 4);
        assert_eq!(effective(&states, &pool, Some("a"))[0], 4);
        assert_eq!(effective(&states, &pool, Some("b"))[0], 0);
        assert_eq!(states.health_in("p", FIRST, "b"), Some(&broken));
        let saved = states.saved_state("p", FIRST).unwrap();
        assert_eq!(saved.paths["b"].state, State::Down);
    }
}

#[test]
fn only_lasting_health_changes_are_recorded() {
    let mut states = ServerStates::default();
    let slow = ServerHealth {
        ramp: 100,
        ..server_health(State::Up)
    };
    assert_eq!(states.handle_health(vec![event(FIRST, slow)]).len(), 1);
    let grown = ServerHealth {
        ramp: 200,
        weights: vec![ReportedWeight::Percent(10)],
        ..server_health(State::Up)
    };
    assert_eq!(states.handle_health(vec![event(FIRST, grown)]), []);
    let removed = HealthEvent {
        server_health: None,
        ..event(FIRST, server_health(State::Up))
    };
    let records = states.handle_health(vec![removed]);
    assert_eq!(records, [("p".to_owned(), FIRST.to_owned(), None)]);
    assert_eq!(states.saved_health(), SavedHealth::default());
}

#[test]
fn pool_below_its_quorum_is_reported_once_across_restarts() {
    let mut pool = pool();
    pool.health.quorum = 20;
    let mut states = ServerStates::default();
    states.update_pool(&pool);
    let changes = states.take_pool_changes();
    assert_eq!(
        (changes[0].from, changes[0].to),
        (PoolState::Up, PoolState::BelowQuorum)
    );
    assert_eq!(states.exceptional_state("p"), Some(PoolState::BelowQuorum));
    let mut next = ServerStates::default();
    next.adopt(states.saved_servers(), true);
    next.update_pool(&pool);
    assert_eq!(next.take_pool_changes(), []);
    assert_eq!(next.exceptional_state("p"), Some(PoolState::BelowQuorum));
}

#[test]
fn configuration_removes_state_of_removed_servers_except_overrides() {
    let mut pool = pool();
    let mut states = ServerStates::default();
    states.handle_health(vec![
        event(FIRST, server_health(State::Up)),
        event(SECOND, server_health(State::Down)),
    ]);
    states.set_override("p", SECOND, Some(Override::Drain));
    let proxied = [("p", FIRST), ("p", SECOND)];
    states.handle_proxy_servers(proxied.into_iter(), Duration::from_secs(5));
    pool.servers.pop();
    states.handle_configuration(std::iter::once(&pool));
    states.handle_proxy_servers(proxied.into_iter().take(1), Duration::from_secs(9));
    assert_eq!(states.server_health("p", SECOND), None);
    assert!(states.server_health("p", FIRST).is_some());
    assert_eq!(states.overrides().get("p", SECOND), Some(Override::Drain));
    assert_eq!(states.since("p", FIRST), Some(Duration::from_secs(5)));
    assert_eq!(states.since("p", SECOND), None);
    states.handle_configuration(std::iter::empty());
    assert_eq!(states.saved_health(), SavedHealth::default());
}

/// Records calls. A call fails if its number is in `fail_*`.
#[derive(Default)]
struct Planes {
    recorded: Vec<Option<Override>>,
    weights: Vec<u32>,
    copied: Vec<OverrideRecord>,
    fail_records: Vec<usize>,
    fail_applies: Vec<usize>,
    applies: usize,
}

impl Driver for Planes {
    type Error = &'static str;

    fn record(&mut self, overrides: &Overrides) -> Result<(), &'static str> {
        let call = self.recorded.len();
        self.recorded.push(overrides.get("p", FIRST));
        match self.fail_records.contains(&call) {
            true => Err("no space"),
            false => Ok(()),
        }
    }

    fn apply(&mut self, _: &str, states: &mut ServerStates) -> Result<(), &'static str> {
        let call = self.applies;
        self.applies += 1;
        states.update_pool(&pool());
        if self.fail_applies.contains(&call) {
            return Err("refused");
        }
        self.weights = effective(states, &pool(), None);
        Ok(())
    }

    fn copy(&mut self, record: &OverrideRecord) {
        self.copied.push(record.clone());
    }
}

fn set_drain(
    states: &mut ServerStates,
    planes: &mut Planes,
) -> Result<bool, OverrideError<&'static str>> {
    let now = Duration::from_secs(100);
    states.change_override(("p", FIRST), Some(Override::Drain), now, planes)
}

#[test]
fn override_is_recorded_then_applied_then_copied() {
    let (mut states, mut planes) = (ServerStates::default(), Planes::default());
    states.handle_proxy_servers(std::iter::once(("p", FIRST)), Duration::ZERO);
    assert_eq!(set_drain(&mut states, &mut planes), Ok(true));
    assert_eq!(planes.recorded, [Some(Override::Drain)]);
    assert_eq!(planes.weights, [0, 2]);
    assert_eq!(planes.copied.len(), 1);
    assert_eq!(states.since("p", FIRST), Some(Duration::from_secs(100)));
    assert_eq!(set_drain(&mut states, &mut planes), Ok(false));
    assert_eq!((planes.recorded.len(), planes.applies), (1, 1));
}

#[test]
fn last_change_is_the_newer_of_check_and_override_change() {
    let (mut states, mut planes) = (ServerStates::default(), Planes::default());
    let last_change = |states: &ServerStates, from_checks| {
        let last = states.last_change("p", FIRST, Duration::from_secs(from_checks));
        last.as_secs()
    };
    let mut change = |states: &mut ServerStates, new_override, now| {
        let now = Duration::from_secs(now);
        states
            .change_override(("p", FIRST), new_override, now, &mut planes)
            .unwrap();
    };
    // A weight does not change the state.
    change(&mut states, Some(Override::Weight(3)), 10);
    assert_eq!(last_change(&states, 5), 5);
    change(&mut states, Some(Override::Maint), 20);
    assert_eq!(last_change(&states, 5), 20);
    change(&mut states, None, 30);
    assert_eq!(last_change(&states, 5), 30);
    assert_eq!(last_change(&states, 40), 40);
    states.handle_configuration(std::iter::once(&pool()));
    assert_eq!(last_change(&states, 5), 30);
    let (mut without_first, mut other) = (states.clone(), pool());
    other.servers.remove(0);
    without_first.handle_configuration(std::iter::once(&other));
    assert_eq!(last_change(&without_first, 5), 5);
    states.handle_configuration(std::iter::empty());
    assert_eq!(last_change(&states, 5), 5);
    // A change that is rolled back has no effect.
    let mut planes = Planes {
        fail_applies: vec![0],
        ..Planes::default()
    };
    set_drain(&mut states, &mut planes).unwrap_err();
    assert_eq!(last_change(&states, 5), 5);
}

#[test]
fn override_that_cannot_be_recorded_is_not_applied() {
    let mut states = ServerStates::default();
    states.handle_proxy_servers(std::iter::once(("p", FIRST)), Duration::ZERO);
    let mut planes = Planes {
        fail_records: vec![0],
        ..Planes::default()
    };
    let error = set_drain(&mut states, &mut planes).unwrap_err();
    assert_eq!(error, OverrideError::Record("no space"));
    assert_eq!((planes.applies, planes.copied.len()), (0, 0));
    assert_eq!(states.overrides(), &Overrides::default());
    assert_eq!(states.since("p", FIRST), Some(Duration::ZERO));
}

#[test]
fn override_that_a_plane_rejects_is_rolled_back() {
    for fail_records in [vec![], vec![1]] {
        let mut states = ServerStates::default();
        let mut planes = Planes {
            fail_records: fail_records.clone(),
            fail_applies: vec![0],
            ..Planes::default()
        };
        states.update_pool(&pool());
        let error = set_drain(&mut states, &mut planes).unwrap_err();
        let expected = match fail_records.is_empty() {
            true => OverrideError::Apply("refused"),
            false => OverrideError::RollbackFailed {
                cause: "refused",
                rollback: "no space",
            },
        };
        assert_eq!(error, expected);
        assert_eq!(planes.recorded, [Some(Override::Drain), None]);
        assert_eq!(planes.weights, [4, 2]);
        assert_eq!(planes.copied, []);
        assert_eq!(states.overrides(), &Overrides::default());
        assert_eq!(states.take_pool_changes(), []);
    }
}

#[test]
fn override_errors_describe_cause_and_failed_rollback() {
    let texts = [
        (OverrideError::Record("no space"), "no space"),
        (OverrideError::Apply("refused"), "refused"),
        (
            OverrideError::RollbackFailed {
                cause: "refused",
                rollback: "no space",
            },
            "refused; the change is recorded and could not be undone (no space): the daemon will apply it when it \
             next starts",
        ),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn ejection_of_a_server_that_goes_down_ends_without_a_trial() {
    let pool = pool();
    let mut states = ServerStates::default();
    assert_eq!(eject(&mut states, &pool, None).len(), 1);
    states.handle_health(vec![event(FIRST, server_health(State::Down))]);
    let sample = |syns, answered| Sample { syns, answered };
    let watched = [PoolSamples {
        pool: &pool,
        service: None,
        samples: vec![
            (FIRST.to_owned(), sample(12, 0)),
            (SECOND.to_owned(), sample(9, 9)),
        ],
    }];
    let keep_reason = |_: &str, _: &str, _: &mut Ejection| {};
    let now = Duration::from_secs(6);
    let (events, _) = states.handle_samples(Source::Requests, &watched, &keep_reason, now);
    assert_eq!(
        (events.len(), &events[0].transition),
        (1, &Transition::Withdrawn)
    );
    assert_eq!(states.ejected(), BTreeSet::new());
}

/// Unanswered SYNs eject the first server. `max_ejected` then does not allow slow responses to eject the second one.
#[test]
fn max_ejected_limits_the_ejections_of_all_sources_together() {
    let ejected_servers = |max_ejected, third: State, services: [&str; 2]| {
        let mut pool = pool();
        pool.servers
            .extend([server("10.0.0.3", 1), server("10.0.0.4", 1)]);
        pool.health.max_ejected = max_ejected;
        let mut states = ServerStates::default();
        states.handle_health(vec![event("10.0.0.3", server_health(third))]);
        let failures = [
            (Source::Handshakes, services[0], FIRST),
            (Source::Latencies, services[1], SECOND),
        ];
        for second in 0..5 {
            for (source, service, failing) in failures {
                let sample = |server: &Server| {
                    let answered = if server.name == failing {
                        0
                    } else {
                        3 * second
                    };
                    let syns = 3 * second;
                    (server.name.clone(), Sample { syns, answered })
                };
                let watched = [PoolSamples {
                    pool: &pool,
                    service: Some(service),
                    samples: pool.servers.iter().map(sample).collect(),
                }];
                let keep_reason = |_: &str, _: &str, _: &mut Ejection| {};
                states.handle_samples(source, &watched, &keep_reason, Duration::from_secs(second));
            }
        }
        let ejected = states.ejected().into_iter();
        ejected.map(|it| it.server).collect::<Vec<_>>()
    };
    let one_service = ["web", "web"];
    assert_eq!(ejected_servers(25, State::Up, one_service), [FIRST]);
    assert_eq!(ejected_servers(50, State::Up, one_service), [FIRST, SECOND]);
    // At most half of the three servers that are not down may be ejected.
    assert_eq!(ejected_servers(50, State::Down, one_service), [FIRST]);
    // Each service has its own ejections.
    let two_services = ["web", "dns"];
    let ejected = ejected_servers(25, State::Up, two_services);
    assert_eq!(
        BTreeSet::from_iter(ejected),
        BTreeSet::from([FIRST.to_owned(), SECOND.to_owned()])
    );
}

/// A service moves to another pool and back.
#[test]
fn ejection_ends_when_the_service_uses_a_different_pool() {
    let (pool, mut other) = (pool(), pool());
    "other".clone_into(&mut other.name);
    let mut states = ServerStates::default();
    states.handle_health(vec![
        event(FIRST, server_health(State::Up)),
        event(SECOND, server_health(State::Up)),
    ]);
    eject(&mut states, &pool, Some("web"));
    assert_eq!(effective(&states, &pool, Some("web")), [0, 2]);
    eject(&mut states, &other, Some("web"));
    assert_eq!(effective(&states, &pool, Some("web")), [4, 2]);
    let ejected = states.ejected();
    assert!(ejected.iter().all(|it| it.pool == "other"), "{ejected:?}");
}

#[test]
fn result_of_a_removed_check_is_forgotten() {
    let mut states = ServerStates::default();
    states.handle_health(vec![event(FIRST, server_health(State::Down))]);
    let mut next = ServerStates::default();
    next.adopt(states.saved_servers(), true);
    let mut pool = pool();
    pool.checks.clear();
    next.handle_configuration(std::iter::once(&pool));
    assert_eq!(next.server_health("p", FIRST), None);
}

#[test]
fn pool_below_its_quorum_serves_only_with_a_usable_server() {
    let mut pool = pool();
    pool.health.quorum = 5;
    let mut states = ServerStates::default();
    for (first, second, serves) in [
        (State::Up, State::Up, true),
        (State::Down, State::Up, true),
        (State::Down, State::Down, false),
    ] {
        states.handle_health(vec![
            event(FIRST, server_health(first)),
            event(SECOND, server_health(second)),
        ]);
        states.update_pool(&pool);
        assert_eq!(states.serves("p"), serves, "{first:?} {second:?}");
    }
}

#[test]
fn ejected_server_returns_on_trial() {
    let pool = pool();
    let mut states = ServerStates::default();
    assert_eq!(eject(&mut states, &pool, None).len(), 1);
    let ejection = states.ejection("p", FIRST, None).unwrap();
    assert_eq!(ejection.reason, "explained");
    assert_eq!(states.ejection("p", FIRST, Some("p")), None);
    assert_eq!(states.ejection("p", SECOND, None), None);
    let until = ejection.until;
    let sample = |syns, answered| Sample { syns, answered };
    let samples = vec![
        (FIRST.to_owned(), sample(12, 0)),
        (SECOND.to_owned(), sample(9, 9)),
    ];
    let watched = [PoolSamples {
        pool: &pool,
        service: None,
        samples,
    }];
    let keep_reason = |_: &str, _: &str, _: &mut Ejection| {};
    let (events, changed) = states.handle_samples(Source::Requests, &watched, &keep_reason, until);
    assert_eq!(changed, BTreeSet::from(["p".to_owned()]));
    assert_eq!(
        (events[0].server.server.as_str(), &events[0].transition),
        (FIRST, &Transition::OnTrial)
    );
    assert_eq!(
        (states.ejection("p", FIRST, None), states.ejected()),
        (None, BTreeSet::new())
    );
}

#[test]
fn server_whose_ejection_was_ended_can_be_ejected_again() {
    let pool = pool();
    for service in [None, Some("web")] {
        let mut states = ServerStates::default();
        for round in 0..2 {
            let events = eject(&mut states, &pool, service);
            assert_eq!(events.len(), 1, "{service:?} round {round}");
            states.end_ejections_except(&BTreeSet::new());
        }
    }
}

#[test]
fn sole_server_and_down_servers_are_not_ejected() {
    let ejects = |pool: &Pool, first: State| {
        let mut states = ServerStates::default();
        states.handle_health(vec![event(FIRST, server_health(first))]);
        !eject(&mut states, pool, None).is_empty()
    };
    assert!(ejects(&pool(), State::Up));
    assert!(
        !ejects(&pool(), State::Down),
        "a server that is down must not be ejected"
    );
    let mut never = pool();
    never.health.max_ejected = 0;
    assert!(!ejects(&never, State::Up));
    let mut alone = pool();
    alone.servers.pop();
    alone.health.max_ejected = 100;
    assert!(!ejects(&alone, State::Up), "the only server");
}

#[test]
fn pool_in_panic_uses_servers_that_are_down() {
    let mut pool = pool();
    pool.health.panic_threshold = Some(50);
    let mut states = ServerStates::default();
    assert_eq!(states.exceptional_state("p"), None);
    let down = |server| event(server, server_health(State::Down));
    states.handle_health(vec![down(FIRST), down(SECOND)]);
    states.update_pool(&pool);
    assert_eq!(states.exceptional_state("p"), Some(PoolState::Panic));
    assert_eq!(effective(&states, &pool, None), [4, 2]);
    let weights = states.weights(&pool, None);
    assert!(
        weights.servers.iter().all(|server| !server.down),
        "all servers must be used"
    );
}

#[test]
fn start_times_of_override_states_are_restored() {
    let mut states = ServerStates::default();
    states.handle_proxy_servers(
        [("p", FIRST), ("q", SECOND)].into_iter(),
        Duration::from_secs(5),
    );
    let restored = ServerStates::restore(
        Overrides::default(),
        SavedHealth::default(),
        states.since_times().clone(),
    );
    for (pool, server) in [("p", FIRST), ("q", SECOND)] {
        assert_eq!(restored.since(pool, server), Some(Duration::from_secs(5)));
    }
    assert_eq!(restored.since("p", SECOND), None);
}

#[test]
fn latency_changes_weights_in_one_service() {
    let percent = |server: &str, percent| BTreeMap::from([(server.to_owned(), percent)]);
    let mut pool = Pool::new("p");
    pool.adapt = Adapt::Latency;
    for (last, weight) in [(1, 1), (2, 1), (3, 2)] {
        let address = format!("10.0.0.{last}");
        let mut server = Server::new(&address, address.parse().unwrap(), None);
        server.weight = weight;
        pool.servers.push(server);
    }
    let effective = |states: &ServerStates, pool: &Pool, service: Option<&str>| {
        let weights = states.weights(pool, service).servers.into_iter();
        weights.map(|it| it.effective).collect::<Vec<_>>()
    };
    let mut states = ServerStates::default();
    states.handle_latency("web".to_owned(), percent("10.0.0.2", 35));
    assert_eq!(effective(&states, &pool, Some("web")), [100, 35, 200]);
    assert_eq!(effective(&states, &pool, Some("other")), [1, 1, 2]);
    assert_eq!(effective(&states, &pool, None), [1, 1, 2]);
    // Source hashing has 256 slots in total for all weights.
    pool.scheduler = Some(Scheduler {
        kind: SchedulerKind::Sh,
        ..Scheduler::L4_DEFAULT
    });
    assert_eq!(effective(&states, &pool, Some("web")), [64, 22, 128]);
    // The largest weight stays within the limit, and no weight becomes 0.
    pool.scheduler = None;
    pool.servers[2].weight = MAX_WEIGHT;
    assert_eq!(effective(&states, &pool, Some("web")), [1, 1, MAX_WEIGHT]);
    pool.servers[0].weight = 0;
    assert_eq!(effective(&states, &pool, Some("web")), [0, 1, MAX_WEIGHT]);
    states.handle_latency("web".to_owned(), BTreeMap::new());
    assert_eq!(effective(&states, &pool, Some("web")), [0, 1, MAX_WEIGHT]);
    states.handle_latency("web".to_owned(), percent("10.0.0.2", 35));
    pool.adapt = Adapt::None;
    assert_eq!(effective(&states, &pool, Some("web")), [0, 1, MAX_WEIGHT]);
}
