//! Lists the TCP connections that a director's proxy holds, for the peers.
//!
//! A peer cannot continue such a connection. It needs the list so that it can end the connections quickly when it takes
//! over their VIP. Each connection has a slot number in the sender's list. A record sets or clears one slot, so it can
//! be sent again, and the peer's list never grows beyond [`MAX_CONNECTIONS`].
//!
//! ```text
//!  0 slot
//!  4 address family (4 or 6), or 0 = the slot is free; a free slot has no further bytes
//!  5 client port, VIP port
//!  9 client, VIP: 4 or 16 bytes each
//! ```

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use crate::record::{Reader, family, put_address};

/// Maximum number of connections in the list of a director.
pub const MAX_CONNECTIONS: usize = 1 << 16;
/// Maximum number of connections that are stored until the next sample, which decides whether they are listed.
const MAX_NEW_CONNECTIONS: usize = 4 * MAX_CONNECTIONS;
/// Maximum length of an encoded record and its item header, in bytes.
pub(crate) const MAX_CONNECTION_BYTES: usize = 3 + 9 + 2 * 16;

/// A connection of a client to a proxied listener. Both addresses have the same family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The address and port that the client is connected to.
    pub vip: SocketAddr,
}

/// The content of a slot; `None` = the slot is free.
pub(crate) type Content = Option<Connection>;

pub(crate) fn encode(slot: u32, content: Content, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&slot.to_be_bytes());
    let Some(Connection { client, vip }) = content else {
        bytes.push(0);
        return;
    };
    bytes.push(family(client.ip()));
    bytes.extend_from_slice(&client.port().to_be_bytes());
    bytes.extend_from_slice(&vip.port().to_be_bytes());
    put_address(bytes, client.ip());
    put_address(bytes, vip.ip());
}

/// Decodes a record. Returns `None` if it is truncated, or if its address family is unknown.
pub(crate) fn decode(bytes: &[u8]) -> Option<(u32, Content)> {
    let mut reader = Reader(bytes);
    let (slot, family) = (reader.u32()?, reader.u8()?);
    if family == 0 {
        return Some((slot, None));
    }
    let (client_port, vip_port) = (reader.u16()?, reader.u16()?);
    let (client, vip) = (reader.address(family)?, reader.address(family)?);
    let connection = Connection {
        client: SocketAddr::new(client, client_port),
        vip: SocketAddr::new(vip, vip_port),
    };
    Some((slot, Some(connection)))
}

/// A change to the list: a slot and its new content, `None` = free.
pub type Change = (u32, Option<Connection>);

/// Assigns slots to this director's connections. A connection is listed if two consecutive samples contain it, so short
/// connections cause no changes.
#[derive(Debug, Default)]
pub struct ConnectionTable {
    slots: HashMap<Connection, u32>,
    free: Vec<u32>,
    /// Number of slots that have ever been used.
    used: u32,
    /// Connections of the last sample that are not listed.
    new: HashSet<Connection>,
    excess: usize,
}

impl ConnectionTable {
    /// Adopts a sample of all connections. Returns the changes to the list.
    pub fn update(&mut self, sample: &HashSet<Connection>) -> Vec<Change> {
        let mut changes = Vec::new();
        self.slots.retain(|connection, slot| {
            let is_open = sample.contains(connection);
            if !is_open {
                self.free.push(*slot);
                changes.push((*slot, None));
            }
            is_open
        });
        let previous = std::mem::take(&mut self.new);
        self.excess = 0;
        for connection in sample {
            if self.slots.contains_key(connection) {
                continue;
            }
            if !previous.contains(connection) {
                if self.new.len() < MAX_NEW_CONNECTIONS {
                    self.new.insert(*connection);
                }
                continue;
            }
            match self.allocate() {
                Some(slot) => {
                    self.slots.insert(*connection, slot);
                    changes.push((slot, Some(*connection)));
                }
                None => {
                    // Keep the connection: a slot can become free later.
                    self.new.insert(*connection);
                    self.excess += 1;
                }
            }
        }
        changes
    }

    fn allocate(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.used as usize >= MAX_CONNECTIONS {
            return None;
        }
        self.used += 1;
        Some(self.used - 1)
    }

    /// Returns the number of listed connections.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether no connection is listed.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the number of connections in the last sample that were not listed because all slots were used.
    pub const fn excess(&self) -> usize {
        self.excess
    }
}

/// The list of a peer.
#[derive(Debug, Default)]
pub(crate) struct PeerConnections {
    /// Content by slot, with the sequence number of the datagram that set it.
    slots: Vec<(u64, Content)>,
    count: usize,
}

impl PeerConnections {
    /// Sets the content of a slot, unless a later datagram has already set it. Slots above the maximum are ignored.
    pub(crate) fn set(&mut self, slot: u32, content: Content, sequence: u64) {
        let index = slot as usize;
        if index >= MAX_CONNECTIONS {
            return;
        }
        if index >= self.slots.len() {
            self.slots.resize(index + 1, (0, None));
        }
        if let Some((set_by, current)) = self.slots.get_mut(index)
            && sequence >= *set_by
        {
            self.count -= usize::from(current.is_some());
            self.count += usize::from(content.is_some());
            (*set_by, *current) = (sequence, content);
        }
    }

    /// Removes and returns the connections to these addresses.
    pub(crate) fn take(&mut self, vips: &HashSet<IpAddr>) -> Vec<Connection> {
        let is_to_vip = |connection: &mut Connection| vips.contains(&connection.vip.ip());
        let slots = self.slots.iter_mut();
        let connections: Vec<Connection> = slots
            .filter_map(|(_, content)| content.take_if(is_to_vip))
            .collect();
        self.count -= connections.len();
        connections
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::item::Item;

    fn connection(port: u16) -> Connection {
        Connection {
            client: SocketAddr::from(([192, 0, 2, 1], port)),
            vip: SocketAddr::from(([198, 51, 100, 1], 80)),
        }
    }

    fn sample(ports: std::ops::Range<u16>) -> HashSet<Connection> {
        ports.map(connection).collect()
    }

    #[test]
    fn connection_is_listed_if_two_samples_contain_it() {
        let mut table = ConnectionTable::default();
        assert_eq!(table.update(&sample(1..3)), []);
        assert_eq!(table.update(&sample(2..4)), [(0, Some(connection(2)))]);
        assert_eq!(table.update(&sample(2..4)), [(1, Some(connection(3)))]);
        assert_eq!(table.update(&sample(2..4)), []);
        assert_eq!((table.len(), table.is_empty()), (2, false));
        // A connection that ends frees its slot for the next one.
        assert_eq!(table.update(&sample(3..5)), [(0, None)]);
        assert_eq!(table.update(&sample(3..5)), [(0, Some(connection(4)))]);
        assert_eq!(table.update(&sample(0..0)).len(), 2);
        assert!(table.is_empty());
    }

    #[test]
    fn excess_connections_are_counted_and_listed_when_slots_become_free() {
        let client = |number: u32| Connection {
            client: SocketAddr::new(IpAddr::V4(number.into()), 1),
            vip: connection(1).vip,
        };
        let limit = MAX_CONNECTIONS as u32;
        let all_connections: HashSet<Connection> = (0..limit + 5).map(client).collect();
        let mut table = ConnectionTable::default();
        assert_eq!(table.update(&all_connections), []);
        assert_eq!(table.update(&all_connections).len(), MAX_CONNECTIONS);
        assert_eq!((table.len(), table.excess()), (MAX_CONNECTIONS, 5));
        let listed_connections: Vec<Connection> = table.slots.keys().copied().collect();
        let fewer: HashSet<Connection> = all_connections
            .iter()
            .copied()
            .filter(|it| !listed_connections[..5].contains(it))
            .collect();
        assert_eq!(table.update(&fewer).len(), 10);
        assert_eq!((table.len(), table.excess()), (MAX_CONNECTIONS, 0));
    }

    #[test]
    fn older_datagram_does_not_overwrite_a_slot() {
        let mut peer = PeerConnections::default();
        peer.set(4, Some(connection(1)), 7);
        peer.set(4, None, 6);
        peer.set(MAX_CONNECTIONS as u32, Some(connection(2)), 8);
        assert_eq!(peer.len(), 1);
        let (vips, others) = (
            [connection(1).vip.ip()].into(),
            [[192, 0, 2, 1].into()].into(),
        );
        assert_eq!(peer.take(&others), []);
        assert_eq!(peer.take(&vips), [connection(1)]);
        assert_eq!((peer.len(), peer.take(&vips)), (0, vec![]));
        // The peer still has the connection, and reports later that it has ended.
        peer.set(4, None, 9);
        assert_eq!(peer.len(), 0);
    }

    /// A datagram is full if there is no space for the longest record.
    #[test]
    fn longest_record_has_the_maximum_length() {
        let ipv6 = SocketAddr::from(([0xfd; 16], 443));
        let content = Some(Connection {
            client: ipv6,
            vip: ipv6,
        });
        let mut item = Vec::new();
        Item::Connection(u32::MAX, content).encode(&mut item);
        assert_eq!(item.len(), MAX_CONNECTION_BYTES);
    }

    #[test]
    fn stored_connections_of_one_sample_are_limited() {
        let client = |number: u32| Connection {
            client: SocketAddr::new(IpAddr::V4(number.into()), 1),
            vip: connection(1).vip,
        };
        let limit = 4 * MAX_CONNECTIONS;
        for (size, stored) in [(limit - 1, limit - 1), (limit + 2, limit)] {
            let mut table = ConnectionTable::default();
            let sample = (0..size as u32).map(client).collect();
            assert_eq!(table.update(&sample), []);
            assert_eq!(table.new.len(), stored);
        }
    }

    fn endpoint(v6: bool) -> BoxedStrategy<SocketAddr> {
        if v6 {
            any::<([u8; 16], u16)>().prop_map(SocketAddr::from).boxed()
        } else {
            any::<([u8; 4], u16)>().prop_map(SocketAddr::from).boxed()
        }
    }

    proptest! {
        #[test]
        fn record_round_trips(
            slot in any::<u32>(),
            ends in any::<bool>().prop_flat_map(|v6| prop::option::of((endpoint(v6), endpoint(v6)))),
        ) {
            let content = ends.map(|(client, vip)| Connection { client, vip });
            let mut bytes = Vec::new();
            encode(slot, content, &mut bytes);
            prop_assert!(bytes.len() + 3 <= MAX_CONNECTION_BYTES);
            prop_assert_eq!(decode(&bytes), Some((slot, content)));
            for length in 0..bytes.len() {
                prop_assert_eq!(decode(&bytes[..length]), None);
            }
        }
    }
}
