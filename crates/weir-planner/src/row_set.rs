//! Aggregates the rows of all services. Planning some services again returns the rows that changed.
//!
//! The cost depends only on the size of these services. Services share addresses, and addresses share bits of the
//! filter, so both are reference-counted.

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
use crate::policy::{self, Removed};
use crate::rows::{ListenerKey, Part, ServiceRow, Surroundings, VipRow, part, settings};

/// All rows of the data plane, except next hops.
#[derive(Debug)]
pub struct RowSet {
    /// By service row.
    pub services: BTreeMap<u32, ServiceRow>,
    /// By server row.
    pub dests: BTreeMap<u32, Dest>,
    /// Upper and lower thresholds by server row.
    pub thresholds: BTreeMap<u32, (u32, u32)>,
    /// New flags of removed servers' rows; the other fields of these rows stay as they are.
    pub removed: BTreeMap<u32, Removed>,
    /// Exact listeners to service rows.
    pub listeners: BTreeMap<ListenerKey, u32>,
    /// Rows of addresses.
    pub vips: BTreeMap<IpAddr, VipRow>,
    /// The address filter.
    pub filter: Box<Filter>,
    /// Settings of the data plane.
    pub settings: Settings,
    placed: HashMap<String, Placed>,
    /// The contributions to an address's row, by number of the part.
    shares: BTreeMap<IpAddr, BTreeMap<u64, VipRow>>,
    /// Server rows by the row of counts that they share.
    siblings: BTreeMap<u32, BTreeSet<u32>>,
    to: Bits,
    from: Bits,
    local_nat: usize,
    last: u64,
}

/// The keys that a part inserted.
#[derive(Debug)]
struct Placed {
    /// Ascending: the order of contributions to an address's row.
    number: u64,
    services: Vec<u32>,
    dests: Vec<u32>,
    removed: Vec<u32>,
    listeners: Vec<ListenerKey>,
    vips: Vec<IpAddr>,
    to: Vec<IpAddr>,
    from: Vec<IpAddr>,
    local_nat: bool,
}

/// Rows that may differ from what is written.
#[derive(Debug, Default)]
pub struct Changes {
    /// Service rows.
    pub services: BTreeSet<u32>,
    /// Server rows, of removed ones too.
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

    /// Whether no row changed.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
            && self.dests.is_empty()
            && self.listeners.is_empty()
            && self.vips.is_empty()
    }

    fn add(&mut self, placed: &Placed) {
        self.services.extend(&placed.services);
        self.dests
            .extend(placed.dests.iter().chain(&placed.removed));
        self.listeners.extend(&placed.listeners);
        self.vips.extend(&placed.vips);
    }
}

/// The number of addresses that set each bit of one direction of the filter.
#[derive(Debug)]
struct Bits(Vec<u32>);

impl Bits {
    fn new() -> Self {
        Self(vec![0; FILTER_WORDS as usize * 64])
    }

    fn add(&mut self, words: &mut [u64], address: IpAddr) {
        let (word, bits) = Filter::bits(Addr::from(address));
        words[word] |= bits;
        each(word, bits).for_each(|bit| self.0[bit] += 1);
    }

    fn remove(&mut self, words: &mut [u64], address: IpAddr) {
        let (word, bits) = Filter::bits(Addr::from(address));
        for bit in each(word, bits) {
            self.0[bit] -= 1;
            if self.0[bit] == 0 {
                words[word] &= !(1 << (bit % 64));
            }
        }
    }
}

/// The index of each set bit of a word of the filter.
fn each(word: usize, bits: u64) -> impl Iterator<Item = usize> {
    (0..64)
        .filter(move |bit| bits >> bit & 1 == 1)
        .map(move |bit| word * 64 + bit)
}

/// The rows of a whole configuration.
///
/// # Errors
/// The tables of a service cannot be built.
pub fn rows(
    desired: &Indexed,
    allocation: &Allocation,
    around: &Surroundings,
    dest_rows: u32,
) -> Result<(RowSet, Changes)> {
    let mut rows = RowSet::empty();
    let names = allocation.services.keys().map(String::as_str);
    let changes = rows.replan(desired, allocation, around, dest_rows, names)?;
    Ok((rows, changes))
}

impl RowSet {
    /// Rows of no service.
    pub fn empty() -> Self {
        Self {
            services: BTreeMap::new(),
            dests: BTreeMap::new(),
            thresholds: BTreeMap::new(),
            removed: BTreeMap::new(),
            listeners: BTreeMap::new(),
            vips: BTreeMap::new(),
            filter: Box::new(Filter::ZERO),
            settings: Settings::ZERO,
            placed: HashMap::new(),
            shares: BTreeMap::new(),
            siblings: BTreeMap::new(),
            to: Bits::new(),
            from: Bits::new(),
            local_nat: 0,
            last: 0,
        }
    }

    /// Plans the rows of some services again and returns the rows that changed.
    ///
    /// # Errors
    /// The tables of a service cannot be built; nothing is changed then.
    pub fn replan<'a>(
        &mut self,
        desired: &Indexed,
        allocation: &Allocation,
        around: &Surroundings,
        dest_rows: u32,
        touched: impl IntoIterator<Item = &'a str>,
    ) -> Result<Changes> {
        let mut parts = Vec::new();
        for name in touched {
            let slot = allocation.services.get(name);
            let part = slot.map(|slot| part(desired, name, slot, around, dest_rows));
            parts.push((name, part.transpose()?));
        }
        let mut changes = Changes::default();
        let mut rings = BTreeSet::new();
        // A listener may move from one service to another, so that all old rows are removed first.
        for (name, _) in &parts {
            if let Some(placed) = self.placed.remove(*name) {
                rings.extend(self.shared_by(&placed));
                self.remove(&placed);
                changes.add(&placed);
            }
        }
        for (name, part) in parts {
            if let Some(part) = part {
                let placed = self.insert(part);
                rings.extend(self.shared_by(&placed));
                changes.add(&placed);
                self.placed.insert(name.to_owned(), placed);
            }
        }
        for address in &changes.vips {
            self.merge(*address);
        }
        self.link_siblings(rings, &mut changes);
        // The share of sampled flows follows the traffic, and synchronization what runs, not the configuration.
        let latency_sample = self.settings.latency_sample;
        let synchronized = self.settings.flags & SETTINGS_SYNC != 0;
        self.settings = weir_abi::Settings {
            latency_sample,
            ..settings(desired)
        };
        if let Some(Pair { entry, exit }) = around.marks {
            self.settings.mark_entry = entry;
            self.settings.mark_exit = exit;
        }
        let flags = [
            (SETTINGS_LOCAL_NAT, self.local_nat > 0),
            (SETTINGS_LEARN_CLIENTS, around.learn_clients),
            (SETTINGS_UNFINISHED, around.leaves_unfinished),
            (SETTINGS_SYNC, synchronized),
            (
                SETTINGS_DROP_ENTRY,
                policy::defends(&desired.ipvs, around.memory_is_short),
            ),
        ];
        for (flag, _) in flags.into_iter().filter(|(_, set)| *set) {
            self.settings.flags |= flag;
        }
        Ok(changes)
    }

    fn remove(&mut self, placed: &Placed) {
        for row in &placed.services {
            self.services.remove(row);
        }
        for id in &placed.dests {
            if let Some(row) = self.dests.remove(id)
                && let Some(ring) = self.siblings.get_mut(&row.live)
            {
                ring.remove(id);
            }
            self.thresholds.remove(id);
        }
        for id in &placed.removed {
            self.removed.remove(id);
        }
        for key in &placed.listeners {
            self.listeners.remove(key);
        }
        for address in &placed.vips {
            if let Some(shares) = self.shares.get_mut(address) {
                shares.remove(&placed.number);
            }
        }
        for address in &placed.to {
            self.to.remove(&mut self.filter.to, *address);
        }
        for address in &placed.from {
            self.from.remove(&mut self.filter.from, *address);
        }
        self.local_nat -= usize::from(placed.local_nat);
    }

    fn insert(&mut self, part: Part) -> Placed {
        self.last += 1;
        let placed = Placed {
            number: self.last,
            services: part.services.keys().copied().collect(),
            dests: part.dests.keys().copied().collect(),
            removed: part.removed.keys().copied().collect(),
            listeners: part.listeners.keys().copied().collect(),
            vips: part.vips.keys().copied().collect(),
            to: part.to.into_iter().collect(),
            from: part.from.into_iter().collect(),
            local_nat: part.local_nat,
        };
        self.services.extend(part.services);
        for (id, row) in part.dests.iter().filter(|(id, row)| row.live != **id) {
            self.siblings.entry(row.live).or_default().insert(*id);
        }
        self.dests.extend(part.dests);
        self.thresholds.extend(part.thresholds);
        self.removed.extend(part.removed);
        self.listeners.extend(part.listeners);
        for (address, share) in part.vips {
            let shares = self.shares.entry(address).or_default();
            shares.insert(placed.number, share);
        }
        for address in &placed.to {
            self.to.add(&mut self.filter.to, *address);
        }
        for address in &placed.from {
            self.from.add(&mut self.filter.from, *address);
        }
        self.local_nat += usize::from(placed.local_nat);
        placed
    }

    /// The rows of counts that the part's servers share with other services.
    fn shared_by(&self, placed: &Placed) -> Vec<u32> {
        let rows = placed
            .dests
            .iter()
            .filter_map(|id| self.dests.get_key_value(id));
        rows.filter(|(id, row)| row.live != **id)
            .map(|(_, row)| row.live)
            .collect()
    }

    /// Links the server rows that share a row of counts in a ring.
    fn link_siblings(&mut self, rings: BTreeSet<u32>, changes: &mut Changes) {
        for live in rings {
            let Some(ring) = self.siblings.get(&live).filter(|ring| !ring.is_empty()) else {
                self.siblings.remove(&live);
                continue;
            };
            let others = ring.iter().skip(1).chain(ring.first());
            for (id, next) in ring.iter().zip(others) {
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

    /// Builds an address's row from the contributions of the services.
    fn merge(&mut self, address: IpAddr) {
        let Some(shares) = self.shares.get(&address).filter(|it| !it.is_empty()) else {
            self.shares.remove(&address);
            self.vips.remove(&address);
            return;
        };
        let mut row = VipRow::default();
        for share in shares.values() {
            row.add(share);
        }
        row.ranges.sort_by_key(|range| (range.proto, range.first));
        if !row.ranges.is_empty() {
            row.flags |= VIP_RANGES;
        }
        self.vips.insert(address, row);
    }
}
