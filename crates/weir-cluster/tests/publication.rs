//! Tests publications while etcd fails: they continue, are recognized as executed, or fail after a time limit.
//!
//! Readers never see a partial publication.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_cluster::{
    AppliedConfiguration, CHUNK_BYTES, Compare, Entry, Event, GroupKey, Input, MAX_CHUNKS, Machine,
    Output, SavedState, Settings, Txn, TxnResult, Write,
};

const TTL: Duration = Duration::from_secs(10);
const CURRENT: &str = "/weir/edge/config/current";
const CHUNKS: &str = "/weir/edge/config/chunk/";
/// etcd's default for `--max-txn-ops`.
const MAX_OPERATIONS: usize = 128;
/// etcd's default for `--max-request-bytes`.
const MAX_REQUEST_BYTES: usize = 3 << 19;

fn settings(member: &str, key: Option<&GroupKey>) -> Settings {
    Settings {
        group: "edge".to_owned(),
        member: member.to_owned(),
        identity: 1,
        instance: 1,
        ttl: TTL,
        key: key.cloned(),
        agreement: false,
    }
}

fn machine(member: &str, key: Option<&GroupKey>, now: Duration) -> Machine {
    Machine::new(settings(member, key), SavedState::default(), now)
}

/// A state machine, and the store that it is connected to.
struct Fixture {
    machine: Machine,
    now: Duration,
    keys: BTreeMap<String, (Vec<u8>, i64)>,
    revision: i64,
    /// Results of publications, by request.
    published: Vec<(u64, Result<u64, String>)>,
    /// Whether the watch reports the machine's writes.
    reports_changes: bool,
}

impl Fixture {
    fn new() -> Self {
        Self::with_key(None)
    }

    fn with_key(key: Option<&GroupKey>) -> Self {
        let now = Duration::from_secs(1);
        let mut fixture = Self {
            machine: machine("lb1", key, now),
            now,
            keys: BTreeMap::new(),
            revision: 1,
            published: Vec::new(),
            reports_changes: true,
        };
        fixture.machine.handle_time(now);
        fixture.run(|_| true);
        fixture
    }

    /// Executes a transaction.
    fn execute(&mut self, txn: &Txn) -> TxnResult {
        let revision_of = |key: &str| self.keys.get(key).map_or(0, |it| it.1);
        let conditions_hold = txn.compares.iter().all(|compare| match compare {
            Compare::Revision(key, revision) => revision_of(key) == *revision,
            Compare::Exists(key) => self.keys.contains_key(key),
        });
        if !conditions_hold {
            return TxnResult::Conflict {
                found: self.entries(),
                revision: self.revision,
            };
        }
        self.revision += 1;
        for write in &txn.writes {
            match write {
                Write::Put(put) => {
                    let stored = (put.value.clone(), self.revision);
                    self.keys.insert(put.key.clone(), stored);
                }
                Write::Delete(key) => drop(self.keys.remove(key)),
            }
        }
        TxnResult::Done {
            revision: self.revision,
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |(key, (value, revision)): (&String, &(Vec<u8>, i64))| Entry {
            key: key.clone(),
            value: value.clone(),
            revision: *revision,
        };
        self.keys.iter().map(entry).collect()
    }

    /// Responds to all requests. If `arrives` returns false for a transaction, reports that there was no response, and
    /// stops.
    fn run(&mut self, mut arrives: impl FnMut(&Txn) -> bool) {
        while let Some(output) = self.machine.poll_output() {
            let input = match output {
                Output::List => Input::Listed {
                    revision: self.revision,
                    entries: self.entries(),
                },
                Output::Grant { ttl } => Input::Granted { lease: 7, ttl },
                Output::Renew { .. } => Input::Renewed,
                Output::Txn { number, txn, .. } => {
                    assert_within_limits(&txn);
                    if !arrives(&txn) {
                        let result = TxnResult::Unknown("no response".to_owned());
                        self.machine.handle(Input::Txn { number, result }, self.now);
                        return;
                    }
                    let result = self.execute(&txn);
                    self.machine.handle(Input::Txn { number, result }, self.now);
                    if !self.reports_changes {
                        continue;
                    }
                    self.watch_report()
                }
                Output::Apply { .. } => Input::Applied(Ok(())),
                Output::Stage { version, .. } => Input::Staged(version),
                Output::Published { request, result } => {
                    let result = result.map_err(|error| error.to_string());
                    self.published.push((request, result));
                    continue;
                }
                Output::Watch { .. }
                | Output::LastChanges { .. }
                | Output::PreviousStaged
                | Output::Shared { .. }
                | Output::Settle { .. }
                | Output::Settled { .. }
                | Output::Decided { .. }
                | Output::Verdicts(_)
                | Output::Save(_) => continue,
            };
            self.machine.handle(input, self.now);
        }
    }

    /// Returns a watch report that contains all keys.
    fn watch_report(&self) -> Input {
        Input::Watched {
            events: self.entries().into_iter().map(Event::Put).collect(),
        }
    }

    /// Writes a key as another director would.
    fn put(&mut self, key: &str, value: &serde_json::Value) {
        self.revision += 1;
        let stored = (value.to_string().into_bytes(), self.revision);
        self.keys.insert(key.to_owned(), stored);
    }

    fn publish(&mut self, request: u64, text: &str) {
        let publish = Input::Publish {
            request,
            text: text.to_owned(),
            guard_ms: 0,
        };
        self.machine.handle(publish, self.now);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.machine.handle_time(self.now);
    }
}

/// With a group key, a program without the key can neither restore a former configuration in etcd nor exhaust the
/// version numbers.
#[test]
fn pointer_that_was_changed_in_etcd_is_not_used() {
    const COMPLETE: &str = "/weir/edge/config/complete";
    let key = GroupKey::new(b"sixteen bytes or more").expect("create key");
    let mut fixture = Fixture::with_key(Some(&key));
    fixture.publish(1, "# first\n");
    fixture.run(|_| true);
    let first: serde_json::Value =
        serde_json::from_slice(&fixture.keys[CURRENT].0).expect("parse pointer");
    let chunks = fixture.keys.clone();
    fixture.publish(2, "# second\n");
    fixture.run(|_| true);
    let second: serde_json::Value =
        serde_json::from_slice(&fixture.keys[CURRENT].0).expect("parse pointer");
    assert_eq!(fixture.published, [(1, Ok(1)), (2, Ok(2))]);
    fixture.keys.extend(
        chunks
            .into_iter()
            .filter(|(key, _)| key.starts_with(CHUNKS)),
    );
    for (original, version, guard_ms) in [
        (&first, 3, 0),
        (&second, 3, 0),
        (&second, u64::MAX, 0),
        (&second, 3, 1),
    ] {
        let mut forged = original.clone();
        (forged["version"], forged["guard_ms"]) = (version.into(), guard_ms.into());
        fixture.put(CURRENT, &forged);
        fixture.put(COMPLETE, &forged);
        fixture.machine.handle(fixture.watch_report(), fixture.now);
        fixture.run(|_| true);
        assert_eq!(fixture.machine.status(fixture.now).version, 2, "{forged}");
    }
    // A forged member record has the highest version.
    let lb9 =
        serde_json::json!({ "version": u64::MAX, "digest": "d", "instance": 9, "identity": 9 });
    fixture.put("/weir/edge/member/lb9", &lb9);
    fixture.machine.handle(fixture.watch_report(), fixture.now);
    // The number of the forged pointer is not used, so its rejection is not reported for the new configuration.
    fixture.publish(3, "# third\n");
    fixture.run(|_| true);
    assert_eq!(fixture.published.last(), Some(&(3, Ok(4))));
    assert_eq!(fixture.machine.status(fixture.now).version, 4);
    // A version number is not reused even after the pointer was removed.
    fixture.publish(4, "# fourth\n");
    fixture.run(|txn| !writes(txn, "/weir/edge/config/turn"));
    fixture.keys.remove(CURRENT);
    fixture.wait(Duration::from_secs(1));
    fixture.run(|_| true);
    assert_eq!(fixture.machine.status(fixture.now).version, 4);
    fixture.publish(5, "# fifth\n");
    fixture.run(|_| true);
    assert_eq!(fixture.published[3..], [(4, Ok(5)), (5, Ok(6))]);
}

/// The operator replaces the group key on one director after another.
#[test]
fn pointer_with_a_different_group_key_is_kept_until_next_publication() {
    let key = GroupKey::new(b"sixteen bytes or more").expect("create key");
    let new_key = GroupKey::new(b"the next key of the group").expect("create key");
    let mut fixture = Fixture::with_key(Some(&key));
    fixture.publish(1, "# first\n");
    fixture.run(|_| true);
    fixture.wait(TTL);
    fixture.run(|_| true);
    let stored = fixture.keys[CURRENT].clone();
    let settings = settings("lb1", Some(&new_key));
    let saved = SavedState {
        applied: Some(AppliedConfiguration {
            version: 1,
            text: "# first\n".to_owned(),
            guard_ms: 0,
        }),
        ..SavedState::default()
    };
    fixture.machine = Machine::new(settings, saved, fixture.now);
    fixture.machine.handle_time(fixture.now);
    for _ in 0..30 {
        fixture.wait(Duration::from_secs(1));
        fixture.run(|_| true);
    }
    assert_eq!(fixture.keys[CURRENT], stored);
    fixture.publish(2, "# second\n");
    fixture.run(|_| true);
    assert_eq!(fixture.published, [(1, Ok(1)), (2, Ok(2))]);
    assert_eq!(fixture.machine.status(fixture.now).version, 2);
}

/// An earlier version of Weir writes pointers without a MAC. A director that has the configuration adds the MAC, after
/// which other directors apply the configuration.
#[test]
fn pointer_of_earlier_version_gets_mac() {
    let key = GroupKey::new(b"sixteen bytes or more").expect("create key");
    let mut fixture = Fixture::with_key(Some(&key));
    fixture.publish(1, "# first\n");
    fixture.run(|_| true);
    fixture.wait(TTL);
    fixture.run(|_| true);
    assert!(fixture.keys.contains_key("/weir/edge/config/complete"));
    let signed: serde_json::Value =
        serde_json::from_slice(&fixture.keys[CURRENT].0).expect("parse pointer");
    let mut unsigned = signed.clone();
    unsigned
        .as_object_mut()
        .expect("not an object")
        .remove("mac");
    assert_ne!(signed, unsigned);
    let stored = fixture.keys.clone();
    fixture.put(CURRENT, &unsigned);
    fixture.machine.handle(fixture.watch_report(), fixture.now);
    fixture.run(|_| true);
    assert_eq!(fixture.keys[CURRENT].0, stored[CURRENT].0);

    fixture.put(CURRENT, &unsigned);
    fixture.keys.remove("/weir/edge/member/lb1");
    fixture.machine = machine("lb2", Some(&key), fixture.now);
    fixture.machine.handle_time(fixture.now);
    fixture.run(|_| true);
    assert_eq!(fixture.machine.status(fixture.now).version, 0);
    fixture.put(CURRENT, &signed);
    fixture.machine.handle(fixture.watch_report(), fixture.now);
    fixture.run(|_| true);
    assert_eq!(fixture.machine.status(fixture.now).version, 1);
}

/// Asserts that etcd accepts the size of a transaction.
fn assert_within_limits(txn: &Txn) {
    let bytes = |write: &Write| match write {
        // The gateway's JSON contains keys and values in base64, plus some overhead.
        Write::Put(put) => (put.key.len() + put.value.len()).div_ceil(3) * 4 + 200,
        Write::Delete(key) => key.len() * 2 + 200,
    };
    let total: usize = txn.writes.iter().map(bytes).sum();
    assert!(
        txn.writes.len() <= MAX_OPERATIONS && txn.compares.len() <= MAX_OPERATIONS,
        "{} writes, {} conditions",
        txn.writes.len(),
        txn.compares.len()
    );
    assert!(total <= MAX_REQUEST_BYTES, "{total} bytes");
}

/// Returns whether a transaction writes a key with this prefix.
fn writes(txn: &Txn, prefix: &str) -> bool {
    let is_put = |write: &Write| matches!(write, Write::Put(put) if put.key.starts_with(prefix));
    txn.writes.iter().any(is_put)
}

/// Returns the pointer to a configuration that another director has published.
fn pointer(version: u64) -> serde_json::Value {
    serde_json::json!({
        "version": version, "digest": "d", "bytes": 1, "chunks": [], "sealed": false, "by": "lb2", "guard_ms": 0,
    })
}

/// Returns a text that consists of this many different chunks.
fn text(chunks: usize) -> String {
    let line = |number: usize| format!("# {number:013}\n");
    (0..chunks * CHUNK_BYTES / 16).map(line).collect()
}

#[test]
fn publication_continues_after_every_lost_request() {
    let requests = 4;
    for lost_index in 0..requests {
        let mut fixture = Fixture::new();
        fixture.publish(1, &text(requests - 1));
        let mut number = 0;
        fixture.run(|txn| {
            let is_config = writes(txn, CHUNKS) || writes(txn, CURRENT);
            number += usize::from(is_config);
            !(is_config && number == lost_index + 1)
        });
        // Readers see no part of the configuration, because the pointer is written last.
        assert!(!fixture.keys.contains_key(CURRENT), "request {lost_index}");
        assert_eq!(fixture.published, [], "request {lost_index}");
        fixture.wait(Duration::from_secs(1));
        let mut repeated = 0;
        fixture.run(|txn| {
            repeated += usize::from(writes(txn, CHUNKS));
            true
        });
        assert_eq!(fixture.published, [(1, Ok(1))], "request {lost_index}");
        // The machine does not resend chunks that have been written.
        assert_eq!(
            repeated,
            (requests - 1).saturating_sub(lost_index),
            "request {lost_index}"
        );
    }
}

#[test]
fn executed_publication_with_lost_response_is_recognized() {
    let mut fixture = Fixture::new();
    fixture.publish(1, &text(2));
    let mut pointer = None;
    fixture.run(|txn| {
        if writes(txn, CURRENT) {
            pointer = Some(txn.clone());
        }
        pointer.is_none()
    });
    // The transaction is executed after the director has abandoned it.
    fixture.execute(&pointer.expect("no pointer was written"));
    fixture.wait(Duration::from_secs(1));
    fixture.run(|txn| !writes(txn, CURRENT));
    assert_eq!(fixture.published, [(1, Ok(1))]);
}

#[test]
fn publication_does_not_replace_concurrent_publication_of_other_director() {
    let mut fixture = Fixture::new();
    fixture.publish(1, &text(2));
    fixture.run(|txn| !writes(txn, CURRENT));
    fixture.put(CURRENT, &pointer(1));
    fixture.wait(Duration::from_secs(1));
    fixture.run(|txn| !writes(txn, CURRENT));
    let [(1, Err(error))] = fixture.published.as_slice() else {
        panic!("{:?}", fixture.published);
    };
    assert!(error.contains("published in the meantime"), "{error}");
}

/// Until then, another member may register again with a newer configuration.
#[test]
fn lost_configuration_is_restored_after_the_time_to_live_of_a_lease() {
    let mut fixture = Fixture::new();
    let applied = AppliedConfiguration {
        version: 3,
        text: text(1),
        guard_ms: 0,
    };
    let saved = SavedState {
        applied: Some(applied),
        ..SavedState::default()
    };
    // etcd has no configuration, or an older one from a backup.
    for stored in [None, Some(pointer(1))] {
        fixture.keys.clear();
        stored.iter().for_each(|it| fixture.put(CURRENT, it));
        fixture.machine = Machine::new(settings("lb1", None), saved.clone(), fixture.now);
        fixture.wait(Duration::ZERO);
        fixture.run(|_| true);
        for (time, is_restored) in [
            (TTL - Duration::from_nanos(1), false),
            (Duration::from_nanos(1), true),
        ] {
            fixture.wait(time);
            fixture.run(|_| true);
            let current = fixture.keys.get(CURRENT);
            let current: Option<serde_json::Value> =
                current.and_then(|(value, _)| serde_json::from_slice(value).ok());
            let version = current.and_then(|it| it["version"].as_u64());
            assert_eq!(version == Some(3), is_restored, "{:?}", fixture.now);
            assert_eq!(fixture.machine.status(fixture.now).version, 3);
        }
    }
}

/// A director whose lease expired can register again within the time to live of the lease.
#[test]
fn rollout_is_stopped_if_the_director_with_the_turn_is_absent_for_the_time_to_live() {
    let mut fixture = Fixture::new();
    fixture.wait(TTL);
    fixture.run(|_| true);
    put_publication_of_other_director(&mut fixture);
    let turn = serde_json::json!({ "member": "lb2", "instance": 2, "version": 1 });
    fixture.put("/weir/edge/config/turn", &turn);
    fixture.machine.handle(fixture.watch_report(), fixture.now);
    for (time, is_stopped) in [
        (Duration::ZERO, false),
        (TTL - Duration::from_nanos(1), false),
        (Duration::from_nanos(1), true),
    ] {
        fixture.wait(time);
        fixture.run(|_| true);
        let is_written = fixture.keys.contains_key("/weir/edge/config/stopped");
        assert_eq!(is_written, is_stopped, "{:?}", fixture.now);
    }
}

/// The previous version is kept. A publication in progress writes its chunks before the pointer.
#[test]
fn unused_chunks_are_deleted_after_a_minute() {
    const TEXTS: [&str; 3] = ["# first\n", "# second\n", "# third\n"];
    let mut fixture = Fixture::new();
    fixture.wait(TTL);
    for (request, text) in (1..).zip(TEXTS) {
        fixture.publish(request, text);
        fixture.run(|_| true);
        assert_eq!(fixture.published.last(), Some(&(request, Ok(request))));
    }
    for (time, expected) in [
        (Duration::ZERO, [true; 3]),
        (Duration::from_secs(30), [true; 3]),
        (Duration::from_nanos(29_999_999_999), [true; 3]),
        (Duration::from_nanos(1), [false, true, true]),
        (Duration::from_secs(120), [false, true, true]),
    ] {
        fixture.wait(time);
        fixture.run(|_| true);
        let chunk = |text: &str| format!("{CHUNKS}{}", weir_cluster::digest(text.as_bytes()));
        let is_stored = TEXTS.map(|text| fixture.keys.contains_key(&chunk(text)));
        assert_eq!(is_stored, expected, "{:?}", fixture.now);
    }
}

/// The pointer may be missing, for example because etcd has lost its data.
#[test]
fn version_of_a_publication_is_above_those_of_all_members() {
    for (versions, expected) in [(&[][..], 1), (&[7], 8), (&[9, 7], 10)] {
        let mut fixture = Fixture::new();
        for (number, version) in (2..).zip(versions) {
            let member = serde_json::json!({
                "version": version, "digest": "", "instance": number, "identity": number
            });
            fixture.put(&format!("/weir/edge/member/lb{number}"), &member);
        }
        fixture.machine.handle(fixture.watch_report(), fixture.now);
        fixture.publish(1, &text(1));
        fixture.run(|_| true);
        assert_eq!(fixture.published, [(1, Ok(expected))], "{versions:?}");
    }
}

#[test]
fn publication_fails_after_60_seconds_without_etcd() {
    let mut fixture = Fixture::new();
    let started = fixture.now;
    fixture.publish(1, &text(2));
    fixture.run(|txn| !writes(txn, CHUNKS));
    while fixture.published.is_empty() && fixture.now < started + Duration::from_secs(120) {
        fixture.wait(Duration::from_millis(500));
        while let Some(output) = fixture.machine.poll_output() {
            match output {
                Output::List => {
                    let failed = Input::ListFailed("connection refused".to_owned());
                    fixture.machine.handle(failed, fixture.now);
                }
                Output::Published { request, result } => {
                    let result = result.map_err(|error| error.to_string());
                    fixture.published.push((request, result));
                }
                _ => {}
            }
        }
    }
    let [(1, Err(error))] = fixture.published.as_slice() else {
        panic!("{:?}", fixture.published);
    };
    assert!(error.contains("within 60 s: connection refused"), "{error}");
    assert_eq!(fixture.now - started, Duration::from_secs(60));
    // Another publication can start.
    fixture.wait(Duration::from_secs(10));
    fixture.run(|_| true);
    fixture.publish(2, &text(1));
    fixture.run(|_| true);
    assert_eq!(fixture.published.last(), Some(&(2, Ok(1))));
}

/// The machine abandons a request because it cannot renew the lease. The result arrives while a later request is in
/// flight.
#[test]
fn late_result_is_not_mistaken_for_result_of_later_request() {
    let mut fixture = Fixture::new();
    fixture.publish(1, &text(2));
    let Some(Output::Txn {
        number: late_number,
        ..
    }) = fixture.machine.poll_output()
    else {
        panic!("no chunk is written");
    };
    // The renewal is due and fails.
    fixture.wait(TTL / 2);
    fixture
        .machine
        .handle(Input::LeaseFailed("no response".to_owned()), fixture.now);
    fixture.wait(Duration::from_secs(1));
    let requests: Vec<Output> = std::iter::from_fn(|| fixture.machine.poll_output()).collect();
    assert!(requests.contains(&Output::List), "{requests:?}");
    let listed = Input::Listed {
        revision: fixture.revision,
        entries: fixture.entries(),
    };
    fixture.machine.handle(listed, fixture.now);
    let requests: Vec<Output> = std::iter::from_fn(|| fixture.machine.poll_output()).collect();
    let numbers = requests.iter().filter_map(|output| match output {
        Output::Txn { number, .. } => Some(*number),
        _ => None,
    });
    let numbers: Vec<u64> = numbers.collect();
    assert!(
        numbers.len() == 1 && numbers[0] != late_number,
        "{requests:?}"
    );
    for revision in [70, 71, 72] {
        let result = TxnResult::Done { revision };
        let input = Input::Txn {
            number: late_number,
            result,
        };
        fixture.machine.handle(input, fixture.now);
        let outputs: Vec<Output> = std::iter::from_fn(|| fixture.machine.poll_output()).collect();
        assert_eq!(outputs, [], "the later request is still in flight");
    }
    // No chunk has been written yet, and the publication continues.
    fixture.machine.handle(
        Input::Txn {
            number: numbers[0],
            result: TxnResult::Unknown("no response".to_owned()),
        },
        fixture.now,
    );
    fixture.wait(Duration::from_secs(1));
    fixture.run(|_| true);
    assert_eq!(fixture.published, [(1, Ok(1))]);
    let chunks = fixture.keys.keys().filter(|key| key.starts_with(CHUNKS));
    assert_eq!(chunks.count(), 2);
}

#[test]
fn watch_that_stops_reporting_is_replaced() {
    let mut fixture = Fixture::new();
    fixture.reports_changes = false;
    fixture.publish(1, &text(1));
    fixture.run(|_| true);
    assert_eq!(fixture.published, [(1, Ok(1))]);
    fixture.put("/weir/edge/member/lb2", &serde_json::json!({}));
    let members = |fixture: &mut Fixture, seconds: u32| {
        for _ in 0..seconds {
            fixture.wait(Duration::from_secs(1));
            fixture.run(|_| true);
        }
        fixture.machine.status(fixture.now).members.len()
    };
    assert_eq!(
        members(&mut fixture, 9),
        1,
        "the watch was replaced too early"
    );
    assert_eq!(members(&mut fixture, 3), 2, "the watch was not replaced");
}

#[test]
fn watch_that_reports_in_time_is_kept() {
    let mut fixture = Fixture::new();
    let mut disconnections = 0;
    for request in 1..=30 {
        fixture.publish(request, &text(1));
        fixture.run(|_| true);
        fixture.wait(Duration::from_secs(1));
        let link = fixture.machine.status(fixture.now).link;
        disconnections += usize::from(link != weir_cluster::Link::Connected);
    }
    assert_eq!((fixture.published.len(), disconnections), (30, 0));
}

#[test]
fn largest_configuration_stays_within_etcd_limits() {
    let mut fixture = Fixture::new();
    fixture.publish(1, &text(MAX_CHUNKS));
    fixture.run(|_| true);
    assert_eq!(fixture.published, [(1, Ok(1))]);
    let chunks = fixture.keys.keys().filter(|key| key.starts_with(CHUNKS));
    assert_eq!(chunks.count(), MAX_CHUNKS);
}

/// Writes version 1 as another director would publish it.
fn put_publication_of_other_director(fixture: &mut Fixture) {
    let text = "# of another director\n";
    let chunk = weir_cluster::digest(text.as_bytes());
    fixture.revision += 1;
    let stored = (text.as_bytes().to_vec(), fixture.revision);
    fixture.keys.insert(format!("{CHUNKS}{chunk}"), stored);
    let mut pointer = pointer(1);
    pointer["digest"] = chunk.clone().into();
    pointer["chunks"] = serde_json::json!([chunk]);
    fixture.put(CURRENT, &pointer);
}

/// An earlier version of Weir recorded the completion of a stopped rollout, so etcd contains no other configuration.
#[test]
fn director_without_configuration_applies_stopped_configuration_that_others_use() {
    for (failed, lb2_has_applied, expected) in
        [("lb3", true, 1), ("lb1", true, 0), ("lb3", false, 0)]
    {
        let mut fixture = Fixture::new();
        put_publication_of_other_director(&mut fixture);
        let current: serde_json::Value =
            serde_json::from_slice(&fixture.keys[CURRENT].0).expect("parse pointer");
        fixture.put("/weir/edge/config/complete", &current);
        let stopped = serde_json::json!({ "version": 1, "member": failed, "reason": "invalid" });
        fixture.put("/weir/edge/config/stopped", &stopped);
        let (version, digest) = match lb2_has_applied {
            true => (1, current["digest"].clone()),
            false => (0, "".into()),
        };
        let lb2 = serde_json::json!({ "version": version, "digest": digest, "instance": 2, "identity": 2 });
        fixture.put("/weir/edge/member/lb2", &lb2);
        fixture.machine.handle(fixture.watch_report(), fixture.now);
        fixture.run(|_| true);
        let version = fixture.machine.status(fixture.now).version;
        assert_eq!(version, expected, "{failed} failed, lb2: {lb2_has_applied}");
    }
}

/// The response to a transaction contains the pointer to another director's configuration; the watch reports the chunk
/// of that configuration later.
#[test]
fn director_waits_for_chunk_that_watch_has_not_reported() {
    let mut fixture = Fixture::new();
    fixture.reports_changes = false;
    put_publication_of_other_director(&mut fixture);
    fixture.publish(1, &text(1));
    fixture.run(|_| true);
    assert!(fixture.published[0].1.is_err(), "{:?}", fixture.published);
    assert!(fixture.keys.contains_key("/weir/edge/config/turn"));
    assert!(!fixture.keys.contains_key("/weir/edge/config/stopped"));
    assert_eq!(fixture.machine.status(fixture.now).version, 0);

    fixture.machine.handle(fixture.watch_report(), fixture.now);
    fixture.run(|_| true);
    assert_eq!(fixture.machine.status(fixture.now).version, 1);
    assert!(!fixture.keys.contains_key("/weir/edge/config/stopped"));
}

/// Another director has taken the turn and released it. The watch reports both before the response to a transaction
/// that found the turn taken.
#[test]
fn late_response_does_not_restore_deleted_key() {
    const TURN: &str = "/weir/edge/config/turn";
    let mut fixture = Fixture::new();
    put_publication_of_other_director(&mut fixture);
    let lb2 = serde_json::json!({ "version": 0, "digest": "", "instance": 2, "identity": 2 });
    fixture.put("/weir/edge/member/lb2", &lb2);
    fixture.machine.handle(fixture.watch_report(), fixture.now);
    let requests: Vec<Output> = std::iter::from_fn(|| fixture.machine.poll_output()).collect();
    let takes_turn = |output: &Output| match output {
        Output::Txn { number, txn, .. } if writes(txn, TURN) => Some((*number, txn.clone())),
        _ => None,
    };
    let (number, txn) = requests
        .iter()
        .find_map(takes_turn)
        .expect("director does not take the turn");

    let turn = serde_json::json!({ "member": "lb2", "instance": 2, "version": 1 });
    fixture.put(TURN, &turn);
    let report_of_taken_turn = fixture.watch_report();
    let late_result = fixture.execute(&txn);
    assert!(
        matches!(late_result, TxnResult::Conflict { .. }),
        "{late_result:?}"
    );
    fixture.machine.handle(report_of_taken_turn, fixture.now);
    fixture.keys.remove(TURN);
    fixture.revision += 1;
    let deleted = Event::Delete {
        key: TURN.to_owned(),
        revision: fixture.revision,
    };
    let events = vec![deleted];
    fixture
        .machine
        .handle(Input::Watched { events }, fixture.now);
    fixture.machine.handle(
        Input::Txn {
            number,
            result: late_result,
        },
        fixture.now,
    );
    fixture.run(|_| true);
    assert_eq!(fixture.machine.status(fixture.now).version, 1);
}
