//! Provides the values on which a director's decisions about the rollout depend.

use std::time::Duration;

use crate::key::{Key, Keys};
use crate::record::{ApplyingMember, MemberRecord, Pointer, StoppedRollout};
use crate::seal::GroupKey;
use crate::store::{Compare, Mirror, Put, Write};

/// The values on which a decision depends, in addition to the state of the rollout.
pub(crate) struct Context<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) mirror: &'a Mirror,
    pub(crate) own_name: &'a str,
    pub(crate) instance: u64,
    pub(crate) key: Option<&'a GroupKey>,
    pub(crate) now: Duration,
    /// How long the mirror has been complete; 0 = the mirror is incomplete.
    pub(crate) synced_for: Duration,
    /// Time to live of leases.
    pub(crate) ttl: Duration,
    /// See [`crate::LocalState`].
    pub(crate) applies_with_others: bool,
    /// See [`crate::LocalState`].
    pub(crate) stages_versions: bool,
}

impl Context<'_> {
    /// Reads the pointer in a key.
    pub(crate) fn read_pointer(&self, key: &Key) -> Option<Pointer> {
        self.mirror.read(&self.keys.name(key))
    }

    /// Returns the condition that a key has not changed.
    pub(crate) fn unchanged(&self, key: &Key) -> Compare {
        let name = self.keys.name(key);
        let revision = self.mirror.revision_of(&name);
        Compare::Revision(name, revision)
    }

    pub(crate) fn delete(&self, key: &Key) -> Write {
        Write::Delete(self.keys.name(key))
    }

    pub(crate) fn is_authentic(&self, pointer: &Pointer) -> bool {
        pointer.is_authentic(self.keys, self.key)
    }

    /// Returns the newest version in all authentic member records.
    pub(crate) fn newest_member_version(&self) -> Option<u64> {
        let members = self.members().into_iter();
        let authentic = members.filter(|(name, it)| it.is_authentic(self.keys, name, self.key));
        authentic.map(|(_, member)| member.version).max()
    }

    /// Returns the present members, by name.
    pub(crate) fn members(&self) -> Vec<(String, MemberRecord)> {
        let parse_member = |(name, _): (&str, _)| match self.keys.parse(name) {
            Some(Key::Member(member)) => Some((member, self.mirror.read(name)?)),
            _ => None,
        };
        self.mirror.iter().filter_map(parse_member).collect()
    }

    /// Returns the directors that are applying a configuration, with their keys: the director that has the turn, and
    /// those that apply the configuration at the same time.
    pub(crate) fn holders(&self) -> Vec<(Key, ApplyingMember)> {
        let turn = self.mirror.read(&self.keys.name(&Key::Turn));
        let turn = turn.map(|turn| (Key::Turn, turn)).into_iter();
        let concurrent = self.mirror.iter().filter_map(|(name, _)| {
            let key = self.keys.parse(name)?;
            let Key::Applying(member) = &key else {
                return None;
            };
            // The name comes from the key, regardless of the value.
            let record: ApplyingMember = self.mirror.read(name)?;
            let member = member.clone();
            Some((key, ApplyingMember { member, ..record }))
        });
        turn.chain(concurrent).collect()
    }

    pub(crate) fn read_stopped(&self) -> Option<StoppedRollout> {
        self.mirror.read(&self.keys.name(&Key::Stopped))
    }

    /// Returns whether the rollout of a configuration was stopped.
    pub(crate) fn is_stopped(&self, pointer: &Pointer) -> bool {
        let stopped = self.read_stopped();
        stopped.is_some_and(|it| it.version == pointer.version)
    }

    /// Returns the lowest version above `newest` that neither the pointer nor the record of a stopped rollout has, even
    /// if they are not authentic: their state would be reported as the state of the new version.
    pub(crate) fn unused_version(&self, newest: u64) -> Option<u64> {
        let current = self.read_pointer(&Key::Current).map(|it| it.version);
        let used = [current, self.read_stopped().map(|it| it.version)];
        (1..=3)
            .filter_map(|step| newest.checked_add(step))
            .find(|version| !used.contains(&Some(*version)))
    }

    /// Returns a write of a value without a lease.
    pub(crate) fn put<T: serde::Serialize>(&self, key: &Key, value: &T) -> Write {
        Write::Put(Put {
            key: self.keys.name(key),
            value: serde_json::to_vec(value).unwrap_or_default(),
            leased: false,
        })
    }
}
