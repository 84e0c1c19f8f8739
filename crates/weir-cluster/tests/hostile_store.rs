//! Tests the state machine with a store to which another program writes, or which sends unusual responses.

use std::time::Duration;

use serde_json::json;
use weir_cluster::{
    Entry, Event, GroupKey, Input, Link, Machine, Output, RolloutState, SavedState, Settings,
    TxnResult, Write, digest,
};

const TEXT: &str = "[pool.p]\nservers = [\"192.0.2.1:80\"]\n";

/// Returns a state machine that has a lease and is connected to a store with these keys.
fn connected_machine(key: Option<GroupKey>, stored: &[(&str, Vec<u8>)]) -> (Machine, Duration) {
    let settings = Settings {
        group: "edge".to_owned(),
        member: "lb1".to_owned(),
        identity: 1,
        instance: 1,
        ttl: Duration::from_secs(10),
        key,
        agreement: false,
    };
    let now = Duration::from_secs(1);
    let mut machine = Machine::new(settings, SavedState::default(), now);
    machine.handle_time(now);
    let entry = |(name, value): &(&str, Vec<u8>)| Entry {
        key: format!("/weir/edge/config/{name}"),
        value: value.clone(),
        revision: 5,
    };
    let entries = stored.iter().map(entry).collect();
    machine.handle(
        Input::Listed {
            revision: 5,
            entries,
        },
        now,
    );
    let ttl = Duration::from_secs(10);
    machine.handle(Input::Granted { lease: 7, ttl }, now);
    (machine, now)
}

/// Responds to all transactions and returns the other outputs.
fn settle(machine: &mut Machine, now: Duration) -> Vec<Output> {
    let mut others = Vec::new();
    let mut revision = 5;
    while let Some(output) = machine.poll_output() {
        if let Output::Txn { number, txn, .. } = output {
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
        } else {
            others.push(output);
        }
    }
    others
}

fn pointer(version: u64, sealed: bool) -> Vec<u8> {
    let chunk = digest(TEXT.as_bytes());
    let pointer = json!({
        "version": version,
        "digest": chunk,
        "bytes": TEXT.len(),
        "chunks": [chunk],
        "sealed": sealed,
        "by": "other",
        "guard_ms": 0,
    });
    pointer.to_string().into_bytes()
}

#[test]
fn unsealed_configuration_is_not_applied_with_group_key() {
    let chunk = format!("chunk/{}", digest(TEXT.as_bytes()));
    let applies = |key: Option<GroupKey>| {
        let stored = [
            ("current", pointer(1, false)),
            ("complete", pointer(1, false)),
            (chunk.as_str(), TEXT.as_bytes().to_vec()),
        ];
        let (mut machine, now) = connected_machine(key, &stored);
        let outputs = settle(&mut machine, now);
        outputs.iter().any(|it| matches!(it, Output::Apply { .. }))
    };
    assert!(applies(None));
    let key = GroupKey::new(b"sixteen bytes or more").expect("key is valid");
    assert!(!applies(Some(key)));
}

#[test]
fn publication_fails_if_version_is_at_maximum() {
    let (mut machine, now) = connected_machine(None, &[("current", pointer(u64::MAX, false))]);
    settle(&mut machine, now);
    let publish = Input::Publish {
        request: 1,
        text: TEXT.to_owned(),
        guard_ms: 0,
    };
    machine.handle(publish, now);
    let outputs = settle(&mut machine, now);
    let is_failed = |it: &Output| matches!(it, Output::Published { result: Err(_), .. });
    assert!(outputs.iter().any(is_failed), "{outputs:?}");
}

#[test]
fn lease_with_zero_time_to_live_is_not_renewed_immediately() {
    let (mut machine, now) = connected_machine(None, &[]);
    machine.handle(
        Input::Granted {
            lease: 8,
            ttl: Duration::ZERO,
        },
        now,
    );
    let outputs = settle(&mut machine, now);
    let renews = |it: &Output| matches!(it, Output::Renew { .. });
    assert!(!outputs.iter().any(renews), "{outputs:?}");
    assert!(machine.next_deadline(now) > now);
}

#[test]
fn control_characters_in_texts_from_other_directors_are_removed() {
    let stopped = json!({ "version": 1, "member": "a\u{1b}[2J", "reason": "x\ny\u{1b}]0;z\u{7}" });
    let stored = [
        ("current", pointer(1, false)),
        ("stopped", stopped.to_string().into_bytes()),
    ];
    let (mut machine, now) = connected_machine(None, &stored);
    settle(&mut machine, now);
    let entry = Entry {
        key: "/weir/edge/member/other".to_owned(),
        value: json!({ "weir": "1\u{1b}[2J", "features": ["f\r"] })
            .to_string()
            .into_bytes(),
        revision: 90,
    };
    let events = vec![Event::Put(entry)];
    machine.handle(Input::Watched { events }, now);
    let status = machine.status(now);
    let RolloutState::Stopped { member, reason } = &status.rollout else {
        panic!("{status:?}");
    };
    let mut texts = vec![member, reason];
    for member in &status.members {
        texts.push(&member.record.weir);
        texts.extend(&member.differences);
    }
    assert!(texts.len() > 5, "{texts:?}");
    assert!(
        !texts.iter().any(|it| it.chars().any(char::is_control)),
        "{texts:?}"
    );
}

#[test]
fn control_characters_in_errors_from_etcd_are_removed() {
    let (mut machine, now) = connected_machine(None, &[]);
    let reason = "a:2379: \u{1b}]0;x\u{7}\u{1b}[2J\nfake line\u{9b}".to_owned();
    machine.handle(
        Input::WatchEnded {
            is_compacted: false,
            reason,
        },
        now,
    );
    let Link::Disconnected { error, .. } = machine.status(now).link else {
        panic!("{:?}", machine.status(now));
    };
    assert!(
        error.contains("fake line") && !error.chars().any(char::is_control),
        "{error:?}"
    );
}

#[test]
fn watch_after_maximum_revision_does_not_overflow() {
    let (mut machine, now) = connected_machine(None, &[]);
    let reason = "closed".to_owned();
    machine.handle(
        Input::WatchEnded {
            is_compacted: true,
            reason,
        },
        now,
    );
    let entries = Vec::new();
    machine.handle(
        Input::Listed {
            revision: i64::MAX,
            entries,
        },
        now,
    );
    let outputs = settle(&mut machine, now);
    assert!(
        outputs.contains(&Output::Watch { from: i64::MAX }),
        "{outputs:?}"
    );
}

#[test]
fn write_with_expired_lease_requests_new_lease() {
    let (mut machine, now) = connected_machine(None, &[]);
    let mut outputs = std::iter::from_fn(|| machine.poll_output());
    let number = outputs.find_map(|it| match it {
        Output::Txn { number, .. } => Some(number),
        _ => None,
    });
    let number = number.expect("a transaction is started");
    let reason = "10.0.0.1:2379: etcdserver: requested lease not found".to_owned();
    let result = TxnResult::Unknown(reason);
    machine.handle(Input::Txn { number, result }, now);
    let outputs = settle(&mut machine, now);
    let grants = |it: &Output| matches!(it, Output::Grant { .. });
    assert!(outputs.iter().any(grants), "{outputs:?}");
}

/// Returns the number of listings in one minute if every watch ends immediately.
fn listings_in_one_minute(is_compacted: bool) -> usize {
    let (mut machine, start) = connected_machine(None, &[]);
    settle(&mut machine, start);
    let (mut now, mut listings) = (start, 0);
    let watch_ended = || Input::WatchEnded {
        is_compacted,
        reason: "compacted".to_owned(),
    };
    machine.handle(watch_ended(), now);
    while now < start + Duration::from_secs(60) {
        let outputs = settle(&mut machine, now);
        if outputs.contains(&Output::List) {
            listings += 1;
            let listed = Input::Listed {
                revision: 5,
                entries: Vec::new(),
            };
            machine.handle(listed, now);
            machine.handle(watch_ended(), now);
        } else {
            now = machine
                .next_deadline(now)
                .max(now + Duration::from_millis(1));
            machine.handle_time(now);
        }
    }
    listings
}

#[test]
fn keys_are_read_at_limited_rate() {
    for is_compacted in [false, true] {
        let listings = listings_in_one_minute(is_compacted);
        assert!(
            (10..30).contains(&listings),
            "{listings} listings, compacted {is_compacted}"
        );
    }
}

#[test]
fn leases_are_requested_at_limited_rate() {
    let (mut machine, start) = connected_machine(None, &[]);
    settle(&mut machine, start);
    let (mut now, mut grants) = (start, 0);
    machine.handle(Input::LeaseEnded, now);
    while now < start + Duration::from_secs(60) {
        let outputs = settle(&mut machine, now);
        if outputs.iter().any(|it| matches!(it, Output::Grant { .. })) {
            grants += 1;
            let ttl = Duration::from_secs(10);
            machine.handle(Input::Granted { lease: 8, ttl }, now);
            machine.handle(Input::LeaseEnded, now);
        } else {
            now = machine
                .next_deadline(now)
                .max(now + Duration::from_millis(1));
            machine.handle_time(now);
        }
    }
    assert!((20..=61).contains(&grants), "{grants} requests");
}

#[test]
fn connection_fails_if_keys_are_too_large() {
    let (mut machine, now) = connected_machine(None, &[]);
    settle(&mut machine, now);
    let entry = |number: usize| {
        Event::Put(Entry {
            key: format!("/weir/edge/override/web/{number}"),
            value: vec![b' '; 1 << 20],
            revision: 6,
        })
    };
    let events = (0..100).map(entry).collect();
    let watched = Input::Watched { events };
    machine.handle(watched, now);
    let weir_cluster::Link::Disconnected { error, .. } = machine.status(now).link else {
        panic!("still connected");
    };
    assert!(error.contains("exceed 96 MiB"), "{error}");
}
