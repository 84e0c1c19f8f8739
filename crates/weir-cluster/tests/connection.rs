//! Tests decisions that depend on the connection to etcd: VIPs whose services fail while etcd does not respond or
//! responds late, and the renewal of the lease while the keys are read. Also tests the order of values that cross on
//! their way between the daemon and the state machine.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;
use weir_cluster::{
    AppliedConfiguration, Entry, Event, HealthView, Input, Kind, LocalState, Machine, Output,
    SavedState, Settings, SharedKey, Txn, TxnResult, Write,
};

const TTL: Duration = Duration::from_secs(10);
const START: Duration = Duration::from_secs(1);

fn vip() -> IpAddr {
    [192, 0, 2, 10].into()
}

fn machine(saved: SavedState) -> Machine {
    let settings = Settings {
        group: "edge".to_owned(),
        member: "lb1".to_owned(),
        identity: 1,
        instance: 1,
        ttl: TTL,
        key: None,
        agreement: false,
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
        let ended = Input::WatchEnded {
            is_compacted: false,
            reason: "no response".to_owned(),
        };
        machine.handle(ended, START);
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

/// The daemon applies a value from the group after an operator's change that it has already applied.
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

/// The daemon announces VIPs after this report.
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
                        let failed = Input::ListFailed("no response".to_owned());
                        machine.handle(failed, now);
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
