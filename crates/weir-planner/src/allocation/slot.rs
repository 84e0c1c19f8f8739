//! Defines the persistent state of a service and of its servers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_model::{OnRemove, SchedulerKind, Server};
use weir_sched::{Member, Start, table};

use crate::Totals;
use crate::mark;

/// [`Start`] as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredStart {
    /// [`Start::generation`].
    pub generation: u32,
    /// [`Start::last_seq`].
    pub last_seq: u32,
    /// [`Start::pass_weight`].
    pub pass_weight: u32,
    /// [`Start::max_weight`].
    pub max_weight: u32,
    /// [`Start::step`].
    pub step: u32,
}

impl From<Start> for StoredStart {
    fn from(start: Start) -> Self {
        let Start {
            generation,
            last_seq,
            pass_weight,
            max_weight,
            step,
        } = start;
        Self {
            generation,
            last_seq,
            pass_weight,
            max_weight,
            step,
        }
    }
}

impl From<StoredStart> for Start {
    fn from(start: StoredStart) -> Self {
        let StoredStart {
            generation,
            last_seq,
            pass_weight,
            max_weight,
            step,
        } = start;
        Self {
            generation,
            last_seq,
            pass_weight,
            max_weight,
            step,
        }
    }
}

/// The stored form of [`OnRemove`]: what happens to the flows of a removed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Removal {
    /// The flows continue.
    Keep,
    /// The flows are reset.
    Reset,
    /// The flows are scheduled to another server.
    Reschedule,
}

impl From<OnRemove> for Removal {
    fn from(on_remove: OnRemove) -> Self {
        match on_remove {
            OnRemove::Keep => Self::Keep,
            OnRemove::Reset => Self::Reset,
            OnRemove::Reschedule => Self::Reschedule,
        }
    }
}

/// A server of a service, which has one row in the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestSlot {
    /// The row.
    pub id: u32,
    /// Row generation, which changes whenever the row gets a new owner.
    pub generation: u32,
    /// Name in the configuration.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Its port, if one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Whether it is the pool's sorry server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sorry: bool,
    /// Sequence number, from 1, in the order in which servers were added.
    pub seq: u32,
    /// Configured weight.
    pub weight: u32,
    /// Effective weight, which the scheduler uses.
    pub effective: u32,
    /// The weight from the configuration and the override alone. A director in a group builds its `maglev` table from
    /// these weights.
    #[serde(default, rename = "ordered")]
    pub base: u32,
    /// Whether the weight is 0 because of the configuration or a weight override: persistent clients may still use the
    /// server.
    #[serde(default)]
    pub quiesced: bool,
    /// Whether the server is down according to its checks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// The last effective weight above 0, which `mh` uses to build its table.
    pub last_weight: u32,
    /// Row of the counters that all services of the pool share; `None` = the server has its own counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<u32>,
    /// What happens to the server's flows after it was removed from the configuration; `None` = it was not removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Removal>,
    /// What happens to the server's flows after a failed check removed it from the list; `None` = no check has removed
    /// it.
    #[serde(default)]
    pub failed: Option<Removal>,
    /// Whether the server is only in a different version of the group's configuration, so that it is used only as the
    /// second hop. If so, `removed` is set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub staged: bool,
    /// Start of its current state, as Unix time in milliseconds.
    pub since_ms: u64,
}

/// Identifies a server within its service: address, port, and whether it is the sorry server.
pub(super) type Key = (IpAddr, Option<u16>, bool);

impl DestSlot {
    /// Returns whether the server has entries in the `maglev` tables of all directors of a group while all checks pass.
    pub(crate) fn is_in_group_table(&self) -> bool {
        self.removed.is_none() && !self.sorry && self.base > 0
    }

    pub(super) fn key(&self) -> Key {
        (self.address, self.port, self.sorry)
    }

    pub(super) fn matches(&self, server: &Server, sorry: bool) -> bool {
        self.key() == (server.address, server.port, sorry)
    }

    /// Returns whether the server is in the list of its service. A sorry server is listed only while it is used.
    pub fn is_listed(&self) -> bool {
        self.removed.is_none() && self.failed.is_none() && (!self.sorry || self.effective > 0)
    }
}

/// A server that has entries in a group's `maglev` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupServer {
    /// Its address.
    pub address: IpAddr,
    /// Its port, if one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Its weight from the configuration and the override alone.
    pub weight: u32,
}

/// The servers in the current and the previous `maglev` table of a group's service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupServerVersions {
    /// The current servers, sorted.
    pub present: Vec<GroupServer>,
    /// The servers before the last change, sorted. While the next version of the configuration is staged, its servers.
    pub former: Vec<GroupServer>,
    /// The configured servers of the other version that was recorded last, sorted, while the configuration contains
    /// that version. They are recorded in `former` only once: after a later change, for example an override, `former`
    /// contains the servers before that change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub staged: Vec<GroupServer>,
}

impl GroupServerVersions {
    const fn is_empty(&self) -> bool {
        self.present.is_empty() && self.former.is_empty() && self.staged.is_empty()
    }
}

/// A service, which has one row in the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSlot {
    /// The row.
    pub row: u32,
    /// Row generation, which changes whenever the row gets a new owner.
    pub generation: u32,
    /// Canonical name of the scheduler for which `start` was computed.
    pub scheduler: String,
    /// Start of walks whose cursor is from an older list.
    pub start: StoredStart,
    /// The highest assigned `seq`.
    pub last_seq: u32,
    /// Servers in `seq` order, including removed servers that still have flows.
    pub dests: Vec<DestSlot>,
    /// Totals of servers whose rows were freed.
    pub retired: Totals,
    /// Whether the service was removed from the configuration; it is kept while its servers have flows.
    pub removed: bool,
    /// All current and former addresses: flows to a removed address continue.
    #[serde(default)]
    pub addresses: BTreeSet<IpAddr>,
    /// All current and former marks.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub marks: BTreeSet<mark::Key>,
    /// The servers of the last two tables, for the second hop.
    #[serde(default, skip_serializing_if = "GroupServerVersions::is_empty")]
    pub agreed: GroupServerVersions,
}

impl ServiceSlot {
    pub(super) fn new(row: u32, generation: u32, kind: SchedulerKind) -> Self {
        Self {
            row,
            generation,
            scheduler: kind.as_str().to_owned(),
            start: table::rr::start().into(),
            last_seq: 0,
            dests: Vec::new(),
            retired: Totals::default(),
            removed: false,
            addresses: BTreeSet::new(),
            marks: BTreeSet::new(),
            agreed: GroupServerVersions::default(),
        }
    }

    /// Records the servers in the tables of all directors, and the previous servers if they changed. `other`: the
    /// sorted servers in a different version's table, if it newly replaces the table before the last change.
    pub(super) fn record_group_servers(&mut self, other: Option<Vec<GroupServer>>) {
        let servers = self.dests.iter().filter(|dest| dest.is_in_group_table());
        let mut servers: Vec<GroupServer> = servers
            .map(|dest| GroupServer {
                address: dest.address,
                port: dest.port,
                weight: dest.base,
            })
            .collect();
        servers.sort_unstable();
        if servers != self.agreed.present {
            self.agreed.former = std::mem::replace(&mut self.agreed.present, servers);
        }
        if let Some(other) = other.filter(|other| *other != self.agreed.present) {
            self.agreed.former = other;
        }
    }

    /// Returns whether the table before the last change, or that of a staged version, contains the server. If so, its
    /// row is kept although it was removed: as the second hop, or for flows from directors that use that table.
    pub(super) fn is_in_other_version(&self, dest: &DestSlot) -> bool {
        let mut servers = self.agreed.former.iter().chain(&self.agreed.staged);
        servers.any(|server| (server.address, server.port, false) == dest.key())
    }

    /// Returns the list that the schedulers use, with the newest server first.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.listed_members().collect()
    }

    pub(super) fn listed_members(&self) -> impl Iterator<Item = Member> {
        let newest_first = self.dests.iter().rev().filter(|dest| dest.is_listed());
        newest_first.map(|dest| Member {
            seq: dest.seq,
            dest: dest.id,
            weight: dest.effective,
            slot: dest.id,
            usable: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::dest_slot;

    /// Returns the server with changes.
    fn dest(change: impl FnOnce(&mut DestSlot)) -> DestSlot {
        let mut dest = dest_slot();
        change(&mut dest);
        dest
    }

    #[test]
    fn removed_failed_and_unused_sorry_servers_are_not_listed() {
        let remove = |dest: &mut DestSlot| dest.removed = Some(Removal::Keep);
        let fail = |dest: &mut DestSlot| dest.failed = Some(Removal::Keep);
        let sorry = |effective| {
            dest(|dest| {
                dest.sorry = true;
                dest.effective = effective;
            })
        };
        for (dest, expected) in [
            (dest_slot(), true),
            (dest(|dest| dest.effective = 0), true),
            (dest(remove), false),
            (dest(fail), false),
            (sorry(0), false),
            (sorry(1), true),
        ] {
            assert_eq!(dest.is_listed(), expected, "{dest:?}");
        }
    }

    #[test]
    fn group_table_contains_configured_servers_with_a_weight_even_if_they_are_down() {
        for (dest, expected) in [
            (dest_slot(), true),
            (dest(|dest| (dest.effective, dest.down) = (0, true)), true),
            (dest(|dest| dest.failed = Some(Removal::Keep)), true),
            (dest(|dest| dest.removed = Some(Removal::Keep)), false),
            (dest(|dest| dest.sorry = true), false),
            (dest(|dest| dest.base = 0), false),
        ] {
            assert_eq!(dest.is_in_group_table(), expected, "{dest:?}");
        }
    }

    /// Empty versions are not stored, so a state file without groups has the format of earlier versions.
    #[test]
    fn versions_are_empty_without_servers() {
        let servers = vec![GroupServer {
            address: [10, 0, 0, 1].into(),
            port: None,
            weight: 1,
        }];
        let none = GroupServerVersions::default;
        assert!(none().is_empty());
        for versions in [
            GroupServerVersions {
                present: servers.clone(),
                ..none()
            },
            GroupServerVersions {
                former: servers.clone(),
                ..none()
            },
            GroupServerVersions {
                staged: servers,
                ..none()
            },
        ] {
            assert!(!versions.is_empty(), "{versions:?}");
        }
    }
}
