//! Determines when a change to servers is settled.
//!
//! With flow synchronization, peers compute the servers of flows that match the scheduler's table, and receive only the
//! other flows. After a change to servers, some flows no longer match the table. Such a flow must not move to another
//! director until that director has received it. A change is therefore settled only when all directors with flow
//! synchronization have applied it and have sent the flows that it has moved.

use std::collections::BTreeMap;

use crate::record::MemberRecord;
use crate::shared::SharedKey;

/// Tracks which changes to servers are settled.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// Revision of the newest change whose moved flows this director has sent.
    acknowledged: i64,
    /// Changes by operators of this director that are not settled, with their revisions.
    awaited: BTreeMap<SharedKey, i64>,
}

impl Settling {
    /// Records that the daemon has sent the flows that the changes up to this revision have moved.
    pub(crate) fn acknowledge(&mut self, revision: i64) {
        self.acknowledged = self.acknowledged.max(revision);
    }

    pub(crate) const fn acknowledged(&self) -> i64 {
        self.acknowledged
    }

    /// Records that changes by an operator of this director are in the store, at this revision.
    pub(crate) fn wrote(&mut self, keys: impl Iterator<Item = SharedKey>, revision: i64) {
        self.awaited.extend(keys.map(|key| (key, revision)));
    }

    /// Removes and returns the changes that all members have settled. Members without flow synchronization, and those
    /// of earlier versions, have no flows to send.
    pub(crate) fn take_settled(&mut self, members: &[(String, MemberRecord)]) -> Vec<SharedKey> {
        if self.awaited.is_empty() {
            return Vec::new();
        }
        let settled = members.iter().filter_map(|(_, member)| member.settled);
        let lowest = settled.min().unwrap_or(i64::MAX);
        let due = self.awaited.iter().filter(|(_, at)| **at <= lowest);
        let due: Vec<SharedKey> = due.map(|(key, _)| key.clone()).collect();
        for key in &due {
            self.awaited.remove(key);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Kind;

    fn key(server: &str) -> SharedKey {
        SharedKey {
            kind: Kind::Override,
            pool: "web".to_owned(),
            server: server.to_owned(),
        }
    }

    fn members(settled: &[Option<i64>]) -> Vec<(String, MemberRecord)> {
        let member = |settled: &Option<i64>| MemberRecord {
            settled: *settled,
            ..MemberRecord::default()
        };
        let members = settled.iter().map(|it| (String::new(), member(it)));
        members.collect()
    }

    #[test]
    fn change_is_settled_when_all_members_with_synchronization_have_it() {
        let mut settling = Settling::default();
        settling.wrote([key("a")].into_iter(), 7);
        settling.wrote([key("b")].into_iter(), 9);
        let mut at = |settled: &[Option<i64>]| settling.take_settled(&members(settled));
        assert_eq!(at(&[Some(7), Some(6), None]), []);
        assert_eq!(at(&[Some(8), Some(7), None]), [key("a")]);
        assert_eq!(at(&[Some(8), Some(8)]), []);
        assert_eq!(at(&[Some(9), Some(12)]), [key("b")]);
        assert_eq!(at(&[Some(20)]), []);
    }

    #[test]
    fn change_is_settled_at_once_without_synchronization() {
        let mut settling = Settling::default();
        settling.wrote([key("a")].into_iter(), 7);
        assert_eq!(settling.take_settled(&members(&[None, None])), [key("a")]);
    }
}
