//! What is found out from the rows given out: which are free, where servers are, which services wait for flows to end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::allocation::{DestSlot, ServiceSlot};
use crate::number::Numbers;

/// What follows from the services, kept so that a change costs no more than what it touches. Row 0 is not used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Nothing is known after reading a state file.
    pub(crate) known: bool,
    /// Rows of services.
    pub(crate) rows: Numbers,
    /// Rows of servers.
    pub(crate) ids: Numbers,
    /// Rows of shared counts.
    pub(crate) shared: Numbers,
    /// Server rows by address, ordered.
    pub(crate) at: BTreeMap<IpAddr, Vec<u32>>,
    /// Services that are removed, or have removed servers.
    pub(crate) leaving: BTreeSet<String>,
}

/// It holds nothing of its own.
impl PartialEq for Index {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Index {}

impl Index {
    /// Finds everything out.
    pub(crate) fn of(
        services: &BTreeMap<String, ServiceSlot>,
        shared: impl Iterator<Item = u32>,
    ) -> Self {
        let dests = || services.values().flat_map(|slot| &slot.dests);
        let mut index = Self {
            known: true,
            rows: Numbers::new(1, services.values().map(|slot| slot.row)),
            ids: Numbers::new(1, dests().map(|dest| dest.id)),
            shared: Numbers::new(0, shared),
            at: BTreeMap::new(),
            leaving: BTreeSet::new(),
        };
        for (name, slot) in services {
            index.look_at(name, slot);
        }
        for dest in dests() {
            index.at.entry(dest.address).or_default().push(dest.id);
        }
        index
    }

    /// Takes up what a reconciling made of these services.
    pub(crate) fn note(
        &mut self,
        services: &BTreeMap<String, ServiceSlot>,
        former: &[(String, Option<ServiceSlot>)],
    ) {
        for (name, before) in former {
            let Some(slot) = services.get(name) else {
                continue;
            };
            self.look_at(name, slot);
            let known: BTreeSet<u32> = before
                .iter()
                .flat_map(|slot| slot.dests.iter().map(|dest| dest.id))
                .collect();
            for dest in slot.dests.iter().filter(|dest| !known.contains(&dest.id)) {
                self.at.entry(dest.address).or_default().push(dest.id);
            }
        }
    }

    /// Takes up whether a service is to be looked after.
    fn look_at(&mut self, name: &str, slot: &ServiceSlot) {
        if slot.removed || slot.dests.iter().any(|dest| dest.removed.is_some()) {
            self.leaving.insert(name.to_owned());
        } else {
            self.leaving.remove(name);
        }
    }

    /// A server's row is given back.
    pub(crate) fn forget(&mut self, dest: &DestSlot) {
        self.ids.give(dest.id);
        if let Some(rows) = self.at.get_mut(&dest.address) {
            rows.retain(|id| *id != dest.id);
            if rows.is_empty() {
                self.at.remove(&dest.address);
            }
        }
    }
}
