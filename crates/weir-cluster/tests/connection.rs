//! Tests decisions that depend on the connection to etcd: VIPs whose services fail while etcd does not respond, and the
//! renewal of the lease while the keys are read.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use weir_cluster::{Entry, Input, LocalState, Machine, Output, SavedState, Settings};

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
    Input::LocalState(LocalState {
        vips: vips.iter().copied().collect(),
        ..LocalState::default()
    })
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
    machine.handle(Input::LocalState(LocalState::default()), START);
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
