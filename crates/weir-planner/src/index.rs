//! Indexes the allocated rows: free rows, servers by address, and services with removed servers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::allocation::{DestSlot, ServiceSlot};
use crate::number::NumberAllocator;

/// The index, derived from the services. The cost of an update is proportional to the size of the change. Service
/// row 0 and server row 0 are not used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Whether the index is built; false after a state file has been read.
    pub(crate) is_built: bool,
    /// Free service rows.
    pub(crate) rows: NumberAllocator,
    /// Free server rows.
    pub(crate) ids: NumberAllocator,
    /// Free shared counter rows.
    pub(crate) shared: NumberAllocator,
    /// Server rows by address.
    pub(crate) ids_by_address: BTreeMap<IpAddr, Vec<u32>>,
    /// Names of the services that are removed or have removed servers.
    pub(crate) with_removals: BTreeSet<String>,
}

/// The index is derived data, so comparisons of allocations ignore it.
impl PartialEq for Index {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Index {}

impl Index {
    /// Builds the index for all services.
    pub(crate) fn build(
        services: &BTreeMap<String, ServiceSlot>,
        shared: impl Iterator<Item = u32>,
    ) -> Self {
        let dests = || services.values().flat_map(|slot| &slot.dests);
        let mut index = Self {
            is_built: true,
            rows: NumberAllocator::new(1, services.values().map(|slot| slot.row)),
            ids: NumberAllocator::new(1, dests().map(|dest| dest.id)),
            shared: NumberAllocator::new(0, shared),
            ids_by_address: BTreeMap::new(),
            with_removals: BTreeSet::new(),
        };
        for (name, slot) in services {
            index.update_with_removals(name, slot);
        }
        for dest in dests() {
            index
                .ids_by_address
                .entry(dest.address)
                .or_default()
                .push(dest.id);
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
            self.update_with_removals(name, slot);
            let old_ids: BTreeSet<u32> = before
                .iter()
                .flat_map(|slot| slot.dests.iter().map(|dest| dest.id))
                .collect();
            for dest in slot.dests.iter().filter(|dest| !old_ids.contains(&dest.id)) {
                self.ids_by_address
                    .entry(dest.address)
                    .or_default()
                    .push(dest.id);
            }
        }
    }

    /// Adds a service to `with_removals`, or removes it.
    fn update_with_removals(&mut self, name: &str, slot: &ServiceSlot) {
        if slot.removed || slot.dests.iter().any(|dest| dest.removed.is_some()) {
            self.with_removals.insert(name.to_owned());
        } else {
            self.with_removals.remove(name);
        }
    }

    /// Frees the row of `dest`, and removes it from the rows of its address.
    pub(crate) fn remove(&mut self, dest: &DestSlot) {
        self.ids.free(dest.id);
        if let Some(rows) = self.ids_by_address.get_mut(&dest.address) {
            rows.retain(|id| *id != dest.id);
            if rows.is_empty() {
                self.ids_by_address.remove(&dest.address);
            }
        }
    }
}
