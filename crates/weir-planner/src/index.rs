//! Lookup tables over the allocated rows: free rows, servers by address, services that wait for flows to end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::allocation::{DestSlot, ServiceSlot};
use crate::number::Numbers;

/// Derived from the services, and updated so that the cost of a change depends only on its size. Row 0 is not used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// False after a state file was read: the rest is not computed yet.
    pub(crate) known: bool,
    /// Free service rows.
    pub(crate) rows: Numbers,
    /// Free server rows.
    pub(crate) ids: Numbers,
    /// Free rows of shared counts.
    pub(crate) shared: Numbers,
    /// Server rows by address, ordered.
    pub(crate) at: BTreeMap<IpAddr, Vec<u32>>,
    /// Services that are removed or have removed servers.
    pub(crate) leaving: BTreeSet<String>,
}

/// Derived data: two allocations are equal if the rest of them is.
impl PartialEq for Index {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Index {}

impl Index {
    /// Computes the index of all services.
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
            index.update_leaving(name, slot);
        }
        for dest in dests() {
            index.at.entry(dest.address).or_default().push(dest.id);
        }
        index
    }

    /// Updates the index after these services were reconciled.
    pub(crate) fn update(
        &mut self,
        services: &BTreeMap<String, ServiceSlot>,
        former: &[(String, Option<ServiceSlot>)],
    ) {
        for (name, before) in former {
            let Some(slot) = services.get(name) else {
                continue;
            };
            self.update_leaving(name, slot);
            let known: BTreeSet<u32> = before
                .iter()
                .flat_map(|slot| slot.dests.iter().map(|dest| dest.id))
                .collect();
            for dest in slot.dests.iter().filter(|dest| !known.contains(&dest.id)) {
                self.at.entry(dest.address).or_default().push(dest.id);
            }
        }
    }

    /// Updates whether a service is one of `leaving`.
    fn update_leaving(&mut self, name: &str, slot: &ServiceSlot) {
        if slot.removed || slot.dests.iter().any(|dest| dest.removed.is_some()) {
            self.leaving.insert(name.to_owned());
        } else {
            self.leaving.remove(name);
        }
    }

    /// Frees a server's row.
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
