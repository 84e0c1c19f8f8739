//! Tests the status of the group as a member sees it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use weir_cluster::{
    Entry, Event, Input, Machine, MemberStatus, RolloutState, SavedState, Settings, Status,
};

const START: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Returns a director that is connected to a store with these keys.
fn machine(stored: &[(&str, Value)]) -> Machine {
    let settings = Settings {
        group: "edge".to_owned(),
        member: "lb1".to_owned(),
        identity: 1,
        instance: 1,
        ttl: Duration::from_secs(10),
        key: None,
        agreement: false,
    };
    let mut machine = Machine::new(settings, SavedState::default(), START);
    machine.handle_time(START);
    let entries = stored.iter().map(|(name, value)| entry(name, value, 5));
    let entries = entries.collect();
    let revision = 9;
    machine.handle(Input::Listed { revision, entries }, START);
    machine
}

fn entry(name: &str, value: &Value, revision: i64) -> Entry {
    Entry {
        key: format!("/weir/edge/{name}"),
        value: value.to_string().into_bytes(),
        revision,
    }
}

fn pointer(version: u64) -> Value {
    json!({ "version": version, "digest": "ab", "bytes": 0, "chunks": ["ab"], "by": "lb2" })
}

fn member(status: &Status, name: &str) -> Option<MemberStatus> {
    let mut members = status.members.iter();
    members.find(|member| member.name == name).cloned()
}

#[test]
fn rollout_state_depends_on_the_stored_keys() {
    let turn = || json!({ "member": "lb2", "instance": 1, "version": 4 });
    let stopped = |version| json!({ "version": version, "member": "lb3", "reason": "invalid" });
    let current = || ("config/current", pointer(4));
    let running = |turn: Option<&str>| RolloutState::Running {
        turn: turn.map(str::to_owned),
    };
    let is_stopped = RolloutState::Stopped {
        member: "lb3".to_owned(),
        reason: "invalid".to_owned(),
    };
    for (stored, published, expected) in [
        (vec![], 0, RolloutState::Unpublished),
        (vec![current()], 4, running(None)),
        (
            vec![current(), ("config/turn", turn())],
            4,
            running(Some("lb2")),
        ),
        (
            vec![current(), ("config/complete", pointer(4))],
            4,
            RolloutState::Complete,
        ),
        (
            vec![current(), ("config/complete", pointer(3))],
            4,
            running(None),
        ),
        (
            vec![current(), ("config/stopped", stopped(4))],
            4,
            is_stopped,
        ),
        (
            vec![current(), ("config/stopped", stopped(3))],
            4,
            running(None),
        ),
    ] {
        let status = machine(&stored).status(START);
        assert_eq!(status.rollout, expected, "{stored:?}");
        assert_eq!((status.published, status.version), (published, 0));
    }
}

#[test]
fn absent_members_remain_for_a_day() {
    let vip: IpAddr = [192, 0, 2, 10].into();
    let down = json!({ "web/10.0.0.1": "refused", "web/10.0.0.2": "refused" });
    let mut machine = machine(&[
        ("config/current", pointer(4)),
        ("member/lb2", json!({ "version": 3, "weir": "0.2.0" })),
        ("member/lb3", json!({ "version": 5 })),
        ("serving/lb2", json!([vip])),
        ("health/lb2", json!({ "reaches": true, "down": down })),
    ]);
    let status = machine.status(START);
    let present = member(&status, "lb2").unwrap();
    assert_eq!(present.record.weir, "0.2.0");
    assert_eq!((present.absent_since, present.lag), (None, 1));
    assert_eq!(present.announces, BTreeSet::from([vip]));
    assert_eq!(present.down, 2);
    let other = member(&status, "lb3").unwrap();
    assert_eq!((other.lag, other.down), (0, 0), "lb3 has a newer version");
    assert_eq!(other.announces, BTreeSet::new());

    let left_at = START + Duration::from_secs(30);
    machine.handle_time(left_at);
    let deleted = Event::Delete {
        key: "/weir/edge/member/lb2".to_owned(),
        revision: 10,
    };
    let events = vec![deleted];
    machine.handle(Input::Watched { events }, left_at);
    let renewed = Event::Put(entry("member/lb3", &json!({ "version": 6 }), 11));
    let mut absent_since = |now: Duration| {
        let events = vec![renewed.clone()];
        machine.handle(Input::Watched { events }, now);
        let status = machine.status(now);
        assert_eq!(member(&status, "lb3").unwrap().absent_since, None);
        member(&status, "lb2").map(|it| it.absent_since)
    };
    let lb2_absent_since = absent_since(left_at + HOUR).expect("lb2 is still listed");
    let lb2_absent_since = lb2_absent_since.expect("lb2 is absent");
    assert!(
        (START..=left_at).contains(&lb2_absent_since),
        "{lb2_absent_since:?}"
    );
    let just_before = lb2_absent_since + 24 * HOUR - Duration::from_millis(1);
    assert_eq!(absent_since(just_before), Some(Some(lb2_absent_since)));
    assert_eq!(absent_since(lb2_absent_since + 24 * HOUR), None);
}

#[test]
fn number_of_listed_members_is_limited() {
    let names: Vec<String> = (0..1100).map(|n| format!("member/lb{n:04}")).collect();
    let members: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), json!({ "version": 1 })))
        .collect();
    let status = machine(&members).status(START);
    assert_eq!(status.members.len(), 1024);
}
