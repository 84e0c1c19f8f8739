//! Flows move into a table of another size while packets go on.

mod support;

use std::collections::BTreeSet;

use support::{ACK, FIN, Place, RST, SYN, fill, privileged, small, tcp, wait_for_flows};
use weir_abi::Reason;
use weir_dataplane::migrate::Moved;
use weir_dataplane::{Dataplane, OpenOptions, Opened, Sizes, TestInput};

fn send(dataplane: &Dataplane, port: u16, flags: u8) {
    dataplane
        .test_run("weir_xdp", &TestInput::xdp(&tcp(1, port, flags)))
        .unwrap();
}

/// Packets whose flow was not found.
fn strangers(dataplane: &Dataplane) -> u64 {
    dataplane.maps().reasons().unwrap()[Reason::PassNoFlow.number() as usize]
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
    // Before activation the old programs end flows; RST alone ends no half-open one (ip_vs_proto_tcp.c).
    (1010..1020).for_each(|port| send(&old, port, ACK));
    (1010..1020).for_each(|port| send(&old, port, RST));
    wait_for_flows(&old, 50);
    new.activate().unwrap();
    // Until no old program can run, each side finds what the other begins and changes.
    (1060..1065).for_each(|port| send(&new, port, SYN));
    (1060..1065).for_each(|port| send(&old, port, ACK));
    (1065..1070).for_each(|port| send(&old, port, SYN));
    (1065..1070).for_each(|port| send(&new, port, ACK));
    (1000..1005).for_each(|port| send(&old, port, ACK | FIN));
    (1005..1010).for_each(|port| send(&new, port, ACK | FIN));
    send(&new, 1000, ACK);
    assert_eq!(new.maps().flows.walk().count(), 0, "all in the old table");
    assert_eq!(old.maps().flows.walk().count(), 60);
    assert_eq!(strangers(&new), 0);
    let moved = new.migrate_flows().unwrap();
    assert_eq!(moved, Moved { moved: 60, lost: 0 });
    assert_eq!(
        new.migrate_flows().unwrap(),
        Moved::default(),
        "there is nothing more to move"
    );
    let expected: BTreeSet<u16> = (1000..1070)
        .filter(|port| !(1010..1020).contains(port))
        .collect();
    assert_eq!(ports(&new), expected);
    assert_counts(&new, 50, 10);
    assert_eq!(new.maps().live(1).unwrap().total, 70);
    assert!(
        !place.pin_dir().join(format!("flows-1-{from}")).exists(),
        "the old table is unpinned"
    );

    // The programs find every entry where the migration put it, and end it with every count back at zero.
    expected.iter().for_each(|port| send(&new, *port, ACK));
    assert_eq!(strangers(&new), 0);
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
    next.activate().unwrap();
    next.migrate_flows().unwrap();
    assert_eq!(ports(&next), (1000..1030).collect());
    drop(next);
    assert_eq!(Dataplane::open(&options(64)).unwrap().1, Opened::Adopted);
}

#[test]
fn what_does_not_fit_is_counted_down_and_goes_by_hash() {
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
    let (mut old, _) = Dataplane::open(&options(64)).unwrap();
    fill(&old);
    old.activate().unwrap();
    (1000..1060).for_each(|port| send(&old, port, SYN));
    let (mut new, _) = Dataplane::open(&options(2)).unwrap();
    new.activate().unwrap();
    let moved = new.migrate_flows().unwrap();
    assert_eq!((moved.moved, moved.lost), (14, 46));
    assert_counts(&new, 14, 0);
    (1000..1060).for_each(|port| send(&new, port, ACK));
    assert_eq!(strangers(&new), 0, "the others find the server by hash");
    assert_counts(&new, 14, 0);
}
