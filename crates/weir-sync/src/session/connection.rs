//! Sends the list of proxied connections, and keeps the peer's list.
//!
//! Slots are queued, not their contents, so a record is never out of date when it is sent. Flows are sent first.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::{Session, Source};
use crate::connection::{Connection, MAX_CONNECTION_BYTES, PeerConnections};
use crate::item::{FEATURE_CONNECTIONS, Item};
use crate::seal::MAX_BODY_BYTES;

/// Maximum number of queued slots; if the queue overflows, all slots are sent.
const MAX_QUEUED_SLOTS: usize = 1 << 16;
/// Number of slots that a transfer of all slots queues at once.
const TRANSFER_SLOTS: u32 = 64;

/// The list of connections to send, and the peer's list.
#[derive(Debug, Default)]
pub(super) struct ConnectionLists {
    queue: VecDeque<u32>,
    /// The slot at which the transfer of all slots continues; `None` if no transfer is in progress.
    transfer_slot: Option<u32>,
    pub(super) peer: PeerConnections,
}

impl ConnectionLists {
    /// Starts sending all slots from the beginning.
    pub(super) fn send_all(&mut self) {
        self.queue.clear();
        self.transfer_slot = Some(0);
    }

    /// Queues the slots of a lost datagram again.
    pub(super) fn resend(&mut self, slots: Vec<u32>) {
        self.queue.extend(slots);
    }

    fn extend_transfer(&mut self, source: &impl Source) {
        let Some(from) = self.transfer_slot.filter(|_| self.queue.is_empty()) else {
            return;
        };
        let slots = source.connection_slots();
        let end = slots.min(from.saturating_add(TRANSFER_SLOTS));
        self.queue.extend(from..end);
        self.transfer_slot = (end < slots).then_some(end);
    }

    /// Appends records to `body`. Returns their slots.
    pub(super) fn fill(&mut self, source: &impl Source, body: &mut Vec<u8>) -> Vec<u32> {
        let mut slots = Vec::new();
        loop {
            self.extend_transfer(source);
            if MAX_BODY_BYTES.saturating_sub(body.len()) < MAX_CONNECTION_BYTES {
                break;
            }
            let Some(slot) = self.queue.pop_front() else {
                break;
            };
            Item::Connection(slot, source.connection(slot)).encode(body);
            slots.push(slot);
        }
        slots
    }
}

impl Session {
    /// Returns whether the peer responds and supports the list of proxied connections.
    pub fn accepts_connections(&self, now: Duration) -> bool {
        let remote = self.remote.as_ref();
        let features = remote.map_or(0, |remote| remote.features);
        features & FEATURE_CONNECTIONS != 0 && self.is_alive(now)
    }

    /// Queues a changed slot of the list of proxied connections for sending.
    pub fn queue_connection(&mut self, slot: u32, now: Duration) {
        if !self.accepts_connections(now) {
            // The peer gets all slots when it returns.
            return;
        }
        if self.connections.queue.len() >= MAX_QUEUED_SLOTS {
            self.connections.send_all();
        }
        // A transfer sends the slots that it has not reached yet.
        let transfer_slot = self.connections.transfer_slot;
        if transfer_slot.is_none_or(|transfer_slot| slot < transfer_slot) {
            self.connections.queue.push_back(slot);
        }
    }

    /// Returns the number of proxied connections in the peer's list.
    pub const fn peer_connections(&self) -> usize {
        self.connections.peer.len()
    }

    /// Removes and returns the connections to these addresses from the peer's list. Visits the whole list once.
    pub fn take_peer_connections(&mut self, vips: &HashSet<IpAddr>) -> Vec<Connection> {
        self.connections.peer.take(vips)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;

    use super::*;
    use crate::record::Record;
    use crate::seal::{Key, MAX_DATAGRAM};
    use crate::session::PeerState;

    const STEP: Duration = Duration::from_millis(5);

    /// A list of connections without flows.
    struct List(Vec<Option<Connection>>);

    impl Source for List {
        fn export(&mut self, _entry: u32, _records: &mut Vec<Record>) {}

        fn prefetch(&mut self, _entry: u32) {}

        fn scan(&mut self, _from: u32, _entries: &mut Vec<u32>) -> Option<u32> {
            None
        }

        fn connection_slots(&self) -> u32 {
            self.0.len() as u32
        }

        fn connection(&self, slot: u32) -> Option<Connection> {
            self.0[slot as usize]
        }
    }

    fn vip(number: u8) -> IpAddr {
        IpAddr::from([198, 51, 100, number])
    }

    fn connection(slot: u16) -> Connection {
        Connection {
            client: SocketAddr::from(([192, 0, 2, 1], slot)),
            vip: SocketAddr::new(vip((slot % 2) as u8), 80),
        }
    }

    struct Pair {
        active: Session,
        list: List,
        standby: Session,
        now: Duration,
        sent: usize,
    }

    impl Pair {
        fn new(connections: u16) -> Self {
            let key = Key::new(b"one key for both");
            let now = Duration::from_secs(10);
            Self {
                active: Session::new(&key, [1; 32], 0, now),
                list: List(
                    (0..connections)
                        .map(|slot| Some(connection(slot)))
                        .collect(),
                ),
                standby: Session::new(&key, [2; 32], 0, now),
                now,
                sent: 0,
            }
        }

        /// Exchanges datagrams for this time. Every `nth` datagram from the active director is lost; 0 = none.
        fn run(&mut self, time: Duration, nth: usize) {
            let end = self.now + time;
            while self.now < end {
                self.now += STEP;
                while let Some(mut datagram) = self.active.poll(self.now, &mut self.list) {
                    assert!(datagram.len() <= MAX_DATAGRAM, "{} bytes", datagram.len());
                    self.sent += 1;
                    if nth == 0 || !self.sent.is_multiple_of(nth) {
                        let _ = self
                            .standby
                            .handle(&mut datagram, self.now, &mut Vec::new());
                    }
                }
                while let Some(mut datagram) = self.standby.poll(self.now, &mut List(Vec::new())) {
                    let _ = self.active.handle(&mut datagram, self.now, &mut Vec::new());
                }
            }
        }

        fn set(&mut self, slot: u32, content: Option<Connection>) {
            self.list.0[slot as usize] = content;
            self.active.queue_connection(slot, self.now);
        }
    }

    #[test]
    fn peer_gets_all_connections_then_changes_despite_losses() {
        let mut pair = Pair::new(5000);
        pair.run(Duration::from_secs(4), 3);
        assert_eq!(pair.standby.peer_connections(), 5000);
        for slot in 0..1000 {
            pair.set(slot, None);
        }
        pair.set(7, Some(connection(9999)));
        pair.run(Duration::from_secs(4), 3);
        assert_eq!(pair.standby.peer_connections(), 4001);
        let vip_connections = pair.standby.take_peer_connections(&[vip(1)].into());
        assert_eq!(vip_connections.len(), 2001);
        assert!(vip_connections.contains(&connection(9999)));
        assert_eq!(pair.standby.peer_connections(), 2000);
        let both_vips = [vip(0), vip(1)].into();
        assert_eq!(pair.standby.take_peer_connections(&both_vips).len(), 2000);
        assert_eq!(pair.standby.peer_connections(), 0);
    }

    #[test]
    fn datagram_is_full_if_the_longest_record_may_not_fit() {
        let longest = Connection {
            client: SocketAddr::from(([0xfd; 16], 1)),
            vip: SocketAddr::from(([0xfc; 16], 80)),
        };
        let list = List(vec![Some(longest); 2]);
        for (free_bytes, slots) in [
            (MAX_CONNECTION_BYTES - 1, &[][..]),
            (MAX_CONNECTION_BYTES, &[0]),
            (2 * MAX_CONNECTION_BYTES - 1, &[0]),
            (2 * MAX_CONNECTION_BYTES, &[0, 1]),
        ] {
            let mut lists = ConnectionLists::default();
            lists.send_all();
            let mut body = vec![0; MAX_BODY_BYTES - free_bytes];
            assert_eq!(lists.fill(&list, &mut body), slots, "{free_bytes}");
            assert!(body.len() <= MAX_BODY_BYTES);
        }
    }

    /// Changes the slots, and returns how often each slot is sent until the transfer that is in progress has ended.
    fn times_sent(pair: &mut Pair, slots: &[u32]) -> BTreeMap<u32, usize> {
        for slot in slots {
            pair.active.queue_connection(*slot, pair.now);
        }
        let mut times = BTreeMap::new();
        while pair.active.poll(pair.now, &mut pair.list).is_some() {}
        let in_flight = pair.active.in_flight.values();
        for slot in in_flight.flat_map(|datagram| &datagram.slots) {
            *times.entry(*slot).or_default() += 1;
        }
        slots.iter().map(|slot| (*slot, times[slot])).collect()
    }

    #[test]
    fn transfer_sends_a_changed_slot_again_only_if_it_was_queued_before() {
        let mut pair = Pair::new(300);
        // The peer's first hello starts the transfer. The first datagram of the transfer has fewer than 128 slots.
        let mut hello = pair.active.poll(pair.now, &mut pair.list).unwrap();
        let _ = pair.standby.handle(&mut hello, pair.now, &mut Vec::new());
        let mut hello = pair.standby.poll(pair.now, &mut List(Vec::new())).unwrap();
        let handled = pair.active.handle(&mut hello, pair.now, &mut Vec::new());
        assert_eq!(handled, Ok(()));
        assert!(pair.active.poll(pair.now, &mut pair.list).is_some());
        assert_eq!(pair.active.connections.transfer_slot, Some(128));
        let times = times_sent(&mut pair, &[0, 127, 128, 299]);
        assert_eq!(times, [(0, 2), (127, 2), (128, 1), (299, 1)].into());
        assert_eq!(pair.active.connections.transfer_slot, None);
    }

    #[test]
    fn all_slots_are_sent_if_too_many_changes_are_queued() {
        let mut pair = Pair::new(10);
        pair.run(Duration::from_secs(2), 0);
        let queue_len = |pair: &Pair| pair.active.connections.queue.len();
        for _ in 0..MAX_QUEUED_SLOTS {
            pair.active.queue_connection(3, pair.now);
        }
        assert_eq!(queue_len(&pair), MAX_QUEUED_SLOTS);
        assert_eq!(pair.active.connections.transfer_slot, None);
        pair.active.queue_connection(4, pair.now);
        assert_eq!(queue_len(&pair), 0);
        assert_eq!(pair.active.connections.transfer_slot, Some(0));
    }

    #[test]
    fn list_of_a_silent_peer_remains_and_is_replaced_when_it_restarts() {
        let mut pair = Pair::new(300);
        pair.run(Duration::from_secs(2), 0);
        pair.run(Duration::from_secs(6), 1);
        assert!(!pair.standby.accepts_connections(pair.now));
        assert_eq!(pair.standby.peer_connections(), 300);
        // Changes while the peer is unreachable are in the list that it gets afterwards.
        pair.set(0, None);
        pair.run(Duration::from_secs(2), 0);
        assert_eq!(pair.standby.peer_connections(), 299);
        let key = Key::new(b"one key for both");
        (pair.active, pair.list) = (Session::new(&key, [3; 32], 0, pair.now), List(Vec::new()));
        pair.run(Duration::from_secs(2), 0);
        assert_eq!(pair.standby.peer_connections(), 0);
    }

    /// A firewall can drop the datagrams in one direction only. A director without layer 4 services sends no flows.
    #[test]
    fn peer_that_receives_no_connections_is_unacknowledged() {
        let mut pair = Pair::new(300);
        pair.run(Duration::from_secs(2), 0);
        assert_eq!(pair.active.status(pair.now).lag, Duration::ZERO);
        pair.set(0, None);
        pair.run(Duration::from_secs(6), 1);
        let status = pair.active.status(pair.now);
        assert_eq!(status.state, PeerState::Unacknowledged);
        assert!(status.lag > Duration::from_secs(5), "{:?}", status.lag);
        pair.run(Duration::from_secs(2), 0);
        let status = pair.active.status(pair.now);
        let expected = (PeerState::Established, Duration::ZERO);
        assert_eq!((status.state, status.lag), expected);
    }

    /// The previous version sends a hello without features, and does not acknowledge these records.
    #[test]
    fn previous_version_gets_no_connections() {
        let mut pair = Pair::new(10);
        let mut hello = vec![1, 0, 8];
        hello.extend_from_slice(&7_u64.to_be_bytes());
        let challenge = pair.active.challenge;
        let mut datagram = pair.standby.seal(challenge, &hello).unwrap();
        let handled = pair.active.handle(&mut datagram, pair.now, &mut Vec::new());
        assert_eq!(handled, Ok(()));
        assert!(pair.active.is_alive(pair.now) && !pair.active.accepts_connections(pair.now));
        pair.active.queue_connection(3, pair.now);
        while pair.active.poll(pair.now, &mut pair.list).is_some() {}
        let mut in_flight = pair.active.in_flight.values();
        assert!(in_flight.all(|datagram| datagram.slots.is_empty()));
        assert!(pair.active.connections.queue.is_empty());
        // After an upgrade, the peer gets all slots.
        hello[2] = 9;
        hello.push(FEATURE_CONNECTIONS);
        let mut datagram = pair.standby.seal(challenge, &hello).unwrap();
        let handled = pair.active.handle(&mut datagram, pair.now, &mut Vec::new());
        assert_eq!(handled, Ok(()));
        assert!(pair.active.accepts_connections(pair.now));
        let sent = pair.active.poll(pair.now, &mut pair.list);
        assert!(sent.is_some());
        let mut in_flight = pair.active.in_flight.values();
        assert!(in_flight.any(|datagram| datagram.slots.len() == 10));
    }
}
