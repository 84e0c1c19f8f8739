//! Tests a director's decisions that depend on the connection to etcd.
//!
//! The cases are VIPs whose services fail while etcd does not respond or responds late, the renewal of the lease while
//! the keys are read, and the order of values that cross on their way between the daemon and the state machine.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;
use weir_cluster::{
    AppliedConfiguration, Entry, Event, HealthView, Input, Kind, Link, LocalState, Machine,
    MemberRecord, Output, SavedState, Settings, SharedKey, Txn, TxnResult, Write,
};

const TTL: Duration = Duration::from_secs(10);
const START: Duration = Duration::from_secs(1);

fn vip() -> IpAddr {
    [192, 0, 2, 10].into()
}

fn machine(saved: SavedState) -> Machine {
    machine_with(saved, false)
}

fn machine_with(saved: SavedState, agreement: bool) -> Machine {
    let settings = Settings {
        group: "edge".to_owned(),
        member: "lb1".to_owned(),
        identity: 1,
        instance: 1,
        ttl: TTL,
        key: None,
        agreement,
    };
    Machine::new(settings, saved, START)
}

fn local_state(vips: &[(IpAddr, bool)]) -> Input {
    Input::LocalState(Box::new(LocalState {
        vips: vips.iter().copied().collect(),
        ..LocalState::default()
    }))
}

/// Connects a state machine to a store with these keys, and grants a lease.
fn connect(machine: &mut Machine, stored: &[(&str, &str)]) {
    machine.handle_time(START);
    let entry = |(name, value): &(&str, &str)| Entry {
        key: format!("/weir/edge/{name}"),
        value: value.as_bytes().to_vec(),
        revision: 5,
    };
    let entries = stored.iter().map(entry).collect();
    let revision = 9;
    machine.handle(Input::Listed { revision, entries }, START);
    let granted = Input::Granted { lease: 7, ttl: TTL };
    machine.handle(granted, START);
}

fn outputs(machine: &mut Machine) -> Vec<Output> {
    std::iter::from_fn(|| machine.poll_output()).collect()
}

/// Returns the last decision: held and withdrawn VIPs.
fn decision(machine: &mut Machine) -> Option<(BTreeSet<IpAddr>, BTreeSet<IpAddr>)> {
    let mut outputs = outputs(machine).into_iter().rev();
    outputs.find_map(|output| match output {
        Output::Decided { held, withdrawn } => Some((held, withdrawn)),
        _ => None,
    })
}

#[test]
fn decision_about_failed_service_is_reported_while_etcd_does_not_respond() {
    let (none, this) = (BTreeSet::new(), BTreeSet::from([vip()]));
    let other_announces = [("member/lb2", "{}"), ("serving/lb2", "[\"192.0.2.10\"]")];
    for (stored, decided) in [
        (&other_announces[..], (none.clone(), this.clone())),
        (&[], (this, none)),
    ] {
        let mut machine = machine(SavedState::default());
        connect(&mut machine, stored);
        machine.handle(local_state(&[(vip(), true)]), START);
        let end_input = Input::WatchEnded {
            is_compacted: false,
            reason: "no response".to_owned(),
        };
        machine.handle(end_input, START);
        outputs(&mut machine);
        machine.handle(local_state(&[(vip(), false)]), START);
        assert_eq!(decision(&mut machine), Some(decided), "{stored:?}");
    }
}

#[test]
fn vip_that_was_held_before_a_restart_is_still_held() {
    let mut machine = machine(SavedState {
        held_vips: BTreeSet::from([vip()]),
        ..SavedState::default()
    });
    // The daemon reports its VIPs after it has started.
    machine.handle(Input::LocalState(Box::default()), START);
    connect(&mut machine, &[]);
    machine.handle(local_state(&[(vip(), false)]), START);
    let held = BTreeSet::from([vip()]);
    assert_eq!(decision(&mut machine), Some((held, BTreeSet::new())));
    assert_eq!(machine.status(START).held, BTreeSet::from([vip()]));
}

#[test]
fn lease_is_renewed_while_keys_are_read() {
    let mut machine = machine(SavedState::default());
    connect(&mut machine, &[]);
    let compacted = Input::WatchEnded {
        is_compacted: true,
        reason: "compacted".to_owned(),
    };
    machine.handle(compacted, START);
    assert!(outputs(&mut machine).contains(&Output::List));
    machine.handle_time(START + TTL / 2);
    assert!(outputs(&mut machine).contains(&Output::Renew { lease: 7 }));
}

#[test]
fn member_record_contains_the_settled_and_staged_versions_that_others_wait_for() {
    let text = "# v3";
    let record = |applies_with_others, stages_versions| {
        let applied = AppliedConfiguration {
            version: 3,
            text: text.to_owned(),
            guard_ms: 0,
        };
        let mut machine = machine(SavedState {
            applied: Some(applied),
            ..SavedState::default()
        });
        machine.handle(Input::Settled(8), START);
        let local_state = LocalState {
            record: MemberRecord {
                weir: "1.2.3".to_owned(),
                settled: Some(1),
                staged: Some(1),
                ..MemberRecord::default()
            },
            applies_with_others,
            stages_versions,
            ..LocalState::default()
        };
        machine.handle(Input::LocalState(Box::new(local_state)), START);
        connect(&mut machine, &[]);
        let record_json = outputs(&mut machine).into_iter().find_map(|output| {
            let Output::Txn { txn, .. } = output else {
                return None;
            };
            let [Write::Put(put)] = txn.writes.as_slice() else {
                return None;
            };
            (put.key == "/weir/edge/member/lb1").then(|| put.value.clone())
        });
        serde_json::from_slice::<MemberRecord>(&record_json.unwrap()).unwrap()
    };
    for (applies_with_others, stages_versions, settled, staged) in [
        (true, false, None, None),
        (false, false, Some(8), None),
        (true, true, None, Some(0)),
        (false, true, Some(8), Some(0)),
    ] {
        let expected = MemberRecord {
            version: 3,
            digest: weir_cluster::digest(text.as_bytes()),
            instance: 1,
            identity: 1,
            weir: "1.2.3".to_owned(),
            settled,
            staged,
            ..MemberRecord::default()
        };
        let actual = record(applies_with_others, stages_versions);
        assert_eq!(actual, expected, "{applies_with_others} {stages_versions}");
    }
}

#[test]
fn changed_check_results_are_written_immediately_and_unchanged_ones_after_15_seconds() {
    let mut machine = machine(SavedState::default());
    connect(&mut machine, &[]);
    confirm_all(&mut machine, START);
    // Returns the number of the transaction that writes the results, and the write.
    let results_write = |machine: &mut Machine| {
        outputs(machine).into_iter().find_map(|output| {
            let Output::Txn { number, txn, .. } = output else {
                return None;
            };
            let [Write::Put(put)] = txn.writes.as_slice() else {
                return None;
            };
            (put.key == "/weir/edge/health/lb1").then(|| (number, put.clone()))
        })
    };
    let local_state = || {
        Input::LocalState(Box::new(LocalState {
            health: HealthView {
                reaches: true,
                ..HealthView::default()
            },
            ..LocalState::default()
        }))
    };
    machine.handle(local_state(), START);
    let (number, put) = results_write(&mut machine).expect("the results have changed");
    let revision = 20;
    let result = TxnResult::Done { revision };
    machine.handle(Input::Txn { number, result }, START);
    let (key, value) = (put.key, put.value);
    let events = vec![Event::Put(Entry {
        key,
        value,
        revision,
    })];
    machine.handle(Input::Watched { events }, START);
    let limit = Duration::from_secs(15);
    for (time, expected) in [(limit - Duration::from_nanos(1), false), (limit, true)] {
        machine.handle(local_state(), START + time);
        assert_eq!(results_write(&mut machine).is_some(), expected, "{time:?}");
    }
}

/// Responds to all transactions with success, and reports their changes through the watch.
fn confirm_all(machine: &mut Machine, now: Duration) {
    let mut revision = 9;
    while let Some(output) = machine.poll_output() {
        let Output::Txn { number, txn, .. } = output else {
            continue;
        };
        revision += 1;
        let result = TxnResult::Done { revision };
        machine.handle(Input::Txn { number, result }, now);
        let events = txn.writes.into_iter().map(|write| match write {
            Write::Put(put) => Event::Put(Entry {
                key: put.key,
                value: put.value,
                revision,
            }),
            Write::Delete(key) => Event::Delete { key, revision },
        });
        let events = events.collect();
        machine.handle(Input::Watched { events }, now);
    }
}

const OTHER_SERVING: &str = "/weir/edge/serving/lb2";

/// Returns a state machine that announces the VIP, as another director does, and the current time. All members have had
/// time to register.
fn announcing_machine() -> (Machine, Duration) {
    let mut machine = machine(SavedState::default());
    let other_announces = [("member/lb2", "{}"), ("serving/lb2", "[\"192.0.2.10\"]")];
    connect(&mut machine, &other_announces);
    machine.handle(local_state(&[(vip(), true)]), START);
    confirm_all(&mut machine, START);
    let now = START + TTL;
    machine.handle_time(now);
    confirm_all(&mut machine, now);
    (machine, now)
}

/// Returns the number of the withdrawal in `outputs`.
fn withdrawal(outputs: &[Output]) -> Option<u64> {
    let is_withdrawal = |txn: &Txn| txn.compares.iter().any(|it| it.key() == OTHER_SERVING);
    outputs.iter().find_map(|output| match output {
        Output::Txn { number, txn, .. } if is_withdrawal(txn) => Some(*number),
        _ => None,
    })
}

/// Makes the service fail. Asserts that the VIP is held for 100 ms and then withdrawn, because etcd does not respond.
fn assert_withdrawn_without_response(machine: &mut Machine, now: Duration, case: &str) {
    let (none, this) = (BTreeSet::new(), BTreeSet::from([vip()]));
    machine.handle(local_state(&[(vip(), false)]), now);
    let held = Some((this.clone(), none.clone()));
    assert_eq!(decision(machine), held, "{case}");
    let due = now + Duration::from_millis(100);
    assert_eq!(machine.next_deadline(now), due, "{case}");
    machine.handle_time(due - Duration::from_millis(1));
    assert_eq!(decision(machine), None, "{case}");
    machine.handle_time(due);
    assert_eq!(decision(machine), Some((none, this)), "{case}");
    assert!(machine.next_deadline(due) > due, "{case}");
}

#[test]
fn withdrawal_does_not_wait_for_late_responses() {
    let changed_health = LocalState {
        vips: [(vip(), true)].into(),
        health: HealthView {
            reaches: true,
            ..HealthView::default()
        },
        ..LocalState::default()
    };
    let compacted = Input::WatchEnded {
        is_compacted: true,
        reason: "compacted".to_owned(),
    };
    // The request to which etcd does not respond.
    for (case, request) in [
        ("the withdrawal", None),
        (
            "another transaction",
            Some(Input::LocalState(Box::new(changed_health))),
        ),
        ("the listing", Some(compacted)),
        ("the lease", Some(Input::LeaseEnded)),
    ] {
        let (mut machine, now) = announcing_machine();
        if let Some(request) = request {
            machine.handle(request, now);
        }
        outputs(&mut machine);
        assert_withdrawn_without_response(&mut machine, now, case);
    }
}

#[test]
fn late_response_confirms_or_reverts_withdrawal() {
    let done = TxnResult::Done { revision: 60 };
    let entry = |value: &str| Entry {
        key: OTHER_SERVING.to_owned(),
        value: value.as_bytes().to_vec(),
        revision: 60,
    };
    let conflict = |value| TxnResult::Conflict {
        found: vec![entry(value)],
        revision: 60,
    };
    // The response, whether the VIP is announced again, and whether the withdrawal is attempted again.
    for (response, is_announced, is_retried) in [
        (done, false, false),
        (conflict("[]"), true, false),
        (conflict("[\"192.0.2.10\", \"192.0.2.11\"]"), false, true),
    ] {
        let case = format!("{response:?}");
        let (mut machine, now) = announcing_machine();
        machine.handle(local_state(&[(vip(), false)]), now);
        let pending = outputs(&mut machine);
        let number = withdrawal(&pending).expect("the withdrawal is requested");
        let now = now + Duration::from_millis(100);
        machine.handle_time(now);
        let withdrawn = (BTreeSet::new(), BTreeSet::from([vip()]));
        assert_eq!(decision(&mut machine), Some(withdrawn), "{case}");

        let result = response;
        machine.handle(Input::Txn { number, result }, now);
        let after = outputs(&mut machine);
        let decided = after.iter().find_map(|output| match output {
            Output::Decided { held, .. } => Some(held.contains(&vip())),
            _ => None,
        });
        assert_eq!(decided, is_announced.then_some(true), "{case}");
        assert_eq!(withdrawal(&after).is_some(), is_retried, "{case}");
    }
}

/// The daemon receives the group's value only after it has applied the operator's change.
#[test]
fn operator_change_replaces_value_on_its_way_to_the_daemon() {
    let shared = json!({ "entries": [{
        "key": { "kind": "override", "pool": "web", "server": "10.0.0.5" },
        "value": { "weight": 2 },
        "base": 5,
        "dirty": false,
    }] });
    let mut machine = machine(SavedState {
        shared: serde_json::from_value(shared).expect("state is valid"),
        ..SavedState::default()
    });
    let key = SharedKey {
        kind: Kind::Override,
        pool: "web".to_owned(),
        server: "10.0.0.5".to_owned(),
    };
    let value = json!({ "weight": 4 });
    machine.handle(Input::Changed { key, value }, START);
    let weights: Vec<_> = outputs(&mut machine)
        .into_iter()
        .filter_map(|output| match output {
            Output::Shared { value, .. } => value["weight"].as_u64(),
            _ => None,
        })
        .collect();
    assert_eq!(weights, [2, 4]);
}

/// The daemon announces VIPs only after `Output::PreviousStaged`.
#[test]
fn director_waits_for_the_previous_version_while_etcd_may_still_respond() {
    let applied = AppliedConfiguration {
        version: 2,
        text: "a configuration".to_owned(),
        guard_ms: 0,
    };
    for applied in [Some(applied), None] {
        let mut machine = machine(SavedState {
            applied,
            ..SavedState::default()
        });
        let mut reports = Vec::new();
        for waited_ms in (0..10_000).step_by(100) {
            let now = START + Duration::from_millis(waited_ms);
            machine.handle_time(now);
            for output in outputs(&mut machine) {
                match output {
                    Output::List => {
                        let failure = Input::ListFailed("no response".to_owned());
                        machine.handle(failure, now);
                    }
                    Output::PreviousStaged => reports.push(waited_ms),
                    other => panic!("{other:?}"),
                }
            }
            if waited_ms == 0 {
                machine.handle(local_state(&[(vip(), true)]), now);
            }
        }
        assert_eq!(reports, [3000]);
    }
}

#[test]
fn director_does_not_wait_without_a_previous_version() {
    let mut machine = machine(SavedState::default());
    machine.handle(local_state(&[(vip(), true)]), START);
    connect(&mut machine, &[]);
    let (mut revision, mut reports) = (10, 0);
    loop {
        let outputs = outputs(&mut machine);
        if outputs.is_empty() {
            break;
        }
        for output in outputs {
            match output {
                Output::Txn { number, .. } => {
                    revision += 1;
                    let result = TxnResult::Done { revision };
                    machine.handle(Input::Txn { number, result }, START);
                }
                Output::PreviousStaged => reports += 1,
                _ => {}
            }
        }
    }
    assert_eq!(reports, 1);
}

#[test]
fn key_range_covers_only_the_group() {
    let machine = machine(SavedState::default());
    let range = ("/weir/edge/".to_owned(), "/weir/edge0".to_owned());
    assert_eq!(machine.range(), range);
}

/// Publishes a configuration. Returns the reason why this fails.
fn publication_error(machine: &mut Machine) -> String {
    let publish = Input::Publish {
        request: 1,
        text: String::new(),
        guard_ms: 0,
    };
    machine.handle(publish, START);
    let errors = outputs(machine).into_iter().filter_map(|it| match it {
        Output::Published { result, .. } => result.err(),
        _ => None,
    });
    let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.concat()
}

#[test]
fn publication_requires_etcd_and_membership() {
    let mut machine = machine(SavedState::default());
    machine.handle_time(START);
    let error = publication_error(&mut machine);
    assert_eq!(error, "etcd has not responded yet");
    let refused = Input::ListFailed("connection refused".to_owned());
    machine.handle(refused, START);
    let error = publication_error(&mut machine);
    assert_eq!(error, "etcd does not respond: connection refused");

    let mut machine = self::machine(SavedState::default());
    connect(&mut machine, &[]);
    assert_eq!(reject_transactions(&mut machine, START), 1);
    let reason = "the name lb1 is used by another director";
    assert_eq!(machine.status(START).refused.as_deref(), Some(reason));
    let error = publication_error(&mut machine);
    assert_eq!(error, "this director is not a member of the group");
}

/// Rejects all transactions with the revision that was listed. Returns their number.
fn reject_transactions(machine: &mut Machine, now: Duration) -> usize {
    let mut count = 0;
    while let Some(output) = machine.poll_output() {
        match output {
            Output::Txn { number, .. } => {
                count += 1;
                let result = TxnResult::Conflict {
                    found: Vec::new(),
                    revision: 9,
                };
                machine.handle(Input::Txn { number, result }, now);
            }
            Output::Renew { .. } => machine.handle(Input::Renewed, now),
            _ => {}
        }
    }
    count
}

/// A conflict with a revision that the mirror already has means that the mirror is wrong.
#[test]
fn keys_are_read_again_after_conflicts_without_newer_changes() {
    let mut machine = machine(SavedState::default());
    connect(&mut machine, &[]);
    let (mut now, mut rejected) = (START, 0);
    while machine.status(now).link == Link::Connected {
        rejected += reject_transactions(&mut machine, now);
        now += Duration::from_millis(500);
        assert!(
            now < START + Duration::from_secs(60),
            "{rejected} conflicts"
        );
        machine.handle_time(now);
    }
    assert_eq!(rejected, 11);
    let Link::Disconnected { error, .. } = machine.status(now).link else {
        panic!("connected");
    };
    let expected = "etcd returns revisions older than those that its watch reported";
    assert_eq!(error, expected);
}

/// Members that lost their lease register again one by one, so a majority of the members registered so far could be
/// wrong.
#[test]
fn servers_are_down_by_agreement_only_after_lease_ttl() {
    let health = r#"{"reaches":true,"down":{"web/a":"refused"}}"#;
    let stored_records = [
        ("member/lb2", "{}"),
        ("member/lb3", "{}"),
        ("health/lb2", health),
        ("health/lb3", health),
    ];
    let down_at = |agreement: bool, now: Duration| {
        let mut machine = machine_with(SavedState::default(), agreement);
        connect(&mut machine, &stored_records);
        confirm_all(&mut machine, START);
        machine.handle_time(now);
        machine.status(now).down.into_keys().collect::<Vec<_>>()
    };
    let just_before = START + TTL - Duration::from_millis(1);
    assert_eq!(down_at(true, just_before), [""; 0]);
    assert_eq!(down_at(true, START + TTL), ["web/a"]);
    assert_eq!(down_at(false, START + TTL), [""; 0]);
}

#[test]
fn name_of_different_director_or_process_is_not_taken() {
    let key = "/weir/edge/member/lb1";
    let refused = |record: serde_json::Value, is_registered: bool| {
        let mut machine = machine(SavedState::default());
        let record_text = record.to_string();
        match is_registered {
            true => connect(&mut machine, &[]),
            false => connect(&mut machine, &[("member/lb1", &record_text)]),
        }
        confirm_all(&mut machine, START);
        let value = record_text.into_bytes();
        let put = Event::Put(Entry {
            key: key.to_owned(),
            value,
            revision: 90,
        });
        let events = vec![put];
        machine.handle(Input::Watched { events }, START);
        machine.status(START).refused
    };
    let another_process = json!({ "identity": 1, "instance": 2 });
    let another_director = json!({ "identity": 2, "instance": 1 });
    let same_record = json!({ "identity": 1, "instance": 1 });
    let process = Some("the name lb1 is used by another process of this director".to_owned());
    let director = Some("the name lb1 is used by another director".to_owned());
    assert_eq!(refused(another_process, true), process);
    assert_eq!(refused(another_director.clone(), true), director);
    assert_eq!(refused(another_director, false), director);
    assert_eq!(refused(same_record, true), None);
}

#[test]
fn added_servers_are_shared() {
    let mut machine = machine(SavedState::default());
    let other_value = json!({ "weight": 1 }).to_string();
    connect(&mut machine, &[("server/web/10.0.0.6", &other_value)]);
    let shared_key = |server: &str| SharedKey {
        kind: Kind::Server,
        pool: "web".to_owned(),
        server: server.to_owned(),
    };
    machine.handle(
        Input::Changed {
            key: shared_key("10.0.0.5"),
            value: json!({ "weight": 2 }),
        },
        START,
    );
    let (mut adopted_keys, mut written_keys) = (Vec::new(), Vec::new());
    while let Some(output) = machine.poll_output() {
        match output {
            Output::Shared { key, .. } => adopted_keys.push(key),
            Output::Txn { number, txn, .. } => {
                written_keys.extend(txn.writes.into_iter().filter_map(|write| match write {
                    Write::Put(put) => Some(put.key),
                    Write::Delete(_) => None,
                }));
                let result = TxnResult::Done { revision: 20 };
                machine.handle(Input::Txn { number, result }, START);
            }
            _ => {}
        }
    }
    assert!(
        adopted_keys.contains(&shared_key("10.0.0.6")),
        "{adopted_keys:?}"
    );
    let key = "/weir/edge/server/web/10.0.0.5".to_owned();
    assert!(written_keys.contains(&key), "{written_keys:?}");
}

#[test]
fn failures_are_counted() {
    let mut machine = machine(SavedState::default());
    machine.handle_time(START);
    assert_eq!(machine.failures(), 0);
    machine.handle(Input::ListFailed("refused".to_owned()), START);
    assert_eq!(machine.failures(), 1);
}
