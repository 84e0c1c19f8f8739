//! Determines when a change to the servers is settled.
//!
//! With flow synchronization, directors send only flows that do not match the scheduler's table; peers compute the
//! servers of all other flows. After a change to servers, some flows no longer match the table. Another director must
//! receive such a flow before the flow's packets are routed to that director. A change is therefore settled only when
//! all directors with flow synchronization have applied it and have sent the flows that it moved.

use std::collections::BTreeMap;

use crate::record::MemberRecord;
use crate::shared::SharedKey;

/// Tracks which changes to servers are settled.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// Revision of the newest change for which this director has sent all moved flows.
    acknowledged: i64,
    /// Unsettled changes by operators of this director, with their revisions.
    unsettled_changes: BTreeMap<SharedKey, i64>,
}

impl Settling {
    /// Records that the daemon has sent the flows that changes up to this revision moved.
    pub(crate) fn acknowledge(&mut self, revision: i64) {
        self.acknowledged = self.acknowledged.max(revision);
    }

    pub(crate) const fn acknowledged_revision(&self) -> i64 {
        self.acknowledged
    }

    /// Records the revision at which changes by an operator of this director were stored.
    pub(crate) fn record_changes(&mut self, keys: impl Iterator<Item = SharedKey>, revision: i64) {
        self.unsettled_changes
            .extend(keys.map(|key| (key, revision)));
    }

    /// Removes and returns the changes that all members have settled. Members without flow synchronization or with an
    /// earlier version of Weir have no flows to send.
    pub(crate) fn take_settled(&mut self, members: &[(String, MemberRecord)]) -> Vec<SharedKey> {
        if self.unsettled_changes.is_empty() {
            return Vec::new();
        }
        let revisions = members.iter().filter_map(|(_, member)| member.settled);
        let lowest = revisions.min().unwrap_or(i64::MAX);
        let settled_keys = self
            .unsettled_changes
            .iter()
            .filter(|(_, revision)| **revision <= lowest);
        let settled_keys: Vec<SharedKey> = settled_keys.map(|(key, _)| key.clone()).collect();
        for key in &settled_keys {
            self.unsettled_changes.remove(key);
        }
        settled_keys
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
    fn change_is_settled_when_all_members_with_synchronization_acknowledged_it() {
        let mut settling = Settling::default();
        settling.record_changes([key("a")].into_iter(), 7);
        settling.record_changes([key("b")].into_iter(), 9);
        let mut take_settled = |settled: &[Option<i64>]| settling.take_settled(&members(settled));
        assert_eq!(take_settled(&[Some(7), Some(6), None]), []);
        assert_eq!(take_settled(&[Some(8), Some(7), None]), [key("a")]);
        assert_eq!(take_settled(&[Some(8), Some(8)]), []);
        assert_eq!(take_settled(&[Some(9), Some(12)]), [key("b")]);
        assert_eq!(take_settled(&[Some(20)]), []);
    }

    #[test]
    fn change_is_settled_immediately_without_synchronization() {
        let mut settling = Settling::default();
        settling.record_changes([key("a")].into_iter(), 7);
        assert_eq!(settling.take_settled(&members(&[None, None])), [key("a")]);
    }
}
