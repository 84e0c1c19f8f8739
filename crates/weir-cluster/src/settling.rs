//! When a change of servers is settled.
//!
//! With flow synchronization, peers compute the servers of flows that follow the table, and get the other flows. A
//! change of servers moves flows out of the table: until the peers know them, such a flow must not move to another
//! director. An order therefore ends when all directors with synchronization have adopted the change and have sent the
//! flows that it has moved.

use std::collections::BTreeMap;

use crate::record::MemberRecord;
use crate::shared::SharedKey;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// The newest revision of which this director has sent the moved flows.
    acknowledged: i64,
    /// Orders of this director, with the revisions of their changes.
    awaited: BTreeMap<SharedKey, i64>,
}

impl Settling {
    /// The daemon has sent the flows that all changes up to this revision have moved.
    pub(crate) fn acknowledge(&mut self, revision: i64) {
        self.acknowledged = self.acknowledged.max(revision);
    }

    pub(crate) const fn acknowledged(&self) -> i64 {
        self.acknowledged
    }

    /// Changes of an operator of this director are in the store.
    pub(crate) fn wrote(&mut self, keys: impl Iterator<Item = SharedKey>, revision: i64) {
        self.awaited.extend(keys.map(|key| (key, revision)));
    }

    /// The changes that all members have settled. Those without synchronization, and of earlier versions, have nothing
    /// to send.
    pub(crate) fn take_settled(&mut self, members: &[(String, MemberRecord)]) -> Vec<SharedKey> {
        if self.awaited.is_empty() {
            return Vec::new();
        }
        let settled = members.iter().filter_map(|(_, member)| member.settled);
        let least = settled.min().unwrap_or(i64::MAX);
        let due = self.awaited.iter().filter(|(_, at)| **at <= least);
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
