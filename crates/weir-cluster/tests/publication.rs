//! Publications while etcd fails: they continue, are recognized, or fail after a limit, and never exist by halves.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_cluster::{
    CHUNK_BYTES, CHUNKS_MAX, Compare, Entry, Input, Machine, Output, Settings, SharedState, Txn,
    TxnResult, Write,
};

const TTL: Duration = Duration::from_secs(10);
const CURRENT: &str = "/weir/edge/config/current";
const CHUNKS: &str = "/weir/edge/config/chunk/";
/// etcd's defaults: `--max-txn-ops` and `--max-request-bytes`.
const OPERATIONS_MAX: usize = 128;
const REQUEST_BYTES_MAX: usize = 3 << 19;

/// A store, and a machine that is connected to it.
struct Rig {
    machine: Machine,
    now: Duration,
    keys: BTreeMap<String, (Vec<u8>, i64)>,
    revision: i64,
    /// The end of publications.
    published: Vec<(u64, Result<u64, String>)>,
}

impl Rig {
    fn new() -> Self {
        let settings = Settings {
            group: "edge".to_owned(),
            member: "lb1".to_owned(),
            identity: 1,
            instance: 1,
            ttl: TTL,
            key: None,
            agreement: false,
        };
        let now = Duration::from_secs(1);
        let mut rig = Self {
            machine: Machine::new(settings, None, SharedState::default(), now),
            now,
            keys: BTreeMap::new(),
            revision: 1,
            published: Vec::new(),
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
                Output::Txn { txn, .. } => {
                    assert_within_limits(&txn);
                    if !arrives(&txn) {
                        let lost = TxnResult::Unknown("no answer".to_owned());
                        self.machine.handle(Input::Txn(lost), self.now);
                        return;
                    }
                    Input::Txn(self.execute(&txn))
                }
                Output::Apply { .. } => Input::Applied(Ok(())),
                Output::Published { request, result } => {
                    let result = result.map_err(|error| error.to_string());
                    self.published.push((request, result));
                    continue;
                }
                Output::Watch { .. }
                | Output::Shared { .. }
                | Output::Held(_)
                | Output::Verdicts(_)
                | Output::Save(_) => continue,
            };
            self.machine.handle(input, self.now);
        }
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
    let (key, value) = (CURRENT.to_owned(), rig.keys.len());
    let other = serde_json::json!({
        "version": 1, "digest": format!("{value}"), "bytes": 1, "chunks": [], "sealed": false, "by": "lb2",
        "guard_ms": 0,
    });
    rig.revision += 1;
    let (value, revision) = (other.to_string().into_bytes(), rig.revision);
    rig.keys.insert(key, (value, revision));
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

#[test]
fn largest_configuration_stays_within_limits_of_etcd() {
    let mut rig = Rig::new();
    rig.publish(1, &text(CHUNKS_MAX));
    rig.run(|_| true);
    assert_eq!(rig.published, [(1, Ok(1))]);
    let chunks = rig.keys.keys().filter(|key| key.starts_with(CHUNKS));
    assert_eq!(chunks.count(), CHUNKS_MAX);
}
