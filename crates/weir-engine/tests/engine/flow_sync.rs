//! Tests which flows the engine selects for sending to other directors, and that it inserts no more received flows than
//! its table can hold.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use weir_abi::{ticks_from, ticks_to_duration};
use weir_engine::Engine;
use weir_model::{Forward, Persistence, SchedulerKind};
use weir_sync::{Kind, Record, Source};

use super::director::Director;
use super::topology::{Topology, is_root};
use super::{BOTH, PORT, VIP, desired};

/// Time that one walk of the whole table takes.
const WALK: Duration = Duration::from_secs(4);
/// Number of half-open connections of a flood.
const HALF_OPEN: u64 = 200;
/// Number of flows of a peer with a larger table. The table of [`desired`] has 4096 entries.
const PEER_FLOWS: u32 = 8_000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the changed entries, and those that a walk of the whole table finds. `now` is the time of the last walk.
fn changed_entries(engine: &mut Engine, now: &mut Duration) -> BTreeSet<u32> {
    *now += WALK;
    let mut entries = Vec::new();
    engine.sync_changes(*now, &mut entries).unwrap();
    entries.into_iter().collect()
}

/// Returns the entries of a transfer of the whole table.
fn transferred_entries(engine: &mut Engine) -> BTreeSet<u32> {
    let (mut entries, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        next = engine.scan(from, &mut entries);
    }
    entries.into_iter().collect()
}

fn records_of(engine: &mut Engine, entries: &BTreeSet<u32>) -> Vec<Record> {
    let mut records = Vec::new();
    for entry in entries {
        engine.export(*entry, &mut records);
    }
    records
}

#[test]
fn half_open_flows_are_not_sent_by_walk_or_transfer() {
    if !is_root() {
        return;
    }
    for (name, persistence) in [("flood", None), ("flood-p", Some(Persistence::default()))] {
        let topology = Topology::new(name);
        topology.run(async |paths| {
            let mut configuration = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
            configuration.services[0].persistence = persistence;
            let mut director = Director::open(paths, &configuration).await.unwrap();
            director.engine().set_sync(true).unwrap();
            let mut now = Duration::ZERO;
            // The servers reject the connections, and the director does not see the servers' packets.
            for _ in 0..HALF_OPEN {
                topology.connect_without_service(VIP, PORT);
            }
            assert!(director.live_flows("web", None) >= HALF_OPEN);
            let engine = director.engine();
            assert_eq!(changed_entries(engine, &mut now), BTreeSet::new());
            assert_eq!(transferred_entries(engine), BTreeSet::new());
            topology.serve(VIP, PORT);
            let mut connection = topology.connect(VIP, PORT);
            connection.server();
            let changed = changed_entries(engine, &mut now);
            assert_eq!(changed.len(), 1, "the established connection");
            let kinds: Vec<Kind> = records_of(engine, &changed)
                .iter()
                .map(|it| it.kind)
                .collect();
            let expected: &[Kind] = match persistence {
                Some(_) => &[Kind::Template, Kind::Flow],
                None => &[Kind::Flow],
            };
            assert_eq!(kinds, expected);
            assert_eq!(transferred_entries(engine).len(), expected.len());
        });
    }
}

#[test]
fn flow_with_packets_is_sent_again_after_a_third_of_its_timeout() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("refresh");
    topology.serve(VIP, PORT);
    topology.run(async |paths| {
        let mut configuration = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
        configuration.timeouts.tcp = Duration::from_secs(9);
        let third = ticks_from(configuration.timeouts.tcp) / 3;
        let mut director = Director::open(paths, &configuration).await.unwrap();
        let engine = director.engine();
        engine.set_sync(true).unwrap();
        let mut now = Duration::ZERO;
        let mut connection = topology.connect(VIP, PORT);
        let mut sent_at = Instant::now();
        connection.server();
        let entries = changed_entries(engine, &mut now);
        assert_eq!(records_of(engine, &entries).len(), 1);
        for _ in 0..2 {
            let (entries, before) = loop {
                // The machine may be busy between the packet and the end of the iteration.
                let before = Instant::now();
                connection.server();
                let entries = changed_entries(engine, &mut now);
                if !entries.is_empty() {
                    break (entries, before);
                }
                assert!(sent_at.elapsed() < TIMEOUT, "the flow was not sent again");
                std::thread::sleep(Duration::from_millis(20));
            };
            assert_eq!(records_of(engine, &entries).len(), 1);
            // The last packet may have been sent at the end of a tick.
            let shortest = ticks_to_duration(third - 1);
            assert!(
                sent_at.elapsed() >= shortest,
                "sent after {:?}",
                sent_at.elapsed()
            );
            sent_at = before;
        }
    });
}

/// Returns the record of a client's flow to the second server.
fn record(number: u32) -> Record {
    let client = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + number);
    Record {
        kind: Kind::Flow,
        proto: 6,
        state: 1,
        active: true,
        client: (client.into(), 40_000),
        vip: (VIP.parse().unwrap(), PORT),
        server: (BOTH[1].parse().unwrap(), 0),
        idle_ms: 0,
        age_s: 5,
        service: None,
        snat: None,
        timeout_ms: None,
        whole_service: false,
    }
}

#[test]
fn flows_of_a_peer_with_a_larger_table_are_inserted_unchanged_or_counted() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("smaller");
    topology.run(async |paths| {
        let configuration = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
        assert!(u64::from(PEER_FLOWS) > u64::from(configuration.node.max_flows));
        let mut director = Director::open(paths, &configuration).await.unwrap();
        let engine = director.engine();
        engine.set_sync(true).unwrap();
        let records: Vec<Record> = (0..PEER_FLOWS).map(record).collect();
        engine.sync_insert(&records).unwrap();
        let counts = engine.sync_counts();
        assert!(counts.inserted > 0 && counts.full > 0, "{counts:?}");
        let (rejected, all) = (counts.full, u64::from(PEER_FLOWS));
        assert_eq!(counts.inserted + rejected, all, "{counts:?}");
        let entries = transferred_entries(engine);
        let stored = records_of(engine, &entries);
        assert_eq!(stored.len() as u64, counts.inserted);
        let identity = |it: &Record| (it.client, it.vip, it.server.0);
        let sent: BTreeSet<_> = records.iter().map(identity).collect();
        let stored: BTreeSet<_> = stored.iter().map(identity).collect();
        assert_eq!(stored.len() as u64, counts.inserted, "no flow twice");
        assert!(stored.is_subset(&sent));
        assert_eq!(director.live_flows("web", None), counts.inserted);
    });
}
