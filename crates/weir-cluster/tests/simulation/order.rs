//! Tests the order in which directors apply a configuration.
//!
//! With a guard, they apply it one by one. Without a guard, one director applies it first, and then the others apply it
//! at the same time, except those with flow synchronization.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::store::{Store, TTL};
use weir_cluster::{
    AppliedConfiguration, Event, Input, Kind, LocalState, Machine, Output, RolloutState,
    SavedState, Settings, SharedKey,
};

pub(super) const DIRECTORS: usize = 8;

/// A version that a director had to stage.
pub(super) struct StagedVersion {
    pub(super) director: usize,
    pub(super) text: String,
    /// Whether it replaces the second hop.
    pub(super) replaces: bool,
    /// Length of [`Group::started`] at that time.
    pub(super) started: usize,
}

/// Returns the name of a request about versions and tables.
fn request_name(output: &Output) -> Option<&'static str> {
    match output {
        Output::Apply { .. } => Some("apply"),
        Output::Stage { .. } => Some("stage"),
        Output::LastChanges { .. } => Some("last changes"),
        Output::PreviousStaged => Some("previous staged"),
        _ => None,
    }
}

/// A group's directors and a store that responds immediately.
pub(super) struct Group {
    store: Store,
    machines: Vec<Option<Machine>>,
    /// The next revision that each director's watch reports.
    watches: Vec<i64>,
    /// Directors that are applying the configuration.
    pub(super) applying: BTreeSet<usize>,
    /// All directors that have started to apply the configuration, in order.
    pub(super) started: Vec<usize>,
    /// The configuration that each director has applied last or is applying.
    pub(super) applied: Vec<Option<AppliedConfiguration>>,
    /// Whether directors that start have services with a second hop.
    pub(super) stages_versions: bool,
    /// The versions that directors had to stage.
    pub(super) staged: Vec<StagedVersion>,
    /// The requests about versions and tables, with the director, in order.
    pub(super) requests: Vec<(usize, &'static str)>,
    /// The requests to stage the tables before the last changes, with the director.
    pub(super) last_changes: Vec<(usize, Output)>,
    /// Directors that do not finish staging.
    pub(super) stuck_staging: BTreeSet<usize>,
    now: Duration,
}

impl Group {
    /// Creates a group in which the directors in `synchronized` have `[sync]`.
    fn new(synchronized: &[usize]) -> Self {
        Self::with_options(synchronized, false)
    }

    /// Creates a group whose services have a second hop.
    pub(super) fn with_second_hop() -> Self {
        Self::with_options(&[], true)
    }

    fn with_options(synchronized: &[usize], stages_versions: bool) -> Self {
        let mut group = Self {
            store: Store {
                has_majority: true,
                ..Store::default()
            },
            machines: (0..DIRECTORS).map(|_| None).collect(),
            watches: vec![0; DIRECTORS],
            applying: BTreeSet::new(),
            started: Vec::new(),
            applied: vec![None; DIRECTORS],
            stages_versions,
            staged: Vec::new(),
            requests: Vec::new(),
            last_changes: Vec::new(),
            stuck_staging: BTreeSet::new(),
            now: Duration::from_secs(1),
        };
        for n in 0..DIRECTORS {
            group.start(n, 1, !synchronized.contains(&n));
        }
        group.wait(2 * TTL);
        group
    }

    pub(super) fn start(&mut self, n: usize, instance: u64, applies_with_others: bool) {
        let settings = Settings {
            group: "edge".to_owned(),
            member: format!("lb{n}"),
            identity: n as u64 + 1,
            instance,
            ttl: TTL,
            key: None,
            agreement: false,
        };
        let saved = SavedState {
            applied: self.applied[n].clone(),
            ..SavedState::default()
        };
        self.machines[n] = Some(Machine::new(settings, saved, self.now));
        self.report(n, applies_with_others, self.stages_versions);
    }

    /// Reports the local state to a director.
    pub(super) fn report(&mut self, n: usize, applies_with_others: bool, stages_versions: bool) {
        let local_state = LocalState {
            applies_with_others,
            stages_versions,
            ..LocalState::default()
        };
        self.handle(n, Input::LocalState(Box::new(local_state)));
    }

    fn publish(&mut self, guard_ms: u64) {
        self.publish_text("a configuration", guard_ms);
    }

    pub(super) fn publish_text(&mut self, text: &str, guard_ms: u64) {
        let publish = Input::Publish {
            request: 1,
            text: text.to_owned(),
            guard_ms,
        };
        self.handle(0, publish);
        self.settle();
    }

    fn handle(&mut self, n: usize, input: Input) {
        if let Some(machine) = &mut self.machines[n] {
            machine.handle(input, self.now);
        }
    }

    /// Changes the override of a server in pool `web`, as an operator of the first director.
    pub(super) fn change_override(&mut self, server: &str, value: Value) {
        let key = SharedKey {
            kind: Kind::Override,
            pool: "web".to_owned(),
            server: server.to_owned(),
        };
        self.handle(0, Input::Changed { key, value });
        self.settle();
    }

    /// Reports the result of applying the configuration on a director.
    pub(super) fn finish(&mut self, n: usize, result: Result<(), String>) {
        assert!(
            self.applying.remove(&n),
            "lb{n} is not applying a configuration"
        );
        if result.is_err() {
            self.applied[n] = None;
        }
        self.handle(n, Input::Applied(result));
        self.settle();
    }

    /// Ends a director's process. Its lease expires later.
    pub(super) fn kill(&mut self, n: usize) {
        self.machines[n] = None;
        self.applying.remove(&n);
    }

    pub(super) fn wait(&mut self, duration: Duration) {
        let (end, step) = (self.now + duration, Duration::from_millis(100));
        while self.now < end {
            self.now += step;
            self.store.expire(self.now);
            for machine in self.machines.iter_mut().flatten() {
                machine.handle_time(self.now);
            }
            self.settle();
        }
    }

    /// Executes requests and reports changes until none remain.
    fn settle(&mut self) {
        let mut is_busy = true;
        while is_busy {
            is_busy = false;
            for n in 0..DIRECTORS {
                while let Some(output) = self.machines[n].as_mut().and_then(Machine::poll_output) {
                    is_busy = true;
                    self.execute(n, output);
                }
                let (first_revision, revision) = (self.watches[n], self.store.revision);
                let history = self
                    .store
                    .history
                    .iter()
                    .filter(|(event_revision, _)| *event_revision >= first_revision);
                let events: Vec<Event> = history.map(|(_, event)| event.clone()).collect();
                if !events.is_empty() && self.machines[n].is_some() {
                    is_busy = true;
                    self.watches[n] = revision + 1;
                    self.handle(n, Input::Watched { events });
                }
            }
        }
    }

    fn record_staged(&mut self, director: usize, text: String, replaces: bool) {
        self.staged.push(StagedVersion {
            director,
            text,
            replaces,
            started: self.started.len(),
        });
    }

    fn execute(&mut self, n: usize, output: Output) {
        self.requests
            .extend(request_name(&output).map(|name| (n, name)));
        let input = match output {
            Output::List => {
                let keys = self.store.keys.keys();
                Input::Listed {
                    revision: self.store.revision,
                    entries: keys.filter_map(|key| self.store.entry(key)).collect(),
                }
            }
            Output::Watch { from } => {
                self.watches[n] = from;
                return;
            }
            Output::Grant { ttl } => {
                self.store.next_lease += 1;
                let lease = self.store.next_lease;
                self.store.leases.insert(lease, self.now + ttl);
                Input::Granted { lease, ttl }
            }
            Output::Renew { lease } => {
                self.store.leases.insert(lease, self.now + TTL);
                Input::Renewed
            }
            Output::Txn { number, lease, txn } => Input::Txn {
                number,
                result: self.store.txn(&txn, lease),
            },
            Output::Apply {
                version,
                text,
                guard_ms,
                ..
            } => {
                self.applying.insert(n);
                self.started.push(n);
                self.applied[n] = Some(AppliedConfiguration {
                    version,
                    text,
                    guard_ms,
                });
                return;
            }
            Output::Stage {
                version,
                text,
                replaces,
            } => {
                self.record_staged(n, text, replaces);
                if self.stuck_staging.contains(&n) {
                    return;
                }
                Input::Staged(version)
            }
            Output::LastChanges { .. } => {
                self.last_changes.push((n, output));
                return;
            }
            Output::Shared { .. }
            | Output::PreviousStaged
            | Output::Settle { .. }
            | Output::Settled { .. }
            | Output::Published { .. }
            | Output::Decided { .. }
            | Output::Verdicts(_)
            | Output::Save(_) => return,
        };
        self.handle(n, input);
    }

    /// Returns the state of the rollout that the first director reports.
    pub(super) fn rollout(&self) -> RolloutState {
        self.rollout_of(0)
    }

    pub(super) fn rollout_of(&self, n: usize) -> RolloutState {
        let machine = self.machines[n].as_ref().expect("director runs");
        machine.status(self.now).rollout
    }

    /// Ends all watches, so that the directors read the keys again.
    fn reconnect(&mut self) {
        for n in 0..DIRECTORS {
            let input = Input::WatchEnded {
                is_compacted: false,
                reason: "the connection was closed".to_owned(),
            };
            self.handle(n, input);
        }
        self.settle();
    }

    /// Returns the keys of directors that are applying the configuration.
    fn rollout_keys(&self) -> Vec<&String> {
        let keys = self.store.keys.keys();
        keys.filter(|it| it.contains("/config/turn") || it.contains("/config/applying/"))
            .collect()
    }

    /// Reports success for the only director that is applying the configuration.
    fn finish_one(&mut self) {
        let applying: Vec<usize> = self.applying.iter().copied().collect();
        assert_eq!(applying.len(), 1, "{applying:?}");
        self.finish(applying[0], Ok(()));
    }
}

#[test]
fn directors_take_turns_with_a_guard() {
    let mut group = Group::new(&[]);
    group.publish(5000);
    (0..DIRECTORS).for_each(|_| group.finish_one());
    group.wait(TTL);
    assert_eq!(group.rollout(), RolloutState::Complete);
    assert_eq!(group.started.len(), DIRECTORS);
}

#[test]
fn without_guard_others_apply_together_after_first_director() {
    let mut group = Group::new(&[]);
    group.publish(0);
    group.finish_one();
    assert_eq!(group.applying.len(), DIRECTORS - 1);
    let applying = group.applying.clone();
    for n in applying {
        assert_ne!(group.rollout(), RolloutState::Complete);
        group.finish(n, Ok(()));
    }
    group.wait(TTL);
    assert_eq!(group.rollout(), RolloutState::Complete);
    assert_eq!(group.started.len(), DIRECTORS);
    assert_eq!(group.rollout_keys(), Vec::<&String>::new());
}

#[test]
fn failure_of_first_director_stops_rollout() {
    let mut group = Group::new(&[]);
    group.publish(0);
    let first = group.started[0];
    group.finish(first, Err("a port is used".to_owned()));
    group.wait(3 * TTL);
    assert_eq!(group.started, [first]);
    let stopped_state = RolloutState::Stopped {
        member: format!("lb{first}"),
        reason: "a port is used".to_owned(),
    };
    assert_eq!(group.rollout(), stopped_state);
}

#[test]
fn failure_of_one_of_several_concurrent_directors_stops_rollout() {
    let mut group = Group::new(&[]);
    group.publish(0);
    group.finish_one();
    let applying: Vec<usize> = group.applying.iter().copied().collect();
    group.finish(applying[0], Err("a port is used".to_owned()));
    for n in &applying[1..] {
        group.finish(*n, Ok(()));
    }
    group.wait(3 * TTL);
    assert_eq!(group.started.len(), DIRECTORS);
    let stopped_state = RolloutState::Stopped {
        member: format!("lb{}", applying[0]),
        reason: "a port is used".to_owned(),
    };
    assert_eq!(group.rollout(), stopped_state);
    assert_eq!(group.rollout_keys(), Vec::<&String>::new());
}

#[test]
fn death_of_one_of_several_concurrent_directors_stops_rollout() {
    for restarts in [false, true] {
        let mut group = Group::new(&[]);
        group.publish(0);
        group.finish_one();
        let applying: Vec<usize> = group.applying.iter().copied().collect();
        let dead_director = applying[1];
        group.kill(dead_director);
        group.applied[dead_director] = None;
        for n in applying.into_iter().filter(|n| *n != dead_director) {
            group.finish(n, Ok(()));
        }
        if restarts {
            group.start(dead_director, 2, true);
        }
        group.wait(4 * TTL);
        let stopped_state = RolloutState::Stopped {
            member: format!("lb{dead_director}"),
            reason: "the director exited while applying the configuration".to_owned(),
        };
        assert_eq!(
            group.rollout(),
            stopped_state,
            "the dead director restarts: {restarts}"
        );
        assert_eq!(
            group.started.len(),
            DIRECTORS,
            "no director must apply the configuration again; the dead director restarts: {restarts}"
        );
    }
}

#[test]
fn directors_with_flow_synchronization_take_turns_without_a_guard() {
    let all_directors: Vec<usize> = (0..DIRECTORS).collect();
    let mut group = Group::new(&all_directors);
    group.publish(0);
    (0..DIRECTORS).for_each(|_| group.finish_one());
    group.wait(TTL);
    assert_eq!(group.rollout(), RolloutState::Complete);
}

/// For a while, only the director that has applied the configuration runs.
#[test]
fn stopped_rollout_stays_stopped_for_directors_that_return() {
    for crashes in [false, true] {
        let mut group = Group::new(&[]);
        group.publish(5000);
        group.finish_one();
        let failing = *group.applying.first().expect("a director has the turn");
        if crashes {
            group.applied[failing] = None;
        } else {
            group.finish(failing, Err("a port is used".to_owned()));
        }
        let first = group.started[0];
        for n in (0..DIRECTORS).filter(|n| *n != first) {
            group.kill(n);
        }
        group.wait(6 * TTL);
        for n in (0..DIRECTORS).filter(|n| *n != first) {
            group.start(n, 2, true);
        }
        group.wait(6 * TTL);
        assert_eq!(group.started, [first, failing], "crashes: {crashes}");
        assert!(!group.store.keys.contains_key("/weir/edge/config/complete"));
        let rollout = group.rollout_of(first);
        assert!(
            matches!(rollout, RolloutState::Stopped { .. }),
            "{rollout:?}"
        );
    }
}

#[test]
fn data_loss_does_not_resume_stopped_rollout() {
    let mut group = Group::new(&[]);
    group.publish(5000);
    group.finish_one();
    let failing = *group.applying.first().expect("a director has the turn");
    group.finish(failing, Err("a port is used".to_owned()));
    let (first, started) = (group.started[0], group.started.clone());
    group.wait(TTL);
    group.store.wipe();
    group.reconnect();
    group.wait(6 * TTL);
    assert_eq!(group.started, started);
    let rollout = group.rollout_of(first);
    assert!(
        matches!(rollout, RolloutState::Stopped { .. }),
        "{rollout:?}"
    );
}

/// All processes restart, so only the configuration on disk is known.
#[test]
fn after_data_loss_directors_take_turns_with_the_guard() {
    let mut group = Group::new(&[]);
    group.publish(5000);
    group.finish_one();
    let first = group.started[0];
    (0..DIRECTORS).for_each(|n| group.kill(n));
    (0..DIRECTORS)
        .filter(|n| *n != first)
        .for_each(|n| group.applied[n] = None);
    group.store.wipe();
    group.started.clear();
    (0..DIRECTORS).for_each(|n| group.start(n, 2, true));
    group.wait(6 * TTL);
    for _ in 0..DIRECTORS - 1 {
        group.finish_one();
    }
    group.wait(TTL);
    assert_eq!(group.rollout(), RolloutState::Complete);
}
