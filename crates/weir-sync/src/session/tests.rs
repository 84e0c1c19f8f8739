//! Tests how a session fills datagrams and handles acknowledgements.

use std::net::{IpAddr, Ipv6Addr};

use super::*;
use crate::record::{Kind, ServiceId};

/// A table in which every entry is a flow with its template, both of the maximum length.
#[derive(Default)]
struct LongRecords {
    prefetched: Vec<u32>,
}

fn longest_record() -> Record {
    let endpoint = (IpAddr::V6(Ipv6Addr::from([0xfd; 16])), 443);
    Record {
        kind: Kind::Template,
        proto: 6,
        state: 1,
        active: true,
        client: endpoint,
        vip: endpoint,
        server: endpoint,
        idle_ms: u32::MAX,
        age_s: u32::MAX,
        service: Some(ServiceId::Listener(6, endpoint.0, endpoint.1)),
        snat: Some(endpoint),
        timeout_ms: Some(u32::MAX),
        whole_service: true,
    }
}

impl Source for LongRecords {
    fn prefetch(&mut self, entry: u32) {
        self.prefetched.push(entry);
    }

    fn export(&mut self, _entry: u32, records: &mut Vec<Record>) {
        records.extend([longest_record(); 2]);
    }

    fn scan(&mut self, _from: u32, _entries: &mut Vec<u32>) -> Option<u32> {
        None
    }
}

fn session() -> Session {
    Session::new(&Key::new(b"one key for both"), [1; 32], 0, Duration::ZERO)
}

#[test]
fn longest_record_is_within_the_limit() {
    let mut item = Vec::new();
    Item::Flow(longest_record()).encode(&mut item);
    assert!(item.len() <= MAX_RECORD_BYTES, "{} bytes", item.len());
}

#[test]
fn decode_items_counts_records() {
    let mut body = Vec::new();
    assert_eq!(crate::decode_items(&body), 0);
    for item in [
        Item::Flow(longest_record()),
        Item::Complete,
        Item::Flow(longest_record()),
    ] {
        item.encode(&mut body);
    }
    assert_eq!(crate::decode_items(&body), 2);
}

#[test]
fn datagram_is_full_if_two_records_of_the_maximum_length_may_not_fit() {
    for (free_bytes, expected) in [(2 * MAX_RECORD_BYTES - 1, 0), (2 * MAX_RECORD_BYTES, 1)] {
        let mut session = session();
        session.queue.push_back((7, Duration::ZERO));
        let mut body = vec![0; MAX_BODY_BYTES - free_bytes];
        let filled = session.fill(Duration::ZERO, &mut LongRecords::default(), &mut body);
        let entries = filled.map_or(0, |datagram| datagram.entries.len());
        assert_eq!(entries, expected, "{free_bytes}");
        assert_eq!(session.counts.sent, 2 * expected as u64);
        assert!(body.len() <= MAX_BODY_BYTES);
    }
}

#[test]
fn end_of_the_table_is_sent_if_it_fits() {
    for (free_bytes, expected) in [(2, false), (3, true)] {
        let mut session = session();
        session.announce_complete = true;
        let mut body = vec![0; MAX_BODY_BYTES - free_bytes];
        let filled = session.fill(Duration::ZERO, &mut LongRecords::default(), &mut body);
        assert_eq!(filled.is_some_and(|datagram| datagram.completes), expected);
        assert_eq!(session.announce_complete, !expected);
        assert!(body.len() <= MAX_BODY_BYTES);
    }
}

#[test]
fn entries_are_prefetched_before_they_are_exported() {
    let mut session = session();
    session
        .queue
        .extend((0..20).map(|entry| (entry, Duration::ZERO)));
    let mut source = LongRecords::default();
    let filled = session.fill(Duration::ZERO, &mut source, &mut Vec::new());
    let exported = filled.map(|datagram| datagram.entries).unwrap_or_default();
    assert!(!exported.is_empty());
    let expected = exported
        .iter()
        .map(|entry| entry + 1 + PREFETCH_DISTANCE as u32);
    assert_eq!(source.prefetched, expected.collect::<Vec<_>>());
}

#[test]
fn wait_for_the_next_acknowledgement_begins_at_the_last_one() {
    let mut session = session();
    let received_at = Duration::from_secs(5);
    session.adopt(Remote {
        id: [9; 16],
        cipher: session.key.cipher(&[9; 16]).unwrap(),
        window: Window::default(),
        challenge: 1,
        features: 0,
        received_at,
        complete: false,
    });
    for number in [0, 1, 2] {
        let datagram = InFlight {
            sent_at: Duration::ZERO,
            queued_at: Duration::ZERO,
            entries: Vec::new(),
            slots: Vec::new(),
            completes: false,
        };
        session.in_flight.insert(number, datagram);
    }
    session.handle_ack(1, &[0b01]);
    assert_eq!(session.in_flight.keys().collect::<Vec<_>>(), [&0, &2]);
    assert_eq!(session.waiting_since, Some(received_at));
    for (ms, is_alive, is_unacknowledged) in [
        (7_999, true, false),
        (8_000, false, false),
        (8_001, false, true),
    ] {
        let now = Duration::from_millis(ms);
        assert_eq!(session.is_alive(now), is_alive, "{ms}");
        assert_eq!(session.is_unacknowledged(now), is_unacknowledged, "{ms}");
    }
    session.handle_ack(2, &[0b101]);
    assert!(session.in_flight.is_empty());
    assert_eq!(session.waiting_since, None);
}

#[test]
fn acknowledgement_covers_512_datagrams() {
    let mut session = session();
    for number in [0, 1] {
        session.in_flight.insert(
            number,
            InFlight {
                sent_at: Duration::ZERO,
                queued_at: Duration::ZERO,
                entries: vec![7],
                slots: Vec::new(),
                completes: false,
            },
        );
    }
    session.handle_ack(512, &[0xff; 64]);
    assert_eq!(session.counts.lost, 1, "datagram 0 is not covered");
    assert_eq!(session.queue, [(7, Duration::ZERO)]);
}

#[test]
fn transfer_queues_entries_while_fewer_than_512_are_queued() {
    for (queued, expected) in [(511, None), (512, Some(0))] {
        let mut session = session();
        session.queue.extend([(7, Duration::ZERO)].repeat(queued));
        session.send_all();
        session.extend_transfer(Duration::ZERO, &mut LongRecords::default());
        assert_eq!(session.transfer_entry, expected, "{queued} entries");
    }
}

#[test]
fn source_has_no_proxied_connections_by_default() {
    let source = LongRecords::default();
    assert_eq!((source.connection_slots(), source.connection(0)), (0, None));
}

/// The other entries stay in the queue until the peer acknowledges datagrams.
#[test]
fn unacknowledged_datagrams_are_limited() {
    let mut session = session();
    session
        .queue
        .extend((0..10_000).map(|entry| (entry, Duration::ZERO)));
    let mut sent = 0;
    while let Some(datagram) =
        session.fill(Duration::ZERO, &mut LongRecords::default(), &mut Vec::new())
    {
        session.in_flight.insert(sent, datagram);
        sent += 1;
    }
    assert_eq!(sent, MAX_IN_FLIGHT as u64);
    assert!(!session.queue.is_empty());
    session.in_flight.remove(&0);
    let filled = session.fill(Duration::ZERO, &mut LongRecords::default(), &mut Vec::new());
    assert!(filled.is_some());
}
