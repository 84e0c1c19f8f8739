//! Simulates directors and etcd with seeded schedules of faults, and tests the group's invariants.
//!
//! The faults are partitions, loss of the majority, compaction, slow and lost responses, loss of data, and restarts of
//! directors. Servers fail for all directors or for one director, and directors' services become unable to serve. A
//! failed test prints its seed.
//!
//! During the faults, directors with the same version and overrides select the same servers, no director announces a
//! VIP for longer than [`MAX_ANNOUNCED`] if it cannot serve the VIP and another director announces it, and no director
//! takes a server down alone. After the faults, all directors agree.

#[path = "simulation/choice.rs"]
mod choice;
#[path = "simulation/order.rs"]
mod order;
#[path = "simulation/second_hop.rs"]
mod second_hop;
#[path = "simulation/store.rs"]
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use choice::{Choices, Inputs};
use serde_json::json;
use store::{Store, TTL};
use weir_cluster::{
    AppliedConfiguration, Compare, Event, GroupKey, HealthView, Input, Kind, Link, LocalState,
    Machine, MemberRecord, Output, RolloutState, SavedState, Settings, SharedKey, SharedState, Txn,
    TxnResult, Write,
};

const STEP: Duration = Duration::from_millis(10);
const DIRECTORS: usize = 3;
const SCHEDULES: u64 = 1000;
/// Maximum time for which other directors may use an outdated view of a director: they may have lost the connection to
/// etcd, and the lease of that director may expire later.
const VIEW_LAG: Duration = Duration::from_secs(12);
/// Maximum time for which a director announces a VIP although its service cannot serve and the director knows that
/// another director announces the VIP: a withdrawal waits 100 ms for etcd.
const MAX_ANNOUNCED: Duration = Duration::from_millis(100);
/// A server that is always up.
const GOOD: &str = "web/10.0.1.1";
/// A server that sometimes fails.
const BAD: &str = "web/10.0.1.2";

fn vip() -> IpAddr {
    [192, 0, 2, 10].into()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 33) % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A simulated director.
struct Director {
    /// `None` = the director is not running.
    machine: Option<Machine>,
    saved: SharedState,
    applied: Option<AppliedConfiguration>,
    /// The configuration being applied, and the time of completion.
    applying: Option<(Duration, AppliedConfiguration)>,
    /// Values of overrides.
    values: BTreeMap<SharedKey, u64>,
    /// The next revision that the watch reports.
    watch: Option<i64>,
    /// Whether the watch has stopped reporting. Only a new watch reports again.
    is_watch_stuck: bool,
    /// Responses in transit, each with its time of arrival.
    responses: Vec<(Duration, Input)>,
    /// Whether the director is partitioned from etcd.
    is_partitioned: bool,
    instance: u64,
    /// Whether the director's service can serve.
    serves: bool,
    /// Whether the director announces the VIP although its service cannot serve. Like a daemon, a director keeps the
    /// VIP until its state machine decides, and records the decision.
    holds_vip: bool,
    /// Time since which the director has held the VIP although it knows that another director announces it.
    redundant_since: Option<Duration>,
    verdicts: BTreeSet<String>,
    choices: Choices,
}

struct Simulation {
    random: Random,
    store: Store,
    directors: Vec<Director>,
    now: Duration,
    /// Whether the store may lose its data.
    loses_data: bool,
    /// Whether responses are no longer lost.
    is_healed: bool,
    /// Time at which an operator set each value.
    set_at: BTreeMap<u64, Duration>,
    /// Time at which each value was first written to the store.
    written_at: BTreeMap<u64, Duration>,
    counter: u64,
    /// Number of directors that failed to apply each version.
    failures: BTreeMap<u64, usize>,
    /// Number of requests to publish.
    requests: u64,
    /// Text of each applied version.
    texts: BTreeMap<u64, String>,
    /// The servers that each version selects with each set of overrides.
    tables: BTreeMap<(u64, BTreeMap<SharedKey, u64>), Vec<IpAddr>>,
    bad_is_down: bool,
    /// The director whose checks report the good server down, if any, and when that last changed.
    faulty_checks: (Option<usize>, Duration),
    key: Option<GroupKey>,
}

fn key(number: u64) -> SharedKey {
    SharedKey {
        kind: Kind::Override,
        pool: "web".to_owned(),
        server: format!("10.0.0.{number}"),
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let director = |_| Director {
            machine: None,
            saved: SharedState::default(),
            applied: None,
            applying: None,
            values: BTreeMap::new(),
            watch: None,
            is_watch_stuck: false,
            responses: Vec::new(),
            is_partitioned: false,
            instance: 0,
            serves: true,
            holds_vip: false,
            redundant_since: None,
            verdicts: BTreeSet::new(),
            choices: Choices::default(),
        };
        let mut simulation = Self {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            store: Store {
                has_majority: true,
                ..Store::default()
            },
            directors: (0..DIRECTORS).map(director).collect(),
            now: Duration::ZERO,
            loses_data: false,
            is_healed: false,
            set_at: BTreeMap::new(),
            written_at: BTreeMap::new(),
            counter: 0,
            failures: BTreeMap::new(),
            requests: 0,
            texts: BTreeMap::new(),
            tables: BTreeMap::new(),
            bad_is_down: false,
            faulty_checks: (None, Duration::ZERO),
            // Every fourth group has a key.
            key: seed
                .is_multiple_of(4)
                .then(|| GroupKey::new(b"sixteen bytes or more").expect("a key")),
        };
        (0..DIRECTORS).for_each(|n| simulation.start(n));
        simulation
    }

    fn start(&mut self, n: usize) {
        let instance = self.random.next();
        let has_rebooted = self.random.chance(50);
        let director = &mut self.directors[n];
        if has_rebooted {
            director.choices = Choices::default();
        }
        director.instance = instance;
        director.watch = None;
        director.responses.clear();
        director.applying = None;
        let settings = Settings {
            group: "edge".to_owned(),
            member: format!("lb{n}"),
            identity: n as u64 + 1,
            instance,
            ttl: TTL,
            key: self.key.clone(),
            agreement: true,
        };
        let saved_state = SavedState {
            applied: director.applied.clone(),
            shared: director.saved.clone(),
            held_vips: director.holds_vip.then(vip).into_iter().collect(),
            has_tables: !has_rebooted,
        };
        director.machine = Some(Machine::new(settings, saved_state, self.now));
        director.verdicts = BTreeSet::new();
        self.report(n);
    }

    /// Returns the servers that a director's own checks report down.
    fn failed_checks(&self, n: usize) -> impl Iterator<Item = String> + use<> {
        let has_faulty_checks = self.faulty_checks.0 == Some(n);
        let views = [(GOOD, has_faulty_checks), (BAD, self.bad_is_down)];
        let down = views.into_iter().filter(|(_, is_down)| *is_down);
        down.map(|(server, _)| server.to_owned())
    }

    /// Passes the results of a director's own checks to its state machine.
    fn report(&mut self, n: usize) {
        let down = self.failed_checks(n);
        let down: BTreeMap<String, String> =
            down.map(|server| (server, "refused".to_owned())).collect();
        let director = &mut self.directors[n];
        let local_state = LocalState {
            record: MemberRecord::default(),
            vips: BTreeMap::from([(vip(), director.serves)]),
            health: HealthView {
                reaches: down.len() < [GOOD, BAD].len(),
                down,
            },
            // Only the last director synchronizes flows.
            applies_with_others: n + 1 < DIRECTORS,
            stages_versions: true,
        };
        if let Some(machine) = &mut director.machine {
            machine.handle(Input::LocalState(Box::new(local_state)), self.now);
        }
    }

    fn change_health(&mut self, n: usize) {
        match self.random.below(4) {
            0 => self.bad_is_down = !self.bad_is_down,
            1 => {
                let director = &mut self.directors[n];
                director.holds_vip = director.serves && director.machine.is_some();
                director.serves = !director.serves;
            }
            _ => match self.faulty_checks {
                (Some(_), _) => self.faulty_checks = (None, self.now),
                (None, since) if self.now > since + VIEW_LAG => {
                    self.faulty_checks = (Some(n), self.now);
                }
                (None, _) => {}
            },
        }
        (0..DIRECTORS).for_each(|n| self.report(n));
    }

    fn change_override(&mut self, n: usize) {
        self.counter += 1;
        let (value, key) = (self.counter, key(self.random.below(3)));
        let now = self.now;
        self.set_at.insert(value, now);
        let director = &mut self.directors[n];
        if let Some(machine) = &mut director.machine {
            director.values.insert(key.clone(), value);
            let value = json!({ "weight": value });
            machine.handle(Input::Changed { key, value }, now);
        }
        // The daemon saves an accepted change to disk.
        self.drain(n);
    }

    fn publish(&mut self, n: usize, is_good: bool) {
        self.counter += 1;
        self.requests += 1;
        let text = format!("{} {}", if is_good { "good" } else { "bad" }, self.counter);
        let guard_ms = if self.random.chance(50) { 0 } else { 1000 };
        let (request, now) = (self.requests, self.now);
        if let Some(machine) = &mut self.directors[n].machine {
            let input = Input::Publish {
                request,
                text,
                guard_ms,
            };
            machine.handle(input, now);
        }
    }

    /// Causes a random fault or operator action.
    fn cause_event(&mut self) {
        let n = usize::try_from(self.random.below(DIRECTORS as u64)).expect("index fits");
        match self.random.below(19) {
            0 | 1 => self.directors[n].is_partitioned = true,
            2 | 3 => self.directors[n].is_partitioned = false,
            4 => self.store.has_majority = false,
            5 | 6 => self.store.has_majority = true,
            7 => {
                // Compact all revisions except the last.
                let revision = self.store.revision;
                self.store
                    .history
                    .retain(|(event_revision, _)| *event_revision >= revision);
                self.store.compacted = revision;
            }
            8 => self.directors[n].machine = None,
            9 => {
                if self.directors[n].machine.is_none() {
                    self.start(n);
                }
            }
            10 if self.loses_data => self.store.wipe(),
            11 => self.publish(n, true),
            12 => self.publish(n, false),
            13..=15 => self.change_health(n),
            16 => self.directors[n].is_watch_stuck = true,
            _ => self.change_override(n),
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        self.store.expire(self.now);
        for n in 0..DIRECTORS {
            self.deliver(n);
            self.report_changes(n);
            self.finish(n);
            let now = self.now;
            if let Some(machine) = &mut self.directors[n].machine
                && machine.next_deadline(now - STEP) <= now
            {
                machine.handle_time(now);
            }
            self.drain(n);
            self.check_choice(n);
            self.check_announcement(n);
        }
    }

    /// Asserts that a director selects the same servers as all others with the same version and overrides. If a server
    /// is down only for this director, the director skips the server's entries.
    fn check_choice(&mut self, n: usize) {
        let checks = self.failed_checks(n);
        let director = &mut self.directors[n];
        let (Some(applied), Some(_)) = (&director.applied, &director.machine) else {
            return;
        };
        let (text, values) = (&applied.text, &director.values);
        let down = checks.chain(director.verdicts.iter().cloned()).collect();
        if director.choices.is_current(text, values, &down) {
            return;
        }
        let agreed = director.choices.update(Inputs {
            text: text.clone(),
            values: values.clone(),
            down,
        });
        let version = (applied.version, director.values.clone());
        let first = self.tables.entry(version).or_insert_with(|| agreed.clone());
        assert!(
            self.loses_data || *first == agreed,
            "lb{n} selects different servers with version {}",
            applied.version
        );
    }

    /// Asserts that a director that cannot serve a VIP does not announce it for longer than permitted.
    fn check_announcement(&mut self, n: usize) {
        let now = self.now;
        let director = &mut self.directors[n];
        let is_redundant = match &director.machine {
            Some(machine) if director.holds_vip && !director.serves => {
                let members = machine.status(now).members;
                let mut other_members = members.iter().filter(|it| it.name != format!("lb{n}"));
                other_members.any(|it| it.absent_since.is_none() && it.announces.contains(&vip()))
            }
            _ => false,
        };
        if !is_redundant {
            director.redundant_since = None;
            return;
        }
        let since = *director.redundant_since.get_or_insert(now);
        assert!(
            now - since <= MAX_ANNOUNCED,
            "lb{n} has announced the VIP needlessly since {since:?}; now: {now:?}"
        );
    }

    /// Delivers the responses that have arrived.
    fn deliver(&mut self, n: usize) {
        let now = self.now;
        let director = &mut self.directors[n];
        let Some(machine) = &mut director.machine else {
            return;
        };
        let (due, pending) = std::mem::take(&mut director.responses)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        director.responses = pending;
        let due: Vec<(Duration, Input)> = due;
        for (_, input) in due {
            machine.handle(input, now);
        }
    }

    /// Reports changes to a director through its watch.
    fn report_changes(&mut self, n: usize) {
        let director = &mut self.directors[n];
        let (Some(first_revision), Some(machine)) = (director.watch, &mut director.machine) else {
            return;
        };
        let now = self.now;
        let reason = "compacted".to_owned();
        if first_revision < self.store.compacted || first_revision > self.store.revision + 1 {
            director.watch = None;
            let input = Input::WatchEnded {
                is_compacted: true,
                reason,
            };
            machine.handle(input, now);
            return;
        }
        // A partitioned or stuck watch reports nothing.
        if director.is_partitioned
            || director.is_watch_stuck
            || !self.store.has_majority
            || self.random.chance(50)
        {
            return;
        }
        let events = self
            .store
            .history
            .iter()
            .filter(|(event_revision, _)| *event_revision >= first_revision);
        let events: Vec<Event> = events.map(|(_, event)| event.clone()).collect();
        let revision = self.store.revision;
        director.watch = Some(revision + 1);
        if !events.is_empty() {
            machine.handle(Input::Watched { events }, now);
        }
    }

    /// Completes the application of a configuration when it is due.
    fn finish(&mut self, n: usize) {
        let now = self.now;
        let director = &mut self.directors[n];
        let Some(machine) = &mut director.machine else {
            return;
        };
        let Some((_, applied)) = director.applying.take_if(|(time, _)| *time <= now) else {
            return;
        };
        let (version, text) = (applied.version, &applied.text);
        let result = match text.starts_with("good") {
            true => {
                let previous = director.applied.as_ref().map_or(0, |it| it.version);
                assert!(version >= previous, "version {version} after {previous}");
                // Directors with the same version must have the same configuration, because it determines their tables.
                let first_text = self.texts.entry(version).or_insert_with(|| text.clone());
                assert!(
                    self.loses_data || first_text == text,
                    "version {version}: {first_text} and {text}"
                );
                director.applied = Some(applied);
                Ok(())
            }
            false => {
                *self.failures.entry(version).or_default() += 1;
                Err("a server is down".to_owned())
            }
        };
        machine.handle(Input::Applied(result), now);
    }

    fn drain(&mut self, n: usize) {
        while let Some(machine) = &mut self.directors[n].machine
            && let Some(output) = machine.poll_output()
        {
            self.execute(n, output);
        }
    }

    fn execute(&mut self, n: usize, output: Output) {
        match output {
            Output::Apply {
                version,
                text,
                guard_ms,
                ..
            } => {
                let at = self.now + Duration::from_millis(self.random.below(500));
                let applied = AppliedConfiguration {
                    version,
                    text,
                    guard_ms,
                };
                self.directors[n].applying = Some((at, applied));
            }
            Output::Stage { version, .. } => {
                let now = self.now;
                if let Some(machine) = &mut self.directors[n].machine {
                    machine.handle(Input::Staged(version), now);
                }
            }
            Output::Shared { key, value } => {
                let value = value["weight"].as_u64().expect("value has a weight");
                self.directors[n].values.insert(key, value);
            }
            Output::Settle { revision } => {
                let now = self.now;
                if let Some(machine) = &mut self.directors[n].machine {
                    machine.handle(Input::Settled(revision), now);
                }
            }
            Output::Settled { .. } => {}
            Output::Save(state) => self.directors[n].saved = state,
            Output::Watch { from } => {
                self.directors[n].watch = Some(from);
                self.directors[n].is_watch_stuck = false;
            }
            Output::List | Output::Grant { .. } | Output::Renew { .. } | Output::Txn { .. } => {
                self.request(n, output)
            }
            Output::Decided { held, withdrawn } => {
                let director = &mut self.directors[n];
                let is_kept = director.holds_vip && !withdrawn.contains(&vip());
                director.holds_vip = held.contains(&vip()) || is_kept;
            }
            Output::Verdicts(verdicts) => {
                // The good server is down for at most one director at a time, so there is never a majority.
                assert!(!verdicts.contains_key(GOOD), "lb{n}: {verdicts:?}");
                self.directors[n].verdicts = verdicts.into_keys().collect();
            }
            Output::Published { .. } | Output::LastChanges { .. } | Output::PreviousStaged => {}
        }
    }

    /// Handles a request to etcd. The response is delayed or replaced with an error.
    fn request(&mut self, n: usize, output: Output) {
        let is_unreachable = self.directors[n].is_partitioned || !self.store.has_majority;
        let loses_response = !self.is_healed && self.random.chance(2);
        let response = match (is_unreachable, &output) {
            (true, _) => None,
            (false, Output::List) => {
                let keys = self.store.keys.keys();
                Some(Input::Listed {
                    revision: self.store.revision,
                    entries: keys.filter_map(|key| self.store.entry(key)).collect(),
                })
            }
            (false, Output::Grant { .. }) => {
                self.store.next_lease += 1;
                let lease = self.store.next_lease;
                self.store.leases.insert(lease, self.now + TTL);
                Some(Input::Granted { lease, ttl: TTL })
            }
            (false, Output::Renew { lease }) => Some(match self.store.leases.get_mut(lease) {
                Some(expiry) => {
                    *expiry = self.now + TTL;
                    Input::Renewed
                }
                None => Input::LeaseEnded,
            }),
            (false, Output::Txn { number, lease, txn }) => {
                let result = self.store.txn(txn, *lease);
                if matches!(result, TxnResult::Done { .. }) {
                    self.check_writes(txn);
                }
                let number = *number;
                Some(Input::Txn { number, result })
            }
            _ => None,
        };
        let reason = "no response".to_owned();
        let failed = match output {
            Output::List => Input::ListFailed(reason),
            Output::Txn { number, .. } => Input::Txn {
                number,
                result: TxnResult::Unknown(reason),
            },
            _ => Input::LeaseFailed(reason),
        };
        let (delay_ms, timeout) = (self.random.below(100), Duration::from_secs(1));
        let response = match response {
            Some(response) if !loses_response => {
                (self.now + Duration::from_millis(delay_ms), response)
            }
            _ => (self.now + timeout, failed),
        };
        self.directors[n].responses.push(response);
    }

    /// Asserts that a change does not replace a value that was written after the operator made the change, and that the
    /// last director that announces the VIP does not withdraw it.
    fn check_writes(&mut self, txn: &Txn) {
        for write in &txn.writes {
            let Write::Put(put) = write else { continue };
            let is_withdrawal = put.key.contains("/serving/") && !txn.compares.is_empty();
            if is_withdrawal && !self.loses_data {
                let records = self.store.keys.iter();
                let mut records = records.filter(|(name, _)| name.contains("/serving/"));
                let is_announced = records.any(|(_, it)| it.value != b"[]");
                assert!(is_announced, "{} withdraws the last route", put.key);
            }
            if !put.key.contains("/override/") {
                continue;
            }
            let value: serde_json::Value = serde_json::from_slice(&put.value).expect("JSON");
            let value = value["weight"].as_u64().expect("value has a weight");
            self.written_at.entry(value).or_insert(self.now);
            let compare = txn.compares.first().expect("transaction has a condition");
            let Compare::Revision(_, base) = compare else {
                panic!("{txn:?}")
            };
            let history = self.store.history.iter();
            let mut previous = history.filter(|(event_revision, event)| {
                event_revision == base && matches!(event, Event::Put(entry) if entry.key == put.key)
            });
            if let Some((_, Event::Put(previous))) = previous.next() {
                let previous: serde_json::Value =
                    serde_json::from_slice(&previous.value).expect("JSON");
                let previous = previous["weight"].as_u64().expect("value has a weight");
                assert!(
                    self.loses_data || self.written_at[&previous] <= self.set_at[&value],
                    "{previous} was written at {:?}, {value} was set at {:?}",
                    self.written_at[&previous],
                    self.set_at[&value]
                );
            }
        }
    }

    fn heal(&mut self) {
        self.is_healed = true;
        self.store.has_majority = true;
        for n in 0..DIRECTORS {
            self.directors[n].is_partitioned = false;
            if self.directors[n].machine.is_none() {
                self.start(n);
            }
        }
    }

    fn run_for(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.step();
        }
    }

    /// Asserts that all directors are connected and have the same state.
    fn assert_agreed(&self) {
        let status: Vec<_> = self
            .directors
            .iter()
            .map(|it| it.machine.as_ref().expect("director runs").status(self.now))
            .collect();
        for (n, view) in status.iter().enumerate() {
            assert_eq!(view.link, Link::Connected, "lb{n}");
            assert_eq!(view.refused, None);
            assert_eq!(view.pending, 0, "lb{n}");
            let present_members = view.members.iter().filter(|it| it.absent_since.is_none());
            assert_eq!(
                present_members.count(),
                DIRECTORS,
                "lb{n}: {:?}",
                view.members
            );
            assert_eq!(view.rollout, RolloutState::Complete, "lb{n}: {view:?}");
            assert_eq!(
                (view.version, &view.digest),
                (status[0].version, &status[0].digest)
            );
            assert_eq!(self.directors[n].values, self.directors[0].values, "lb{n}");
            assert_eq!(
                self.directors[n].applied, self.directors[0].applied,
                "lb{n}"
            );
            let bad: BTreeSet<String> = [BAD.to_owned()].into();
            let agreed = if self.bad_is_down {
                bad
            } else {
                BTreeSet::new()
            };
            assert_eq!(self.directors[n].verdicts, agreed, "lb{n}");
        }
        self.assert_announced();
    }

    /// Asserts that a director that cannot serve announces the VIP only if no other director does.
    fn assert_announced(&self) {
        let announces = |it: &&Director| it.serves || it.holds_vip;
        let announcers = self.directors.iter().filter(announces).count();
        let held = self
            .directors
            .iter()
            .filter(|it| !it.serves && it.holds_vip);
        assert!(
            held.count() == 0 || announcers == 1,
            "a director holds the VIP although {announcers} directors announce it"
        );
    }
}

/// Runs a schedule of faults, ends the faults, and asserts that the directors then agree.
fn run_schedule(seed: u64, loses_data: bool) {
    let mut simulation = Simulation::new(seed);
    simulation.loses_data = loses_data;
    simulation.run_for(3);
    simulation.publish(0, true);
    simulation.run_for(5);
    for _ in 0..40 {
        simulation.cause_event();
        let pause = simulation.random.below(60);
        (0..pause).for_each(|_| simulation.step());
    }
    simulation.heal();
    simulation.run_for(20);
    // The next publication replaces a stopped rollout.
    for n in 0..DIRECTORS {
        simulation.publish(n, true);
        simulation.run_for(10);
    }
    // A director with nothing to write detects a stuck watch only after its next routine write.
    simulation.run_for(30);
    simulation.assert_agreed();
    if !loses_data {
        let max = simulation
            .failures
            .values()
            .copied()
            .max()
            .unwrap_or_default();
        assert!(max <= 1, "a bad configuration failed on {max} directors");
    }
}

fn run_schedules(loses_data: bool, seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run_schedule(seed, loses_data));
        assert!(outcome.is_ok(), "seed {seed}, loses data: {loses_data}");
    }
}

#[test]
fn directors_agree_after_any_schedule_of_faults() {
    run_schedules(false, 1..=SCHEDULES / 40);
}

#[test]
fn directors_agree_after_schedules_that_lose_the_data() {
    run_schedules(true, 1..=SCHEDULES / 40);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the number of schedules is an option of the test"
)]
fn directors_agree_soak() {
    if std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    for loses_data in [false, true] {
        run_schedules(loses_data, 1..=SCHEDULES / 2);
    }
}
