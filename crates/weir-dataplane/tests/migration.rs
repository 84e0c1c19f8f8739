//! Tests that flows are migrated to a table with a different size or layout while packets continue to arrive.

mod support;

use std::collections::BTreeSet;

use support::{ACK, FIN, RST, SYN, Sandbox, fill, privileged, small_sizes, tcp, wait_for_flows};
use weir_abi::{ABI_FLOW_LAYOUT, Bucket2, FLOW_AWAY, Reason, SETTINGS_BEGIN_IN_OLD};
use weir_dataplane::migrate::MigrationResult;
use weir_dataplane::{Dataplane, Error, OpenOptions, OpenOutcome, Sizes, TestInput, open_readonly};

/// The previous layout of the flow table.
const PREVIOUS_LAYOUT: u32 = ABI_FLOW_LAYOUT - 1;

/// Layout and number of buckets of a flow table.
type TableShape = (u32, u32);

fn options(sandbox: &Sandbox, (flow_layout, buckets): TableShape) -> OpenOptions {
    OpenOptions {
        sizes: Sizes {
            flows: 7 * buckets,
            ..small_sizes()
        },
        flow_layout,
        xdp_only: true,
        ..sandbox.options()
    }
}

fn send(dataplane: &Dataplane, port: u16, flags: u8) {
    dataplane
        .test_run("weir_xdp", &TestInput::xdp(&tcp(1, port, flags)))
        .unwrap();
}

/// Returns the number of packets whose flow was not found.
fn unmatched_packets(dataplane: &Dataplane) -> u64 {
    dataplane.maps().reasons().unwrap()[Reason::PassNoFlow.number() as usize]
}

fn client_ports(dataplane: &Dataplane) -> BTreeSet<u16> {
    dataplane
        .maps()
        .flows
        .walk()
        .map(|flow| flow.cold.sport.get())
        .collect()
}

fn assert_migration(old_shape: TableShape, new_shape: TableShape) {
    let sandbox = Sandbox::new();
    let (mut old, _) = Dataplane::open(&options(&sandbox, old_shape)).unwrap();
    fill(&old);
    old.activate().unwrap();
    (1000..1060).for_each(|port| send(&old, port, SYN));
    if old_shape.0 == PREVIOUS_LAYOUT {
        assert_previous_layout(&sandbox, &old, old_shape);
    }

    let (mut new, opened) = Dataplane::open(&options(&sandbox, new_shape)).unwrap();
    assert_eq!(opened, OpenOutcome::FlowsMigrating);
    // Before activation, the old programs still remove flows. An RST does not remove a half-open flow
    // (ip_vs_proto_tcp.c).
    (1010..1020).for_each(|port| send(&old, port, ACK));
    (1010..1020).for_each(|port| send(&old, port, RST));
    wait_for_flows(&old, 50);
    new.activate().unwrap();
    // While old programs may still run, old and new programs find each other's new and changed entries.
    (1060..1065).for_each(|port| send(&new, port, SYN));
    (1060..1065).for_each(|port| send(&old, port, ACK));
    (1065..1070).for_each(|port| send(&old, port, SYN));
    (1065..1070).for_each(|port| send(&new, port, ACK));
    (1000..1005).for_each(|port| send(&old, port, ACK | FIN));
    (1005..1010).for_each(|port| send(&new, port, ACK | FIN));
    send(&new, 1000, ACK);
    assert_eq!(
        new.maps().flows.walk().count(),
        0,
        "all flows are in the old table"
    );
    assert_eq!(old.maps().flows.walk().count(), 60);
    assert_eq!(unmatched_packets(&new), 0);
    let result = new.migrate_flows().unwrap();
    assert_eq!(result, MigrationResult { moved: 60, lost: 0 });
    assert_eq!(
        new.migrate_flows().unwrap(),
        MigrationResult::default(),
        "no more flows to migrate"
    );
    let expected: BTreeSet<u16> = (1000..1070)
        .filter(|port| !(1010..1020).contains(port))
        .collect();
    assert_eq!(client_ports(&new), expected);
    assert_counts(&new, 50, 10);
    assert_eq!(new.maps().live(1).unwrap().total, 70);
    assert!(
        !table_directory(&sandbox, old_shape).exists(),
        "the old table is unpinned"
    );

    // The programs find and remove every migrated entry, and all counts return to zero.
    expected.iter().for_each(|port| send(&new, *port, ACK));
    assert_eq!(unmatched_packets(&new), 0);
    assert_eq!(client_ports(&new), expected);
    expected.iter().for_each(|port| send(&new, *port, RST));
    wait_for_flows(&new, 0);
    assert_counts(&new, 0, 0);
    for bucket in 0..new_shape.1 {
        let bucket = new.maps().flows.bucket(bucket).unwrap();
        assert_eq!((bucket.spilled, bucket.stashed), (0, 0));
    }
}

/// Asserts that the programs insert entries as in layout 2: they do not use the stash, and the spilled counts of all
/// buckets add up to the number of spilled entries.
fn assert_previous_layout(sandbox: &Sandbox, dataplane: &Dataplane, shape: TableShape) {
    let path = table_directory(sandbox, shape).join("weir_flows");
    let map = aya::maps::Map::Array(aya::maps::MapData::from_pin(path).unwrap());
    let buckets = aya::maps::Array::<_, [u8; 128]>::try_from(map).unwrap();
    let word = |bucket: u32, offset: usize| {
        let raw = buckets.get(&bucket, 0).unwrap();
        u32::from_ne_bytes(raw[offset..offset + 4].try_into().unwrap())
    };
    let mut spilled_count = 0;
    for bucket in 0..shape.1 {
        spilled_count += word(bucket, std::mem::offset_of!(Bucket2, spilled));
        let pad_offset = std::mem::offset_of!(Bucket2, pad);
        assert_eq!(
            (word(bucket, pad_offset), word(bucket, pad_offset + 4)),
            (0, 0)
        );
    }
    let is_spilled = |flow: &weir_dataplane::Flow| flow.meta().flags & FLOW_AWAY != 0;
    let spilled_entries = dataplane.maps().flows.walk().filter(is_spilled).count();
    assert_eq!(spilled_count as usize, spilled_entries);
}

fn table_directory(sandbox: &Sandbox, (layout, buckets): TableShape) -> std::path::PathBuf {
    sandbox.pin_dir().join(format!("flows-{layout}-{buckets}"))
}

/// Asserts the flow counts of the server and its pool, and that the table matches them.
fn assert_counts(dataplane: &Dataplane, active: u64, inactive: u64) {
    let is_active = |flow: &weir_dataplane::Flow| flow.meta().flags & weir_abi::FLOW_ACTIVE != 0;
    let (active_flows, inactive_flows): (Vec<_>, Vec<_>) =
        dataplane.maps().flows.walk().partition(is_active);
    assert_eq!(
        (active_flows.len() as u64, inactive_flows.len() as u64),
        (active, inactive),
        "flow counts of the table"
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
fn flows_are_migrated_to_a_larger_table() {
    if privileged() {
        assert_migration((ABI_FLOW_LAYOUT, 16), (ABI_FLOW_LAYOUT, 64));
    }
}

#[test]
fn flows_are_migrated_to_a_smaller_table() {
    if privileged() {
        assert_migration((ABI_FLOW_LAYOUT, 64), (ABI_FLOW_LAYOUT, 16));
    }
}

#[test]
fn flows_are_migrated_from_the_previous_layout() {
    if privileged() {
        assert_migration((PREVIOUS_LAYOUT, 64), (ABI_FLOW_LAYOUT, 64));
        assert_migration((PREVIOUS_LAYOUT, 16), (ABI_FLOW_LAYOUT, 64));
    }
}

#[test]
fn flows_are_migrated_back_to_the_previous_layout() {
    if privileged() {
        assert_migration((ABI_FLOW_LAYOUT, 64), (PREVIOUS_LAYOUT, 16));
    }
}

#[test]
fn interrupted_migration_is_resumed_before_next_resize() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let options = |buckets: u32| options(&sandbox, (ABI_FLOW_LAYOUT, buckets));
    let (mut old, _) = Dataplane::open(&options(16)).unwrap();
    fill(&old);
    old.activate().unwrap();
    (1000..1030).for_each(|port| send(&old, port, SYN));
    let (mut interrupted, _) = Dataplane::open(&options(64)).unwrap();
    interrupted.activate().unwrap();
    drop(interrupted);

    // The requested size takes effect only after the previous table is empty.
    let (mut next, opened) = Dataplane::open(&options(32)).unwrap();
    assert_eq!(opened, OpenOutcome::FlowsMigrating);
    assert_eq!(next.maps().flows.buckets(), 64);
    next.activate().unwrap();
    next.migrate_flows().unwrap();
    assert_eq!(client_ports(&next), (1000..1030).collect());
    drop(next);
    assert_eq!(
        Dataplane::open(&options(64)).unwrap().1,
        OpenOutcome::Adopted
    );
}

/// Migrates the flows without replacing the programs, like a daemon that is killed before it replaces them.
fn migrate_without_replacing_programs(dataplane: &Dataplane, old_buckets: u32) {
    let mut settings = dataplane.maps().settings().unwrap();
    settings.flags &= !SETTINGS_BEGIN_IN_OLD;
    dataplane.maps().set_settings(&settings).unwrap();
    let mut request = [0; 64];
    request[4..8].copy_from_slice(&old_buckets.to_ne_bytes());
    let run = dataplane
        .test_run("weir_move", &TestInput::xdp(&request))
        .unwrap();
    let migrated_count = u32::from_ne_bytes(run.packet[8..12].try_into().unwrap());
    assert_eq!(
        migrated_count as usize,
        dataplane.maps().flows.walk().count()
    );
}

#[test]
fn port_of_flow_that_ended_during_migration_can_be_reused() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut old, _) = Dataplane::open(&options(&sandbox, (ABI_FLOW_LAYOUT, 16))).unwrap();
    fill(&old);
    old.activate().unwrap();
    for flags in [SYN, ACK] {
        (1000..1030).for_each(|port| send(&old, port, flags));
    }
    let (mut new, _) = Dataplane::open(&options(&sandbox, (ABI_FLOW_LAYOUT, 64))).unwrap();
    new.activate().unwrap();
    migrate_without_replacing_programs(&new, old.maps().flows.buckets());
    (1000..1030).for_each(|port| send(&new, port, RST));
    wait_for_flows(&new, 0);
    assert_counts(&new, 0, 0);
    // The old table still has established entries of these flows, which must no longer match.
    (1000..1030).for_each(|port| send(&new, port, ACK));
    assert_eq!(unmatched_packets(&new), 30);
    (1000..1030).for_each(|port| send(&new, port, SYN));
    assert_eq!(client_ports(&new), (1000..1030).collect());
    assert_counts(&new, 30, 0);
    assert_eq!(
        new.migrate_flows().unwrap(),
        MigrationResult::default(),
        "the flows were already migrated"
    );
    (1000..1030).for_each(|port| send(&new, port, ACK));
    assert_eq!(unmatched_packets(&new), 30, "no flow is lost");
    assert_counts(&new, 30, 0);
}

#[test]
fn flows_beyond_capacity_lose_their_entry_but_reach_server_by_hash() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let options = |buckets: u32| options(&sandbox, (ABI_FLOW_LAYOUT, buckets));
    let (mut old, _) = Dataplane::open(&options(64)).unwrap();
    fill(&old);
    old.activate().unwrap();
    (1000..1060).for_each(|port| send(&old, port, SYN));
    let (mut new, _) = Dataplane::open(&options(2)).unwrap();
    new.activate().unwrap();
    let result = new.migrate_flows().unwrap();
    assert_eq!((result.moved, result.lost), (14, 46));
    assert_counts(&new, 14, 0);
    (1000..1060).for_each(|port| send(&new, port, ACK));
    assert_eq!(
        unmatched_packets(&new),
        0,
        "flows without an entry still reach the server by hash"
    );
    assert_counts(&new, 14, 0);
}

#[test]
fn resize_started_by_previous_release_is_finished_first() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut old, _) = Dataplane::open(&options(&sandbox, (PREVIOUS_LAYOUT, 16))).unwrap();
    fill(&old);
    old.activate().unwrap();
    (1000..1030).for_each(|port| send(&old, port, SYN));
    let (mut interrupted, _) = Dataplane::open(&options(&sandbox, (PREVIOUS_LAYOUT, 64))).unwrap();
    interrupted.activate().unwrap();
    drop(interrupted);

    let (mut next, opened) = Dataplane::open(&options(&sandbox, (ABI_FLOW_LAYOUT, 64))).unwrap();
    assert_eq!(opened, OpenOutcome::FlowsMigrating);
    next.activate().unwrap();
    assert_eq!(
        next.migrate_flows().unwrap(),
        MigrationResult { moved: 30, lost: 0 }
    );
    assert!(
        table_directory(&sandbox, (PREVIOUS_LAYOUT, 64)).exists(),
        "the new layout is not created before the resize is finished"
    );
    drop(next);
    let (mut last, opened) = Dataplane::open(&options(&sandbox, (ABI_FLOW_LAYOUT, 64))).unwrap();
    assert_eq!(opened, OpenOutcome::FlowsMigrating);
    last.activate().unwrap();
    assert_eq!(
        last.migrate_flows().unwrap(),
        MigrationResult { moved: 30, lost: 0 }
    );
    assert_eq!(client_ports(&last), (1000..1030).collect());
    assert!(!table_directory(&sandbox, (PREVIOUS_LAYOUT, 64)).exists());
    assert_counts(&last, 30, 0);
}

/// Writes one word of the pinned layout record, as a future release would.
fn write_record_word(sandbox: &Sandbox, offset: usize, word: u32) {
    const RECORD_BYTES: usize = 328;
    let data = aya::maps::MapData::from_pin(sandbox.pin_dir().join("layout")).unwrap();
    let map = aya::maps::Map::Array(data);
    let mut record = aya::maps::Array::<_, [u8; RECORD_BYTES]>::try_from(map).unwrap();
    let mut bytes = record.get(&0, 0).unwrap();
    bytes[offset..offset + 4].copy_from_slice(&word.to_ne_bytes());
    record.set(0, bytes, 0).unwrap();
}

#[test]
fn newer_layout_is_rejected_without_packet_loss() {
    if !privileged() {
        return;
    }
    let sandbox = Sandbox::new();
    let (mut old, _) = Dataplane::open(&sandbox.options()).unwrap();
    fill(&old);
    old.activate().unwrap();
    (1000..1010).for_each(|port| send(&old, port, SYN));
    let before = old.pins().list().unwrap();
    let flow_layout_offset = 48;
    write_record_word(&sandbox, flow_layout_offset, ABI_FLOW_LAYOUT + 1);

    let reopened = Dataplane::open(&sandbox.options()).map(|(_, opened)| opened);
    let Err(error @ Error::FlowLayout { .. }) = reopened else {
        panic!("{reopened:?}");
    };
    let newer = format!("has flow layout {}", ABI_FLOW_LAYOUT + 1);
    assert!(error.to_string().contains(&newer), "{error}");
    let readonly = open_readonly(old.pins()).map(|plane| plane.sizes);
    assert!(
        matches!(readonly, Err(Error::FlowLayout { .. })),
        "{readonly:?}"
    );
    assert_eq!(old.pins().list().unwrap(), before, "the pins are unchanged");
    (1000..1010).for_each(|port| send(&old, port, ACK));
    assert_eq!(unmatched_packets(&old), 0);
    assert_counts(&old, 10, 0);

    write_record_word(&sandbox, flow_layout_offset, ABI_FLOW_LAYOUT);
    assert_eq!(
        Dataplane::open(&sandbox.options()).unwrap().1,
        OpenOutcome::Adopted
    );
}
