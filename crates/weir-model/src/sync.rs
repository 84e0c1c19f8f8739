//! Defines the settings of `[sync]`, flow synchronization with other directors.

use std::net::SocketAddr;

use crate::Secret;

/// Settings of `[sync]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FlowSync {
    /// Address and port for sending and receiving datagrams.
    pub listen: SocketAddr,
    /// Addresses and ports of the other directors (their `listen`), at least one. All have the same address family as
    /// `listen`.
    pub peers: Vec<SocketAddr>,
    /// The key that all directors share.
    pub key: Secret,
}

impl FlowSync {
    /// Minimum length of the key, in bytes.
    pub const MIN_KEY_BYTES: usize = 16;

    /// Returns the number of directors, including this one.
    pub fn directors(&self) -> usize {
        self.peers.len() + 1
    }

    /// Returns this director's number, from 0: its position in the sorted list of all directors' addresses. All
    /// directors derive the same numbers, because each director lists all others.
    pub fn number(&self) -> usize {
        self.peers
            .iter()
            .filter(|peer| **peer < self.listen)
            .count()
    }

    /// Returns this director's part of a range of source ports. The range is divided among the directors in the order
    /// of their numbers, so that flows that two directors accept at the same time have different ports. The sizes of
    /// the parts differ by at most one port. `None` if there are fewer ports than directors.
    pub fn own_ports(&self, (first, last): (u16, u16)) -> Option<(u16, u16)> {
        let length = (usize::from(last) + 1).checked_sub(first.into())?;
        let (number, directors) = (self.number(), self.directors());
        if length < directors {
            return None;
        }
        let start = length * number / directors;
        let end = length * (number + 1) / directors;
        let port = |offset: usize| u16::try_from(usize::from(first) + offset).ok();
        Some((port(start)?, port(end - 1)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow_sync(index: usize, count: usize) -> FlowSync {
        // In text order, 10.0.0.10 would come before 10.0.0.9.
        let address = |number: usize| SocketAddr::from(([10, 0, 0, 9 + number as u8], 8482));
        let mut all: Vec<SocketAddr> = (0..count).map(address).collect();
        let listen = all.remove(index);
        all.reverse();
        FlowSync {
            listen,
            peers: all,
            key: Secret::new(crate::SecretSource::Text, Vec::new()),
        }
    }

    #[test]
    fn directors_divide_the_range_without_gap_or_overlap() {
        for count in 2..=5 {
            for range in [(20_000, 32_767), (1, 65_535), (7, 7 + count as u16 - 1)] {
                let mut next = u32::from(range.0);
                for number in 0..count {
                    let sync = flow_sync(number, count);
                    assert_eq!((sync.number(), sync.directors()), (number, count));
                    let (first, last) = sync.own_ports(range).unwrap();
                    assert_eq!(u32::from(first), next);
                    assert!(first <= last);
                    next = u32::from(last) + 1;
                }
                assert_eq!(next, u32::from(range.1) + 1);
            }
        }
    }

    #[test]
    fn each_of_two_directors_gets_half_of_the_ports() {
        let range = (20_000, 32_767);
        assert_eq!(flow_sync(0, 2).own_ports(range), Some((20_000, 26_383)));
        assert_eq!(flow_sync(1, 2).own_ports(range), Some((26_384, 32_767)));
    }

    #[test]
    fn range_with_too_few_ports_is_not_divided() {
        assert_eq!(flow_sync(0, 3).own_ports((5, 6)), None);
        assert_eq!(flow_sync(2, 3).own_ports((5, 6)), None);
    }
}
