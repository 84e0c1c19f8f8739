//! Flows move into a table of another size while packets go on.

mod support;

use std::collections::BTreeSet;

use support::{
    ACK, FIN, Place, RST, SECRET, SYN, fill, hash_v4, privileged, small, tcp, wait_for_flows,
};
use weir_abi::{FlowCold, Reason};
use weir_dataplane::migrate::Home;
use weir_dataplane::{Dataplane, OpenOptions, Opened, Sizes, TestInput};

fn send(dataplane: &Dataplane, port: u16, flags: u8) {
    dataplane
        .test_run("weir_xdp", &TestInput::xdp(&tcp(1, port, flags)))
        .unwrap();
}

fn home(buckets: u32) -> impl Fn(&FlowCold) -> Home {
    move |cold| {
        let hash = hash_v4(SECRET, cold);
        let scale = |hash: u64| (((hash >> 32) * u64::from(buckets)) >> 32) as u32;
        Home {
            tag: hash & ((1 << 44) - 1),
            home: scale(hash),
            second: scale(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    }
}

fn ports(dataplane: &Dataplane) -> BTreeSet<u16> {
    dataplane
        .maps()
        .flows
        .walk()
        .map(|flow| flow.cold.sport.get())
        .collect()
}

fn migrate(from: u32, to: u32) {
    let place = Place::new();
    let options = |buckets: u32| OpenOptions {
        sizes: Sizes {
            flows: 7 * buckets,
            ..small()
        },
        ..place.options()
    };
    let (mut old, _) = Dataplane::open(&options(from)).unwrap();
    fill(&old);
    old.activate().unwrap();
    (1000..1060).for_each(|port| send(&old, port, SYN));

    let (mut new, opened) = Dataplane::open(&options(to)).unwrap();
    assert_eq!(opened, Opened::FlowsMigrating);
    let first = new.migrate_flows(home(to)).unwrap();
    assert_eq!((first.moved, first.lost), (60, 0));
    assert_eq!(
        new.migrate_flows(home(to)).unwrap().moved,
        0,
        "a second copy finds nothing new"
    );

    // Between copy and activation the old programs begin, change and end flows.
    (1060..1070).for_each(|port| send(&old, port, SYN));
    (1000..1010).for_each(|port| send(&old, port, ACK | FIN));
    // RST alone ends no half-open flow (ip_vs_proto_tcp.c).
    (1010..1020).for_each(|port| send(&old, port, ACK));
    (1010..1020).for_each(|port| send(&old, port, RST));
    wait_for_flows(&old, 60);
    new.activate().unwrap();
    // And the new ones change one that the old ones changed as well.
    send(&new, 1000, ACK);
    let second = new.migrate_flows(home(to)).unwrap();
    assert_eq!(
        (second.moved, second.updated, second.ended, second.lost),
        (10, 9, 10, 0)
    );
    let expected: BTreeSet<u16> = (1000..1070)
        .filter(|port| !(1010..1020).contains(port))
        .collect();
    assert_eq!(ports(&new), expected);
    for flow in new.maps().flows.walk() {
        let place = home(to)(&flow.cold);
        let hint = new.maps().flows.hint(place.home).unwrap();
        assert_ne!(hint & weir_abi::Entry::hint_bit(place.tag), 0, "denied");
    }
    assert_counts(&new, 51, 9);
    assert_eq!(new.maps().live(1).unwrap().total, 70);
    assert!(
        !place.pin_dir().join(format!("flows-1-{from}")).exists(),
        "the old table is unpinned"
    );

    // The programs find every entry where the migration put it, and end it with every count back at zero.
    expected.iter().for_each(|port| send(&new, *port, ACK));
    assert_eq!(
        new.maps().reasons().unwrap()[Reason::PassNoFlow.number() as usize],
        0
    );
    assert_eq!(ports(&new), expected);
    expected.iter().for_each(|port| send(&new, *port, RST));
    wait_for_flows(&new, 0);
    assert_counts(&new, 0, 0);
    let spilled: u32 = (0..to)
        .map(|bucket| new.maps().flows.bucket(bucket).unwrap().spilled)
        .sum();
    assert_eq!(spilled, 0);
}

/// The server's and its pool's counts are these, and the table agrees.
fn assert_counts(dataplane: &Dataplane, active: u64, inactive: u64) {
    let is_active = |flow: &weir_dataplane::Flow| flow.meta().flags & weir_abi::FLOW_ACTIVE != 0;
    let (on, off): (Vec<_>, Vec<_>) = dataplane.maps().flows.walk().partition(is_active);
    assert_eq!(
        (on.len() as u64, off.len() as u64),
        (active, inactive),
        "the table"
    );
    for row in [1, 64] {
        let live = dataplane.maps().live(row).unwrap();
        assert_eq!(
            (live.active, live.inactive),
            (active, inactive),
            "row {row}"
        );
    }
}

#[test]
fn flows_move_to_a_bigger_table() {
    if privileged() {
        migrate(16, 64);
    }
}

#[test]
fn flows_move_to_a_smaller_table() {
    if privileged() {
        migrate(64, 16);
    }
}

#[test]
fn a_migration_that_was_interrupted_goes_on() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    let options = |buckets: u32| OpenOptions {
        sizes: Sizes {
            flows: 7 * buckets,
            ..small()
        },
        ..place.options()
    };
    let (mut old, _) = Dataplane::open(&options(16)).unwrap();
    fill(&old);
    old.activate().unwrap();
    (1000..1030).for_each(|port| send(&old, port, SYN));
    let (mut died, _) = Dataplane::open(&options(64)).unwrap();
    died.activate().unwrap();
    drop(died);

    // The size that is wanted now waits until the table from before is empty.
    let (mut next, opened) = Dataplane::open(&options(32)).unwrap();
    assert_eq!(opened, Opened::FlowsMigrating);
    assert_eq!(next.maps().flows.buckets(), 64);
    next.migrate_flows(home(64)).unwrap();
    next.activate().unwrap();
    next.migrate_flows(home(64)).unwrap();
    assert_eq!(ports(&next), (1000..1030).collect());
    drop(next);
    assert_eq!(Dataplane::open(&options(64)).unwrap().1, Opened::Adopted);
}
