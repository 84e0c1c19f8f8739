//! The persistent state of a service and of its servers.

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

/// [`OnRemove`] as it is stored: what happens to the flows of a removed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Removal {
    /// They continue.
    Keep,
    /// They are reset.
    Reset,
    /// They are scheduled to another server.
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

/// A server of a service: one row of the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestSlot {
    /// The row.
    pub id: u32,
    /// Changes with each owner of the row.
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
    /// Position in the order in which servers were added, from 1.
    pub seq: u32,
    /// Configured weight.
    pub weight: u32,
    /// Effective weight, which the scheduler uses.
    pub effective: u32,
    /// The weight by configuration and override alone, from which a director of a group builds its `maglev` table.
    #[serde(default)]
    pub ordered: u32,
    /// Weight 0 by the configuration or by a weight override: persistent clients may still use the server.
    #[serde(default)]
    pub quiesced: bool,
    /// Down by its checks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// The last effective weight above 0, from which `mh` builds its table.
    pub last_weight: u32,
    /// Number of the row of counts shared by all services of the pool; `None` = its own counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<u32>,
    /// Set if it is removed from the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Removal>,
    /// Set if a failed check removes it from the list: what happens to its flows.
    #[serde(default)]
    pub failed: Option<Removal>,
    /// Start of its present state, milliseconds of Unix time.
    pub since_ms: u64,
}

/// Identity of a server within its service: address, port, whether it is the sorry server.
pub(super) type Key = (IpAddr, Option<u16>, bool);

impl DestSlot {
    /// Whether the directors of a group give it entries of their `maglev` tables, whatever their checks report.
    pub(crate) fn is_agreed(&self) -> bool {
        self.removed.is_none() && !self.sorry && self.ordered > 0
    }

    pub(super) fn key(&self) -> Key {
        (self.address, self.port, self.sorry)
    }

    pub(super) fn is(&self, server: &Server, sorry: bool) -> bool {
        self.key() == (server.address, server.port, sorry)
    }

    /// Whether it is in the list of its service. A sorry server is listed only while it is used.
    pub fn listed(&self) -> bool {
        self.removed.is_none() && self.failed.is_none() && (!self.sorry || self.effective > 0)
    }
}

/// A server with entries in the `maglev` table of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AgreedServer {
    /// Its address.
    pub address: IpAddr,
    /// Its port, if one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Its weight by configuration and override.
    pub weight: u32,
}

/// The servers of the last two tables of a service with a second hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreedVersions {
    /// Sorted.
    pub present: Vec<AgreedServer>,
    /// Those before the last change.
    pub former: Vec<AgreedServer>,
}

impl AgreedVersions {
    const fn is_empty(&self) -> bool {
        self.present.is_empty() && self.former.is_empty()
    }
}

/// A service: one row of the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSlot {
    /// The row.
    pub row: u32,
    /// Changes with each owner of the row.
    pub generation: u32,
    /// Canonical name of the scheduler that `start` belongs to.
    pub scheduler: String,
    /// Start of walks whose cursor belongs to an older list.
    pub start: StoredStart,
    /// The highest assigned `seq`.
    pub last_seq: u32,
    /// Servers by `seq`, including removed ones with flows.
    pub dests: Vec<DestSlot>,
    /// Totals of servers whose rows were freed.
    pub retired: Totals,
    /// Removed from the configuration; kept while its servers have flows.
    pub removed: bool,
    /// Every address it ever had: flows to a removed address continue.
    #[serde(default)]
    pub addresses: BTreeSet<IpAddr>,
    /// Every mark it ever had.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub marks: BTreeSet<mark::Key>,
    /// For the second hop.
    #[serde(default, skip_serializing_if = "AgreedVersions::is_empty")]
    pub agreed: AgreedVersions,
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
            agreed: AgreedVersions::default(),
        }
    }

    /// Notes the servers that the directors agree on, and those before a change. `has_second_hop`: whether servers
    /// forward packets of unknown connections.
    pub(super) fn note_agreed(&mut self, has_second_hop: bool) {
        if !has_second_hop {
            self.agreed = AgreedVersions::default();
            return;
        }
        let servers = self.dests.iter().filter(|dest| dest.is_agreed());
        let mut servers: Vec<AgreedServer> = servers
            .map(|dest| AgreedServer {
                address: dest.address,
                port: dest.port,
                weight: dest.ordered,
            })
            .collect();
        servers.sort_unstable();
        if servers != self.agreed.present {
            self.agreed.former = std::mem::replace(&mut self.agreed.present, servers);
        }
    }

    /// Whether the former table may have the server, although it is removed.
    pub(super) fn is_second_hop(&self, dest: &DestSlot) -> bool {
        let mut former = self.agreed.former.iter();
        former.any(|it| (it.address, it.port, false) == dest.key())
    }

    /// The list as the schedulers see it: the newest first.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.listed().collect()
    }

    pub(super) fn listed(&self) -> impl Iterator<Item = Member> {
        let newest_first = self.dests.iter().rev().filter(|dest| dest.listed());
        newest_first.map(|dest| Member {
            seq: dest.seq,
            dest: dest.id,
            weight: dest.effective,
            slot: dest.id,
            usable: true,
        })
    }
}
