//! Publications while etcd fails: they continue, are recognized, or fail after a limit, and never exist by halves.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_cluster::{
    CHUNK_BYTES, CHUNKS_MAX, Compare, Entry, Event, GroupKey, Input, Machine, Output, Settings,
    SharedState, Txn, TxnResult, Write,
};

const TTL: Duration = Duration::from_secs(10);
const CURRENT: &str = "/weir/edge/config/current";
const CHUNKS: &str = "/weir/edge/config/chunk/";
/// etcd's defaults: `--max-txn-ops` and `--max-request-bytes`.
const OPERATIONS_MAX: usize = 128;
const REQUEST_BYTES_MAX: usize = 3 << 19;

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
    Machine::new(settings(member, key), None, SharedState::default(), now)
}

/// A store, and a machine that is connected to it.
struct Rig {
    machine: Machine,
    now: Duration,
    keys: BTreeMap<String, (Vec<u8>, i64)>,
    revision: i64,
    /// The end of publications.
    published: Vec<(u64, Result<u64, String>)>,
    /// Whether the watch reports changes.
    reports_changes: bool,
}

impl Rig {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(key: Option<&GroupKey>) -> Self {
        let now = Duration::from_secs(1);
        let mut rig = Self {
            machine: machine("lb1", key, now),
            now,
            keys: BTreeMap::new(),
            revision: 1,
            published: Vec::new(),
            reports_changes: true,
        };
        rig.machine.handle_time(now);
        rig.run(|_| true);
        rig
    }

    fn execute(&mut self, txn: &Txn) -> TxnResult {
        let revision_of = |key: &str| self.keys.get(key).map_or(0, |it| it.1);
        let holds = txn.compares.iter().all(|compare| match compare {
            Compare::Revision(key, revision) => revision_of(key) == *revision,
            Compare::Exists(key) => self.keys.contains_key(key),
        });
        if !holds {
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

    /// Answers all requests. A transaction that `arrives` rejects is not answered, and ends the run.
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
                        let result = TxnResult::Unknown("no answer".to_owned());
                        self.machine.handle(Input::Txn { number, result }, self.now);
                        return;
                    }
                    let result = self.execute(&txn);
                    self.machine.handle(Input::Txn { number, result }, self.now);
                    if !self.reports_changes {
                        continue;
                    }
                    self.watched()
                }
                Output::Apply { .. } => Input::Applied(Ok(())),
                Output::Published { request, result } => {
                    let result = result.map_err(|error| error.to_string());
                    self.published.push((request, result));
                    continue;
                }
                Output::Watch { .. }
                | Output::Shared { .. }
                | Output::Settle { .. }
                | Output::Settled { .. }
                | Output::Held(_)
                | Output::Verdicts(_)
                | Output::Save(_) => continue,
            };
            self.machine.handle(input, self.now);
        }
    }

    /// The watch reports all changes.
    fn watched(&self) -> Input {
        Input::Watched {
            events: self.entries().into_iter().map(Event::Put).collect(),
        }
    }

    /// Another director writes a key.
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

/// With a group key, who can write to etcd neither returns to a former configuration nor uses up the versions.
#[test]
fn pointer_that_was_changed_in_etcd_is_not_used() {
    const COMPLETE: &str = "/weir/edge/config/complete";
    let key = GroupKey::new(b"sixteen bytes or more").expect("a key");
    let mut rig = Rig::with(Some(&key));
    rig.publish(1, "# first\n");
    rig.run(|_| true);
    let first: serde_json::Value = serde_json::from_slice(&rig.keys[CURRENT].0).expect("a pointer");
    let chunks = rig.keys.clone();
    rig.publish(2, "# second\n");
    rig.run(|_| true);
    let second: serde_json::Value =
        serde_json::from_slice(&rig.keys[CURRENT].0).expect("a pointer");
    assert_eq!(rig.published, [(1, Ok(1)), (2, Ok(2))]);
    rig.keys.extend(
        chunks
            .into_iter()
            .filter(|(key, _)| key.starts_with(CHUNKS)),
    );
    for (from, version, guard_ms) in [
        (&first, 3, 0),
        (&second, 3, 0),
        (&second, u64::MAX, 0),
        (&second, 3, 1),
    ] {
        let mut forged = from.clone();
        (forged["version"], forged["guard_ms"]) = (version.into(), guard_ms.into());
        rig.put(CURRENT, &forged);
        rig.put(COMPLETE, &forged);
        rig.machine.handle(rig.watched(), rig.now);
        rig.run(|_| true);
        assert_eq!(rig.machine.status(rig.now).version, 2, "{forged}");
    }
    // A made-up member has the highest version.
    let lb9 =
        serde_json::json!({ "version": u64::MAX, "digest": "d", "instance": 9, "identity": 9 });
    rig.put("/weir/edge/member/lb9", &lb9);
    rig.machine.handle(rig.watched(), rig.now);
    rig.publish(3, "# third\n");
    rig.run(|_| true);
    assert_eq!(rig.published.last(), Some(&(3, Ok(3))));
    assert_eq!(rig.machine.status(rig.now).version, 3);
    // The number of a version is not used again, although the pointer is gone.
    rig.publish(4, "# fourth\n");
    rig.run(|txn| !writes(txn, "/weir/edge/config/turn"));
    rig.keys.remove(CURRENT);
    rig.wait(Duration::from_secs(1));
    rig.run(|_| true);
    assert_eq!(rig.machine.status(rig.now).version, 3);
    rig.publish(5, "# fifth\n");
    rig.run(|_| true);
    assert_eq!(rig.published[3..], [(4, Ok(4)), (5, Ok(5))]);
}

/// While the group key is replaced on one director after the other, none replaces the pointer of the others.
#[test]
fn pointer_of_another_group_key_stays_until_the_next_publication() {
    let key = GroupKey::new(b"sixteen bytes or more").expect("a key");
    let new_key = GroupKey::new(b"the next key of the group").expect("a key");
    let mut rig = Rig::with(Some(&key));
    rig.publish(1, "# first\n");
    rig.run(|_| true);
    rig.wait(TTL);
    rig.run(|_| true);
    let stored = rig.keys[CURRENT].clone();
    let settings = settings("lb1", Some(&new_key));
    let applied = Some((1, "# first\n".to_owned()));
    rig.machine = Machine::new(settings, applied, SharedState::default(), rig.now);
    rig.machine.handle_time(rig.now);
    for _ in 0..30 {
        rig.wait(Duration::from_secs(1));
        rig.run(|_| true);
    }
    assert_eq!(rig.keys[CURRENT], stored);
    rig.publish(2, "# second\n");
    rig.run(|_| true);
    assert_eq!(rig.published, [(1, Ok(1)), (2, Ok(2))]);
    assert_eq!(rig.machine.status(rig.now).version, 2);
}

/// A pointer without a code, of an earlier version: a director that has the configuration adds the code, and others
/// apply it then.
#[test]
fn pointer_of_an_earlier_version_gets_a_code() {
    let key = GroupKey::new(b"sixteen bytes or more").expect("a key");
    let mut rig = Rig::with(Some(&key));
    rig.publish(1, "# first\n");
    rig.run(|_| true);
    rig.wait(TTL);
    rig.run(|_| true);
    assert!(rig.keys.contains_key("/weir/edge/config/complete"));
    let signed: serde_json::Value =
        serde_json::from_slice(&rig.keys[CURRENT].0).expect("a pointer");
    let mut unsigned = signed.clone();
    unsigned.as_object_mut().expect("an object").remove("mac");
    assert_ne!(signed, unsigned);
    let stored = rig.keys.clone();
    rig.put(CURRENT, &unsigned);
    rig.machine.handle(rig.watched(), rig.now);
    rig.run(|_| true);
    assert_eq!(rig.keys[CURRENT].0, stored[CURRENT].0);

    rig.put(CURRENT, &unsigned);
    rig.keys.remove("/weir/edge/member/lb1");
    rig.machine = machine("lb2", Some(&key), rig.now);
    rig.machine.handle_time(rig.now);
    rig.run(|_| true);
    assert_eq!(rig.machine.status(rig.now).version, 0);
    rig.put(CURRENT, &signed);
    rig.machine.handle(rig.watched(), rig.now);
    rig.run(|_| true);
    assert_eq!(rig.machine.status(rig.now).version, 1);
}

fn assert_within_limits(txn: &Txn) {
    let bytes = |write: &Write| match write {
        // The gateway's JSON has base64; a key has some more bytes around it.
        Write::Put(put) => (put.key.len() + put.value.len()).div_ceil(3) * 4 + 200,
        Write::Delete(key) => key.len() * 2 + 200,
    };
    let total: usize = txn.writes.iter().map(bytes).sum();
    assert!(
        txn.writes.len() <= OPERATIONS_MAX && txn.compares.len() <= OPERATIONS_MAX,
        "{} writes, {} conditions",
        txn.writes.len(),
        txn.compares.len()
    );
    assert!(total <= REQUEST_BYTES_MAX, "{total} bytes");
}

fn writes(txn: &Txn, prefix: &str) -> bool {
    let is_put = |write: &Write| matches!(write, Write::Put(put) if put.key.starts_with(prefix));
    txn.writes.iter().any(is_put)
}

/// What another director has published.
fn pointer(version: u64) -> serde_json::Value {
    serde_json::json!({
        "version": version, "digest": "d", "bytes": 1, "chunks": [], "sealed": false, "by": "lb2", "guard_ms": 0,
    })
}

/// A text of several different chunks.
fn text(chunks: usize) -> String {
    let line = |number: usize| format!("# {number:013}\n");
    (0..chunks * CHUNK_BYTES / 16).map(line).collect()
}

#[test]
fn publication_continues_after_every_lost_request() {
    let requests = 4;
    for lost in 0..requests {
        let mut rig = Rig::new();
        rig.publish(1, &text(requests - 1));
        let mut number = 0;
        rig.run(|txn| {
            let is_config = writes(txn, CHUNKS) || writes(txn, CURRENT);
            number += usize::from(is_config);
            !(is_config && number == lost + 1)
        });
        // Readers see nothing yet: the pointer is the last one.
        assert!(!rig.keys.contains_key(CURRENT), "request {lost}");
        assert_eq!(rig.published, [], "request {lost}");
        rig.wait(Duration::from_secs(1));
        let mut repeated = 0;
        rig.run(|txn| {
            repeated += usize::from(writes(txn, CHUNKS));
            true
        });
        assert_eq!(rig.published, [(1, Ok(1))], "request {lost}");
        // What had arrived is not sent again.
        assert_eq!(
            repeated,
            (requests - 1).saturating_sub(lost),
            "request {lost}"
        );
    }
}

#[test]
fn lost_answer_of_an_executed_publication_is_recognized() {
    let mut rig = Rig::new();
    rig.publish(1, &text(2));
    let mut pointer = None;
    rig.run(|txn| {
        if writes(txn, CURRENT) {
            pointer = Some(txn.clone());
        }
        pointer.is_none()
    });
    // It arrives after the director has given up.
    rig.execute(&pointer.expect("a pointer"));
    rig.wait(Duration::from_secs(1));
    rig.run(|txn| !writes(txn, CURRENT));
    assert_eq!(rig.published, [(1, Ok(1))]);
}

#[test]
fn publication_does_not_replace_another_one_that_was_faster() {
    let mut rig = Rig::new();
    rig.publish(1, &text(2));
    rig.run(|txn| !writes(txn, CURRENT));
    rig.put(CURRENT, &pointer(1));
    rig.wait(Duration::from_secs(1));
    rig.run(|txn| !writes(txn, CURRENT));
    let [(1, Err(error))] = rig.published.as_slice() else {
        panic!("{:?}", rig.published);
    };
    assert!(error.contains("published meanwhile"), "{error}");
}

#[test]
fn publication_fails_after_a_limit_if_etcd_does_not_return() {
    let mut rig = Rig::new();
    let begin = rig.now;
    rig.publish(1, &text(2));
    rig.run(|txn| !writes(txn, CHUNKS));
    while rig.published.is_empty() && rig.now < begin + Duration::from_secs(120) {
        rig.wait(Duration::from_millis(500));
        while let Some(output) = rig.machine.poll_output() {
            match output {
                Output::List => {
                    let failed = Input::ListFailed("connection refused".to_owned());
                    rig.machine.handle(failed, rig.now);
                }
                Output::Published { request, result } => {
                    let result = result.map_err(|error| error.to_string());
                    rig.published.push((request, result));
                }
                _ => {}
            }
        }
    }
    let [(1, Err(error))] = rig.published.as_slice() else {
        panic!("{:?}", rig.published);
    };
    assert!(error.contains("within 60 s: connection refused"), "{error}");
    assert!((59..62).contains(&(rig.now - begin).as_secs()));
    // Another one may begin.
    rig.wait(Duration::from_secs(10));
    rig.run(|_| true);
    rig.publish(2, &text(1));
    rig.run(|_| true);
    assert_eq!(rig.published.last(), Some(&(2, Ok(1))));
}

/// A request is given up because the lease cannot be renewed, and its result arrives while a later one is under way.
#[test]
fn late_result_is_not_that_of_a_later_request() {
    let mut rig = Rig::new();
    rig.publish(1, &text(2));
    let Some(Output::Txn { number: late, .. }) = rig.machine.poll_output() else {
        panic!("no chunk is written");
    };
    // The renewal is due, and fails.
    rig.wait(TTL / 2);
    rig.machine
        .handle(Input::LeaseFailed("no answer".to_owned()), rig.now);
    rig.wait(Duration::from_secs(1));
    let requests: Vec<Output> = std::iter::from_fn(|| rig.machine.poll_output()).collect();
    assert!(requests.contains(&Output::List), "{requests:?}");
    let listed = Input::Listed {
        revision: rig.revision,
        entries: rig.entries(),
    };
    rig.machine.handle(listed, rig.now);
    let requests: Vec<Output> = std::iter::from_fn(|| rig.machine.poll_output()).collect();
    let numbers = requests.iter().filter_map(|output| match output {
        Output::Txn { number, .. } => Some(*number),
        _ => None,
    });
    let numbers: Vec<u64> = numbers.collect();
    assert!(numbers.len() == 1 && numbers[0] != late, "{requests:?}");
    for revision in [70, 71, 72] {
        let result = TxnResult::Done { revision };
        let input = Input::Txn {
            number: late,
            result,
        };
        rig.machine.handle(input, rig.now);
        let outputs: Vec<Output> = std::iter::from_fn(|| rig.machine.poll_output()).collect();
        assert_eq!(outputs, [], "the later request is still under way");
    }
    // Nothing has arrived yet, and the publication continues.
    rig.machine.handle(
        Input::Txn {
            number: numbers[0],
            result: TxnResult::Unknown("no answer".to_owned()),
        },
        rig.now,
    );
    rig.wait(Duration::from_secs(1));
    rig.run(|_| true);
    assert_eq!(rig.published, [(1, Ok(1))]);
    let chunks = rig.keys.keys().filter(|key| key.starts_with(CHUNKS));
    assert_eq!(chunks.count(), 2);
}

#[test]
fn watch_that_reports_nothing_is_replaced() {
    let mut rig = Rig::new();
    rig.reports_changes = false;
    rig.publish(1, &text(1));
    rig.run(|_| true);
    assert_eq!(rig.published, [(1, Ok(1))]);
    rig.put("/weir/edge/member/lb2", &serde_json::json!({}));
    let members = |rig: &mut Rig, seconds: u32| {
        for _ in 0..seconds {
            rig.wait(Duration::from_secs(1));
            rig.run(|_| true);
        }
        rig.machine.status(rig.now).members.len()
    };
    assert_eq!(members(&mut rig, 9), 1, "the watch may only be slow");
    assert_eq!(members(&mut rig, 3), 2);
}

/// A watch that reports in time is never replaced, however much is written.
#[test]
fn watch_that_reports_is_kept() {
    let mut rig = Rig::new();
    let mut lists = 0;
    for request in 1..=30 {
        rig.publish(request, &text(1));
        rig.run(|_| true);
        rig.wait(Duration::from_secs(1));
        let at_once = rig.machine.status(rig.now).link;
        lists += usize::from(at_once != weir_cluster::Link::Connected);
    }
    assert_eq!((rig.published.len(), lists), (30, 0));
}

#[test]
fn largest_configuration_stays_within_limits_of_etcd() {
    let mut rig = Rig::new();
    rig.publish(1, &text(CHUNKS_MAX));
    rig.run(|_| true);
    assert_eq!(rig.published, [(1, Ok(1))]);
    let chunks = rig.keys.keys().filter(|key| key.starts_with(CHUNKS));
    assert_eq!(chunks.count(), CHUNKS_MAX);
}

/// Another director has published version 1.
fn put_publication_of_another(rig: &mut Rig) {
    let theirs = "# of another director\n";
    let chunk = weir_cluster::digest(theirs.as_bytes());
    rig.revision += 1;
    let stored = (theirs.as_bytes().to_vec(), rig.revision);
    rig.keys.insert(format!("{CHUNKS}{chunk}"), stored);
    let mut pointer = pointer(1);
    pointer["digest"] = chunk.clone().into();
    pointer["chunks"] = serde_json::json!([chunk]);
    rig.put(CURRENT, &pointer);
}

/// The answer to a transaction reports the pointer of another publication, and the watch its chunk later.
#[test]
fn chunk_that_the_watch_has_not_reported_is_awaited() {
    let mut rig = Rig::new();
    rig.reports_changes = false;
    put_publication_of_another(&mut rig);
    rig.publish(1, &text(1));
    rig.run(|_| true);
    assert!(rig.published[0].1.is_err(), "{:?}", rig.published);
    assert!(rig.keys.contains_key("/weir/edge/config/turn"));
    assert!(!rig.keys.contains_key("/weir/edge/config/stopped"));
    assert_eq!(rig.machine.status(rig.now).version, 0);

    rig.machine.handle(rig.watched(), rig.now);
    rig.run(|_| true);
    assert_eq!(rig.machine.status(rig.now).version, 1);
    assert!(!rig.keys.contains_key("/weir/edge/config/stopped"));
}

/// A director has taken the turn and passed it on, and the watch has reported both before the answer to a transaction
/// that found the turn taken.
#[test]
fn late_answer_does_not_restore_a_deleted_key() {
    const TURN: &str = "/weir/edge/config/turn";
    let mut rig = Rig::new();
    put_publication_of_another(&mut rig);
    let lb2 = serde_json::json!({ "version": 0, "digest": "", "instance": 2, "identity": 2 });
    rig.put("/weir/edge/member/lb2", &lb2);
    rig.machine.handle(rig.watched(), rig.now);
    let requests: Vec<Output> = std::iter::from_fn(|| rig.machine.poll_output()).collect();
    let takes_turn = |output: &Output| match output {
        Output::Txn { number, txn, .. } if writes(txn, TURN) => Some((*number, txn.clone())),
        _ => None,
    };
    let (number, txn) = requests
        .iter()
        .find_map(takes_turn)
        .expect("it takes the turn");

    let turn = serde_json::json!({ "member": "lb2", "instance": 2, "version": 1 });
    rig.put(TURN, &turn);
    let taken = rig.watched();
    let late = rig.execute(&txn);
    assert!(matches!(late, TxnResult::Conflict { .. }), "{late:?}");
    rig.machine.handle(taken, rig.now);
    rig.keys.remove(TURN);
    rig.revision += 1;
    let deleted = Event::Delete {
        key: TURN.to_owned(),
        revision: rig.revision,
    };
    let events = vec![deleted];
    rig.machine.handle(Input::Watched { events }, rig.now);
    rig.machine.handle(
        Input::Txn {
            number,
            result: late,
        },
        rig.now,
    );
    rig.run(|_| true);
    assert_eq!(rig.machine.status(rig.now).version, 1);
}
