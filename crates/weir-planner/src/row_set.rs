//! Aggregates the rows of all services, and returns the changed rows when services are planned again.
//!
//! The cost depends only on the size of the planned services. Services can share addresses, and addresses can share
//! filter bits, so both are reference-counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use weir_abi::{
    Addr, Dest, FILTER_WORDS, Filter, SETTINGS_DROP_ENTRY, SETTINGS_LEARN_CLIENTS,
    SETTINGS_LOCAL_NAT, SETTINGS_SYNC, SETTINGS_UNFINISHED, Settings, VIP_RANGES,
};
use weir_model::Indexed;

use crate::Result;
use crate::allocation::Allocation;
use crate::mark::Pair;
use crate::policy::{self, RemovedFlags};
use crate::rows::{
    ListenerKey, NetworkState, ServiceRow, ServiceRows, VipRow, service_rows, settings,
};

/// All rows of the data plane, except next hops.
#[derive(Debug)]
pub struct RowSet {
    /// Services by row.
    pub services: BTreeMap<u32, ServiceRow>,
    /// Servers by row.
    pub dests: BTreeMap<u32, Dest>,
    /// Upper and lower connection thresholds, by server row.
    pub thresholds: BTreeMap<u32, (u32, u32)>,
    /// New flags for removed servers' rows; the other fields of these rows do not change.
    pub removed_flags: BTreeMap<u32, RemovedFlags>,
    /// Service rows by exact listener.
    pub listeners: BTreeMap<ListenerKey, u32>,
    /// VIP rows, by address.
    pub vips: BTreeMap<IpAddr, VipRow>,
    /// The address filter.
    pub filter: Box<Filter>,
    /// Data plane settings.
    pub settings: Settings,
    inserted: HashMap<String, InsertedKeys>,
    /// The services' contributions to a VIP's row, by [`InsertedKeys::number`].
    contributions: BTreeMap<IpAddr, BTreeMap<u64, VipRow>>,
    /// Server rows, by shared counter row.
    siblings: BTreeMap<u32, BTreeSet<u32>>,
    destination_bits: BitCounts,
    source_bits: BitCounts,
    /// Number of services with a NAT server that has one of the director's addresses.
    local_nat_count: usize,
    last_number: u64,
}

/// The keys that a service's rows inserted.
#[derive(Debug)]
struct InsertedKeys {
    /// Ascending number, which orders the contributions to a VIP's row.
    number: u64,
    services: Vec<u32>,
    dests: Vec<u32>,
    removed: Vec<u32>,
    listeners: Vec<ListenerKey>,
    vips: Vec<IpAddr>,
    destinations: Vec<IpAddr>,
    sources: Vec<IpAddr>,
    local_nat: bool,
}

/// Rows that may differ from those in the maps.
#[derive(Debug, Default)]
pub struct Changes {
    /// Service rows.
    pub services: BTreeSet<u32>,
    /// Server rows, including those of removed servers.
    pub dests: BTreeSet<u32>,
    /// Exact listeners.
    pub listeners: BTreeSet<ListenerKey>,
    /// Addresses.
    pub vips: BTreeSet<IpAddr>,
}

impl Changes {
    /// Adds the changes of `other`.
    pub fn extend(&mut self, mut other: Self) {
        self.services.append(&mut other.services);
        self.dests.append(&mut other.dests);
        self.listeners.append(&mut other.listeners);
        self.vips.append(&mut other.vips);
    }

    /// Returns whether no row changed.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
            && self.dests.is_empty()
            && self.listeners.is_empty()
            && self.vips.is_empty()
    }

    fn add(&mut self, inserted: &InsertedKeys) {
        self.services.extend(&inserted.services);
        self.dests
            .extend(inserted.dests.iter().chain(&inserted.removed));
        self.listeners.extend(&inserted.listeners);
        self.vips.extend(&inserted.vips);
    }
}

/// Number of addresses that set each bit, in one direction of the filter.
#[derive(Debug)]
struct BitCounts(Vec<u32>);

impl BitCounts {
    fn new() -> Self {
        Self(vec![0; FILTER_WORDS as usize * 64])
    }

    fn add(&mut self, words: &mut [u64], address: IpAddr) {
        let (word, bits) = Filter::bits(Addr::from(address));
        words[word] |= bits;
        bit_indexes(word, bits).for_each(|bit| self.0[bit] += 1);
    }

    fn remove(&mut self, words: &mut [u64], address: IpAddr) {
        let (word, bits) = Filter::bits(Addr::from(address));
        for bit in bit_indexes(word, bits) {
            self.0[bit] -= 1;
            if self.0[bit] == 0 {
                words[word] &= !(1 << (bit % 64));
            }
        }
    }
}

/// Returns the index of each set bit in a word of the filter.
fn bit_indexes(word: usize, bits: u64) -> impl Iterator<Item = usize> {
    (0..64)
        .filter(move |bit| bits >> bit & 1 == 1)
        .map(move |bit| word * 64 + bit)
}

/// Plans the rows of a whole configuration.
///
/// # Errors
/// Fails if the tables of a service cannot be built.
pub fn rows(
    desired: &Indexed,
    allocation: &Allocation,
    network: &NetworkState,
    dest_rows: u32,
) -> Result<(RowSet, Changes)> {
    let mut rows = RowSet::empty();
    let names = allocation.services.keys().map(String::as_str);
    let changes = rows.replan(desired, allocation, network, dest_rows, names)?;
    Ok((rows, changes))
}

impl RowSet {
    /// Returns the rows of a configuration without services.
    pub fn empty() -> Self {
        Self {
            services: BTreeMap::new(),
            dests: BTreeMap::new(),
            thresholds: BTreeMap::new(),
            removed_flags: BTreeMap::new(),
            listeners: BTreeMap::new(),
            vips: BTreeMap::new(),
            filter: Box::new(Filter::ZERO),
            settings: Settings::ZERO,
            inserted: HashMap::new(),
            contributions: BTreeMap::new(),
            siblings: BTreeMap::new(),
            destination_bits: BitCounts::new(),
            source_bits: BitCounts::new(),
            local_nat_count: 0,
            last_number: 0,
        }
    }

    /// Plans the rows of some services again and returns the rows that changed.
    ///
    /// # Errors
    /// Fails if the tables of a service cannot be built. In this case, nothing is changed.
    pub fn replan<'a>(
        &mut self,
        desired: &Indexed,
        allocation: &Allocation,
        network: &NetworkState,
        dest_rows: u32,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Changes> {
        let mut planned = Vec::new();
        for name in names {
            let slot = allocation.services.get(name);
            let service_rows =
                slot.map(|slot| service_rows(desired, name, slot, network, dest_rows));
            planned.push((name, service_rows.transpose()?));
        }
        let mut changes = Changes::default();
        let mut rings = BTreeSet::new();
        // A listener can move from one service to another, so all old rows are removed first.
        for (name, _) in &planned {
            if let Some(inserted) = self.inserted.remove(*name) {
                rings.extend(self.shared_count_rows(&inserted));
                self.remove(&inserted);
                changes.add(&inserted);
            }
        }
        for (name, service_rows) in planned {
            if let Some(service_rows) = service_rows {
                let inserted = self.insert(service_rows);
                rings.extend(self.shared_count_rows(&inserted));
                changes.add(&inserted);
                self.inserted.insert(name.to_owned(), inserted);
            }
        }
        for address in &changes.vips {
            self.merge_vip_row(*address);
        }
        self.link_siblings(rings, &mut changes);
        // The share of sampled flows and the synchronization flag are not part of the configuration: keep their current
        // values.
        let latency_sample = self.settings.latency_sample;
        let is_synchronized = self.settings.flags & SETTINGS_SYNC != 0;
        self.settings = weir_abi::Settings {
            latency_sample,
            ..settings(desired)
        };
        if let Some(Pair { entry, exit }) = network.mark_devices {
            self.settings.mark_entry = entry;
            self.settings.mark_exit = exit;
        }
        let flags = [
            (SETTINGS_LOCAL_NAT, self.local_nat_count > 0),
            (SETTINGS_LEARN_CLIENTS, network.learn_clients),
            (SETTINGS_UNFINISHED, network.xdp_receives_partial_checksums),
            (SETTINGS_SYNC, is_synchronized),
            (
                SETTINGS_DROP_ENTRY,
                policy::drops_entries(&desired.ipvs, network.memory_is_low),
            ),
        ];
        for (flag, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
            self.settings.flags |= flag;
        }
        Ok(changes)
    }

    fn remove(&mut self, inserted: &InsertedKeys) {
        for row in &inserted.services {
            self.services.remove(row);
        }
        for id in &inserted.dests {
            if let Some(row) = self.dests.remove(id)
                && let Some(ring) = self.siblings.get_mut(&row.live)
            {
                ring.remove(id);
            }
            self.thresholds.remove(id);
        }
        for id in &inserted.removed {
            self.removed_flags.remove(id);
        }
        for key in &inserted.listeners {
            self.listeners.remove(key);
        }
        for address in &inserted.vips {
            if let Some(contributions) = self.contributions.get_mut(address) {
                contributions.remove(&inserted.number);
            }
        }
        for address in &inserted.destinations {
            self.destination_bits.remove(&mut self.filter.to, *address);
        }
        for address in &inserted.sources {
            self.source_bits.remove(&mut self.filter.from, *address);
        }
        self.local_nat_count -= usize::from(inserted.local_nat);
    }

    fn insert(&mut self, service_rows: ServiceRows) -> InsertedKeys {
        self.last_number += 1;
        let inserted = InsertedKeys {
            number: self.last_number,
            services: service_rows.services.keys().copied().collect(),
            dests: service_rows.dests.keys().copied().collect(),
            removed: service_rows.removed_flags.keys().copied().collect(),
            listeners: service_rows.listeners.keys().copied().collect(),
            vips: service_rows.vips.keys().copied().collect(),
            destinations: service_rows.destinations.into_iter().collect(),
            sources: service_rows.sources.into_iter().collect(),
            local_nat: service_rows.local_nat,
        };
        self.services.extend(service_rows.services);
        for (id, row) in service_rows
            .dests
            .iter()
            .filter(|(id, row)| row.live != **id)
        {
            self.siblings.entry(row.live).or_default().insert(*id);
        }
        self.dests.extend(service_rows.dests);
        self.thresholds.extend(service_rows.thresholds);
        self.removed_flags.extend(service_rows.removed_flags);
        self.listeners.extend(service_rows.listeners);
        for (address, contribution) in service_rows.vips {
            let contributions = self.contributions.entry(address).or_default();
            contributions.insert(inserted.number, contribution);
        }
        for address in &inserted.destinations {
            self.destination_bits.add(&mut self.filter.to, *address);
        }
        for address in &inserted.sources {
            self.source_bits.add(&mut self.filter.from, *address);
        }
        self.local_nat_count += usize::from(inserted.local_nat);
        inserted
    }

    /// Returns the counter rows that a service's servers share with other services.
    fn shared_count_rows(&self, inserted: &InsertedKeys) -> Vec<u32> {
        let rows = inserted
            .dests
            .iter()
            .filter_map(|id| self.dests.get_key_value(id));
        rows.filter(|(id, row)| row.live != **id)
            .map(|(_, row)| row.live)
            .collect()
    }

    /// Links the server rows that share a counter row into a ring.
    fn link_siblings(&mut self, rings: BTreeSet<u32>, changes: &mut Changes) {
        for live in rings {
            let Some(ring) = self.siblings.get(&live).filter(|ring| !ring.is_empty()) else {
                self.siblings.remove(&live);
                continue;
            };
            let successors = ring.iter().skip(1).chain(ring.first());
            for (id, next) in ring.iter().zip(successors) {
                let sibling = if next == id { 0 } else { *next };
                if let Some(row) = self.dests.get_mut(id)
                    && row.sibling != sibling
                {
                    row.sibling = sibling;
                    changes.dests.insert(*id);
                }
            }
        }
    }

    /// Builds a VIP's row from the contributions of the services.
    fn merge_vip_row(&mut self, address: IpAddr) {
        let Some(contributions) = self
            .contributions
            .get(&address)
            .filter(|contributions| !contributions.is_empty())
        else {
            self.contributions.remove(&address);
            self.vips.remove(&address);
            return;
        };
        let mut row = VipRow::default();
        for contribution in contributions.values() {
            row.merge(contribution);
        }
        row.ranges.sort_by_key(|range| (range.proto, range.first));
        if !row.ranges.is_empty() {
            row.flags |= VIP_RANGES;
        }
        self.vips.insert(address, row);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// About five addresses share each word of the filter.
    #[test]
    fn filter_after_removal_equals_filter_of_remaining_addresses() {
        let addresses = |first: u32| {
            let numbers = (first..40_000).step_by(2);
            numbers.map(|number| IpAddr::from(Ipv4Addr::from(0x0a00_0000 + number)))
        };
        let filter_of = |addresses: &mut dyn Iterator<Item = IpAddr>| {
            let (mut counts, mut words) = (BitCounts::new(), vec![0; FILTER_WORDS as usize]);
            addresses.for_each(|address| counts.add(&mut words, address));
            (counts, words)
        };
        let (_, expected) = filter_of(&mut addresses(0));
        let (mut counts, mut words) = filter_of(&mut addresses(0).chain(addresses(1)));
        assert_ne!(words, expected);
        addresses(1).for_each(|address| counts.remove(&mut words, address));
        assert!(words == expected);
    }
}
