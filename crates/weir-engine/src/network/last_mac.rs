//! Stores the MAC address of each next hop, to detect that a next hop has moved or has become unreachable.
//!
//! The kernel removes neighbors when a link goes down, so the last address must be stored here: a neighbor that
//! returns with the same address has not changed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_netlink::{MacAddr, Neighbor, NeighborState};

/// The last known MAC addresses, by device and address of the next hop.
#[derive(Debug, Default)]
pub(crate) struct LastMacs(BTreeMap<(u32, IpAddr), LastMac>);

#[derive(Clone, Copy, Debug)]
struct LastMac {
    mac: MacAddr,
    /// Whether the kernel's entry was valid when it last changed.
    is_valid: bool,
}

/// A change to a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHopChange {
    /// It has a different MAC address.
    NewMac(MacAddr),
    /// It no longer responds.
    Unreachable,
}

impl LastMacs {
    /// Stores the MAC address of an entry in the kernel's table, unless one is already stored for the next hop.
    pub(crate) fn add_unknown(&mut self, neighbor: &Neighbor) {
        if let Some(mac) = neighbor.usable_mac() {
            let key = (neighbor.ifindex, neighbor.ip);
            let is_valid = true;
            self.0.entry(key).or_insert(LastMac { mac, is_valid });
        }
    }

    /// Handles a kernel event for a next hop. Returns the change to report.
    pub(crate) fn handle(&mut self, neighbor: &Neighbor, removed: bool) -> Option<NextHopChange> {
        let key = (neighbor.ifindex, neighbor.ip);
        // The kernel sends a removed entry with its address and the state `NoArp`.
        let usable = neighbor.usable_mac().filter(|_| !removed);
        if let Some(mac) = usable {
            let is_valid = true;
            let previous = self.0.insert(key, LastMac { mac, is_valid })?;
            return (previous.mac != mac).then_some(NextHopChange::NewMac(mac));
        }
        let last = self.0.get_mut(&key)?;
        let is_failed = !removed && neighbor.state == NeighborState::Failed;
        // A removal can mean that this machine's link is down, so it is not reported for each next hop.
        if removed || is_failed {
            let was_valid = std::mem::replace(&mut last.is_valid, false);
            return (was_valid && is_failed).then_some(NextHopChange::Unreachable);
        }
        None
    }

    /// Removes a next hop that no server uses.
    pub(crate) fn remove(&mut self, next_hop: (u32, IpAddr)) {
        self.0.remove(&next_hop);
    }
}

#[cfg(test)]
mod tests {
    use NeighborState::{Failed, Incomplete, NoArp, Probe, Reachable, Stale};

    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn neighbor(mac: MacAddr, state: NeighborState) -> Neighbor {
        Neighbor {
            ifindex: 2,
            ip: [10, 0, 0, 5].into(),
            mac: Some(mac),
            state,
            managed: true,
        }
    }

    fn changes(
        last: &mut LastMacs,
        events: &[(MacAddr, NeighborState, bool)],
    ) -> Vec<Option<NextHopChange>> {
        let events = events.iter();
        events
            .map(|(mac, state, removed)| last.handle(&neighbor(*mac, *state), *removed))
            .collect()
    }

    #[test]
    fn next_hop_that_returns_with_its_mac_address_has_not_moved() {
        let mut last = LastMacs::default();
        last.add_unknown(&neighbor(MAC, Stale));
        // This machine's link goes down and comes up again.
        let events = [
            (MAC, NoArp, true),
            (MacAddr([0; 6]), Incomplete, false),
            (MAC, Reachable, false),
        ];
        assert_eq!(changes(&mut last, &events), [None; 3]);
    }

    #[test]
    fn next_hop_with_a_new_mac_address_has_moved_once() {
        let mut last = LastMacs::default();
        let events = [
            (MAC, Reachable, false),
            (OTHER_MAC, Reachable, false),
            (OTHER_MAC, Stale, false),
            (MAC, NoArp, true),
            (MAC, Reachable, false),
        ];
        let moved = |mac| Some(NextHopChange::NewMac(mac));
        let expected = [None, moved(OTHER_MAC), None, None, moved(MAC)];
        assert_eq!(changes(&mut last, &events), expected);
        last.remove((2, [10, 0, 0, 5].into()));
        assert_eq!(changes(&mut last, &[(OTHER_MAC, Reachable, false)]), [None]);
    }

    #[test]
    fn unreachable_next_hop_is_reported_once() {
        let mut last = LastMacs::default();
        let unresolved = (MacAddr([0; 6]), Failed, false);
        assert_eq!(changes(&mut last, &[unresolved]), [None]);
        let events = [
            (MAC, Reachable, false),
            (MAC, Probe, false),
            (MAC, Failed, false),
            (MAC, Incomplete, false),
            (MAC, Failed, false),
            (MAC, Reachable, false),
            (MAC, Failed, false),
        ];
        let unreachable = Some(NextHopChange::Unreachable);
        let expected = [None, None, unreachable, None, None, None, unreachable];
        assert_eq!(changes(&mut last, &events), expected);
        // After this machine's link was down, a server that does not respond is not reported again.
        let events = [(MAC, Reachable, false), (MAC, NoArp, true), unresolved];
        assert_eq!(changes(&mut last, &events), [None; 3]);
    }
}
