//! Rows into maps, changed ones only, in an order that no packet meets half done.
//!
//! Servers come before the lists that name them, lists before the services that point to them, services before the
//! listeners that lead to them; the address filter covers an address before its first listener and until after its last.
//! What is removed goes the other way round. Runs of elements that packets may still read wait for their grace period.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use weir_abi::{
    Addr, Be16, DEST_LIVE, DEST_LOCAL, DEST_SNAT, DEST_STRICT, Dest, Element, FILTER_WORDS, Filter,
    Listener, Service, Vip,
};
use weir_dataplane::{Extent, ExtentAllocator, Maps, Pod, elements_of, wait_for_packets};

use super::rows::{ListenerKey, ServiceRow, VipRow};
use super::sum::{Changes, Rows};
use super::{Error, Result, tree};

/// What packets of removed servers still need of the row's flags.
const LASTING: u8 = DEST_LOCAL | DEST_STRICT | DEST_SNAT;

/// A service as it was written.
#[derive(Debug)]
pub(super) struct WrittenService {
    pub(super) row: ServiceRow,
    pub(super) tables: Extent,
    pub(super) snat: Option<Extent>,
}

/// A VIP as it was written.
#[derive(Debug)]
pub(super) struct WrittenVip {
    pub(super) row: VipRow,
    pub(super) ranges: Option<Extent>,
}

/// Knows what the maps hold, and which elements are free.
#[derive(Debug)]
pub(super) struct Writer {
    elements: ExtentAllocator,
    pub(super) services: BTreeMap<u32, WrittenService>,
    pub(super) dests: BTreeMap<u32, Dest>,
    pub(super) listeners: BTreeMap<ListenerKey, u32>,
    pub(super) vips: BTreeMap<IpAddr, WrittenVip>,
    /// Runs of a former daemon by service row: in force until the row points to others.
    inherited_tables: BTreeMap<u32, Vec<Extent>>,
    /// Other runs of a former daemon, given back once every row points to new ones.
    inherited: Vec<Extent>,
    /// Rows of a former daemon that may be nobody's by now.
    inherited_rows: Changes,
}

impl Writer {
    /// Takes over what is in the maps: rows of a former daemon stay in force until they are written anew.
    ///
    /// # Errors
    /// The maps cannot be read.
    pub(super) fn adopting(maps: &Maps) -> Result<Self> {
        let mut writer = Self {
            elements: ExtentAllocator::new(maps.elements.entries()),
            services: BTreeMap::new(),
            dests: BTreeMap::new(),
            listeners: BTreeMap::new(),
            vips: BTreeMap::new(),
            inherited_tables: BTreeMap::new(),
            inherited: Vec::new(),
            inherited_rows: Changes::default(),
        };
        for (key, service) in maps.listeners.elements()? {
            writer
                .listeners
                .insert((key.addr.to_ip(), key.port.get(), key.proto), service);
        }
        let mut ranges = Vec::new();
        for (addr, vip) in maps.vips.elements()? {
            ranges.push(Extent {
                at: vip.ranges_at,
                length: vip.ranges_len,
            });
            let row = VipRow {
                flags: vip.flags,
                any_tcp: vip.any_tcp,
                any_udp: vip.any_udp,
                ranges: maps.ranges(&vip)?,
            };
            // The run is among the inherited ones.
            writer
                .vips
                .insert(addr.to_ip(), WrittenVip { row, ranges: None });
        }
        for row in 1..maps.services.entries() {
            let service = maps.services.get(row)?;
            if service != Service::ZERO {
                writer.inherited_rows.services.insert(row);
                let runs = disjoint(maps.extents_of(&service)?);
                writer.inherited_tables.insert(row, runs);
            }
        }
        ranges.retain(|run| run.at != 0 && run.length != 0);
        writer.inherit(ranges, maps.elements.entries());
        writer.inherited_rows.listeners = writer.listeners.keys().copied().collect();
        writer.inherited_rows.vips = writer.vips.keys().copied().collect();
        Ok(writer)
    }

    /// Takes over runs of a former daemon. Runs of services that meet others, which none of this build does, are given back
    /// only together with those: what is given back twice would be given out twice.
    fn inherit(&mut self, ranges: Vec<Extent>, elements: u32) {
        let of_services = self.inherited_tables.values().flatten();
        let mut all: Vec<Extent> = of_services.chain(&ranges).copied().collect();
        let count = all.len();
        all = disjoint(all);
        self.inherited = disjoint(ranges);
        if all.len() != count {
            self.inherited = all.clone();
            self.inherited_tables.clear();
        }
        self.elements = ExtentAllocator::adopting(elements, all);
    }

    /// Settings and servers: nothing leads to a new one yet.
    ///
    /// # Errors
    /// A row is outside its map.
    pub(super) fn servers(&mut self, maps: &Maps, rows: &Rows, changes: &Changes) -> Result<()> {
        if maps.settings()? != rows.settings {
            maps.set_settings(&rows.settings)?;
        }
        self.shared_counts(maps, rows, changes)?;
        let mut eased = false;
        for id in &changes.dests {
            let Some(row) = rows.dests.get(id) else {
                continue;
            };
            let (upper, lower) = rows.thresholds.get(id).copied().unwrap_or_default();
            eased |= maps.set_thresholds(row.live, upper, lower)?;
            if self.dests.get(id) != Some(row) {
                maps.dests.set(*id, row)?;
                self.dests.insert(*id, *row);
            }
        }
        // No packet of such a server comes to climb, as long as its tree does not name it.
        if eased {
            self.mend_trees(maps)?;
        }
        Ok(())
    }

    /// Rows of counts that a server starts to share begin with what it has.
    fn shared_counts(&self, maps: &Maps, rows: &Rows, changes: &Changes) -> Result<()> {
        let mut joined: BTreeMap<u32, bool> = BTreeMap::new();
        let changed = |id: &u32| Some((*id, rows.dests.get(id)?));
        let changed = changes.dests.iter().filter_map(changed);
        for (id, row) in changed.filter(|(id, row)| row.live != *id) {
            let before = maps.dests.get(id)?;
            *joined.entry(row.live).or_default() |= before.live != row.live;
        }
        joined.retain(|_, joins| *joins);
        if joined.is_empty() {
            return Ok(());
        }
        for (live, sum) in shared_sums(maps, rows, |live| joined.contains_key(&live))? {
            maps.live.set(
                live,
                &weir_abi::Live {
                    active: sum.active,
                    inactive: sum.inactive,
                    ..maps.live(live)?
                },
            )?;
        }
        Ok(())
    }

    /// Brings shared counts in line with the servers' own, where they are off by what passed while sharing began.
    ///
    /// # Errors
    /// A row is outside its map.
    pub(super) fn mend_shared_counts(
        &self,
        maps: &Maps,
        rows: &Rows,
        before: &mut BTreeMap<u32, (u64, u64)>,
    ) -> Result<()> {
        let mut off = BTreeMap::new();
        for (live, sum) in shared_sums(maps, rows, |_| true)? {
            let now = maps.live(live)?;
            let by = (
                now.active.wrapping_sub(sum.active),
                now.inactive.wrapping_sub(sum.inactive),
            );
            // A packet between two additions makes a difference that does not last.
            if by != (0, 0) && before.get(&live) == Some(&by) {
                maps.live.set(
                    live,
                    &weir_abi::Live {
                        active: sum.active,
                        inactive: sum.inactive,
                        ..now
                    },
                )?;
            } else if by != (0, 0) {
                off.insert(live, by);
            }
        }
        *before = off;
        Ok(())
    }

    /// Services with their tables, then what leads to them.
    ///
    /// # Errors
    /// No room for tables, or a map is full.
    pub(super) fn services(
        &mut self,
        maps: &Maps,
        rows: &Rows,
        changes: &Changes,
        now: Instant,
    ) -> Result<()> {
        self.elements.reclaim(now);
        for index in &changes.services {
            let Some(row) = rows.services.get(index) else {
                continue;
            };
            if self
                .services
                .get(index)
                .is_none_or(|written| written.row != *row)
            {
                self.service(maps, *index, row, now)?;
            }
        }
        self.addresses(maps, rows, changes, now)?;
        self.gone_services(maps, rows, changes, now)?;
        self.removed_servers(maps, rows, changes)?;
        let inherited = std::mem::take(&mut self.inherited_rows);
        self.gone_addresses(maps, rows, &inherited, now)?;
        self.gone_services(maps, rows, &inherited, now)?;
        for extent in std::mem::take(&mut self.inherited) {
            self.elements.retire(extent, now);
        }
        Ok(())
    }

    fn service(&mut self, maps: &Maps, index: u32, row: &ServiceRow, now: Instant) -> Result<()> {
        if self.adopt(maps, index, row)? {
            return Ok(());
        }
        let tables = self.allocate(row.tables.elements())?;
        maps.set_elements(tables.at, &row.tables.image(tables.at))?;
        let (header, _) = row.tables.header(tables.at);
        tree::fill(maps, &header)?;
        let before = self.services.remove(&index);
        let same_but_tables = before.as_ref().is_some_and(|before| {
            let b = &before.row;
            (
                b.flags,
                &b.snat,
                b.snat_ports,
                b.dscp,
                b.template,
                b.generation,
            ) == (
                row.flags,
                &row.snat,
                row.snat_ports,
                row.dscp,
                row.template,
                row.generation,
            )
        });
        let mut snat = before.as_ref().and_then(|before| before.snat);
        let old_snat = snat;
        if same_but_tables {
            maps.set_extent(index, tables.at)?;
        } else {
            snat = self.run_of(maps, &row.snat)?;
            let service = service_row(row, tables.at, snat.map_or(0, |run| run.at));
            maps.services.set(index, &service)?;
        }
        // What changed between the counts that were read and the publication climbed through the former tree.
        tree::fill(maps, &header)?;
        if let Some(before) = before {
            self.elements.retire(before.tables, now);
        }
        if old_snat != snat
            && let Some(old) = old_snat
        {
            self.elements.retire(old, now);
        }
        for run in self.inherited_tables.remove(&index).unwrap_or_default() {
            self.elements.retire(run, now);
        }
        self.services.insert(
            index,
            WrittenService {
                row: row.clone(),
                tables,
                snat,
            },
        );
        Ok(())
    }

    /// Takes over a row and its tables as a former daemon left them, where they are what is wanted.
    fn adopt(&mut self, maps: &Maps, index: u32, row: &ServiceRow) -> Result<bool> {
        let Some(runs) = self.inherited_tables.get(&index) else {
            return Ok(false);
        };
        let there = maps.services.get(index)?;
        let run = |at, length| Extent { at, length };
        let tables = run(there.extent, row.tables.elements());
        let snat = (there.snat_at != 0).then(|| run(there.snat_at, u32::from(there.snat_len)));
        let holds = |run: Extent, wanted: &[Element]| -> Result<bool> {
            Ok(maps.elements.get_all(run.at, wanted.len() as u32)? == wanted)
        };
        let same = *runs == disjoint(snat.into_iter().chain([tables]).collect())
            && there == service_row(row, there.extent, there.snat_at)
            && holds(tables, &row.tables.image(tables.at))?
            && snat.map_or(Ok(true), |run| holds(run, &elements_of(&row.snat)))?;
        if same {
            tree::fill(maps, &row.tables.header(tables.at).0)?;
            self.inherited_tables.remove(&index);
            let row = row.clone();
            let written = WrittenService { row, tables, snat };
            self.services.insert(index, written);
        }
        Ok(same)
    }

    /// Brings the trees of winners in line with the counts, where a change was lost to another one's.
    ///
    /// # Errors
    /// A row is outside its map.
    pub(super) fn mend_trees(&self, maps: &Maps) -> Result<()> {
        for written in self.services.values() {
            tree::fill(maps, &written.row.tables.header(written.tables.at).0)?;
        }
        Ok(())
    }

    fn run_of<T: Pod>(&mut self, maps: &Maps, values: &[T]) -> Result<Option<Extent>> {
        if values.is_empty() {
            return Ok(None);
        }
        let run = self.allocate(values.len() as u32)?;
        maps.set_elements(run.at, values)?;
        Ok(Some(run))
    }

    /// A run of elements; when none is free, those that packets have left by now are.
    fn allocate(&mut self, elements: u32) -> Result<Extent> {
        if let Some(run) = self.elements.allocate(elements) {
            return Ok(run);
        }
        wait_for_packets();
        self.elements.reclaim_all();
        self.elements
            .allocate(elements)
            .ok_or(Error::NoRoom { elements })
    }

    fn addresses(
        &mut self,
        maps: &Maps,
        rows: &Rows,
        changes: &Changes,
        now: Instant,
    ) -> Result<()> {
        let both = union(&maps.filter()?, &rows.filter);
        maps.set_filter(&both)?;
        for address in &changes.vips {
            let Some(row) = rows.vips.get(address) else {
                continue;
            };
            if self.vips.get(address).is_some_and(|written| {
                written.row == *row && (written.ranges.is_some() || row.ranges.is_empty())
            }) {
                continue;
            }
            let ranges = self.run_of(maps, &row.ranges)?;
            maps.vips
                .set(&Addr::from(*address), &vip_row(row, ranges))?;
            let before = self.vips.insert(
                *address,
                WrittenVip {
                    row: row.clone(),
                    ranges,
                },
            );
            if let Some(run) = before.and_then(|before| before.ranges) {
                self.elements.retire(run, now);
            }
        }
        for key in &changes.listeners {
            let Some(service) = rows.listeners.get(key) else {
                continue;
            };
            if self.listeners.get(key) != Some(service) {
                maps.listeners.set(&listener(*key), service)?;
                self.listeners.insert(*key, *service);
            }
        }
        self.gone_addresses(maps, rows, changes, now)?;
        maps.set_filter(&rows.filter)?;
        Ok(())
    }

    fn gone_addresses(
        &mut self,
        maps: &Maps,
        rows: &Rows,
        changes: &Changes,
        now: Instant,
    ) -> Result<()> {
        let listeners = changes.listeners.iter();
        for key in listeners.filter(|key| !rows.listeners.contains_key(*key)) {
            if self.listeners.contains_key(key) {
                maps.listeners.remove(&listener(*key))?;
                self.listeners.remove(key);
            }
        }
        let vips = changes.vips.iter();
        for address in vips.filter(|address| !rows.vips.contains_key(*address)) {
            if !self.vips.contains_key(address) {
                continue;
            }
            maps.vips.remove(&Addr::from(*address))?;
            let written = self.vips.remove(address);
            if let Some(run) = written.and_then(|written| written.ranges) {
                self.elements.retire(run, now);
            }
        }
        Ok(())
    }

    fn gone_services(
        &mut self,
        maps: &Maps,
        rows: &Rows,
        changes: &Changes,
        now: Instant,
    ) -> Result<()> {
        let indices = changes.services.iter();
        for index in indices.filter(|index| !rows.services.contains_key(*index)) {
            maps.services.set(*index, &Service::ZERO)?;
            for run in self.inherited_tables.remove(index).unwrap_or_default() {
                self.elements.retire(run, now);
            }
            if let Some(written) = self.services.remove(index) {
                self.elements.retire(written.tables, now);
                if let Some(run) = written.snat {
                    self.elements.retire(run, now);
                }
            }
        }
        Ok(())
    }

    /// Last: no list names them any more, so what chooses anew finds another.
    fn removed_servers(&mut self, maps: &Maps, rows: &Rows, changes: &Changes) -> Result<()> {
        for id in &changes.dests {
            let Some(removed) = rows.removed.get(id) else {
                continue;
            };
            let row = maps.dests.get(*id)?;
            let wanted = Dest {
                flags: row.flags & LASTING | removed.flags,
                policy: removed.policy,
                place: 0,
                ..row
            };
            if row.flags & DEST_LIVE != 0 && row != wanted {
                maps.dests.set(*id, &wanted)?;
            }
            self.dests.remove(id);
        }
        Ok(())
    }

    /// Clears the rows of servers whose flows have ended.
    ///
    /// # Errors
    /// A row is outside its map.
    pub(super) fn clear_dests(&mut self, maps: &Maps, ids: &[u32]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        for id in ids {
            maps.dests.set(*id, &Dest::ZERO)?;
            self.dests.remove(id);
        }
        // A packet that read the row before must not count for its next owner.
        wait_for_packets();
        for id in ids {
            maps.reset_counts(*id)?;
            for slot in 0..weir_abi::HOPS_PER_DEST {
                maps.set_hop(*id, slot, &weir_abi::Hop::ZERO)?;
            }
        }
        Ok(())
    }
}

/// What the servers of each chosen shared row have together.
fn shared_sums(
    maps: &Maps,
    rows: &Rows,
    chosen: impl Fn(u32) -> bool,
) -> Result<BTreeMap<u32, weir_abi::Live>> {
    let mut sums: BTreeMap<u32, weir_abi::Live> = BTreeMap::new();
    for (id, row) in &rows.dests {
        if row.live == *id || !chosen(row.live) {
            continue;
        }
        let own = maps.live(*id)?;
        let sum = sums.entry(row.live).or_insert(weir_abi::Live::ZERO);
        sum.active = sum.active.wrapping_add(own.active);
        sum.inactive = sum.inactive.wrapping_add(own.inactive);
    }
    Ok(sums)
}

/// A service's row, with its tables and its sources of snat at these places.
pub(super) fn service_row(row: &ServiceRow, extent: u32, snat_at: u32) -> Service {
    Service {
        flags: row.flags,
        extent,
        snat_at,
        snat_len: row.snat.len() as u16,
        snat_port_first: row.snat_ports.0,
        snat_port_last: row.snat_ports.1,
        dscp: row.dscp,
        generation: row.generation,
        template_ticks: row.template.ticks,
        template_prefix4: row.template.prefix4,
        template_prefix6: row.template.prefix6,
        template_scope: row.template.scope,
        ..Service::ZERO
    }
}

/// The key of a listener's row.
pub(super) fn listener((address, port, proto): ListenerKey) -> Listener {
    Listener {
        addr: address.into(),
        port: Be16::new(port),
        proto,
        ..Listener::ZERO
    }
}

pub(super) fn vip_row(row: &VipRow, ranges: Option<Extent>) -> Vip {
    Vip {
        flags: row.flags,
        any_tcp: row.any_tcp,
        any_udp: row.any_udp,
        ranges_at: ranges.map_or(0, |run| run.at),
        ranges_len: row.ranges.len() as u32,
        ..Vip::ZERO
    }
}

fn union(one: &Filter, other: &Filter) -> Filter {
    let mut both = Filter::ZERO;
    for word in 0..FILTER_WORDS as usize {
        both.to[word] = one.to[word] | other.to[word];
        both.from[word] = one.from[word] | other.from[word];
    }
    both
}

/// Runs without overlap: what is given back twice would be given out twice.
fn disjoint(mut runs: Vec<Extent>) -> Vec<Extent> {
    runs.sort();
    let mut merged: Vec<Extent> = Vec::with_capacity(runs.len());
    for run in runs {
        match merged.last_mut() {
            Some(last) if run.at < last.at + last.length => {
                last.length = last.length.max(run.at + run.length - last.at);
            }
            _ => merged.push(run),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_runs_become_one() {
        let run = |at, length| Extent { at, length };
        assert_eq!(
            disjoint(vec![run(10, 5), run(1, 4), run(12, 8), run(20, 1)]),
            [run(1, 4), run(10, 10), run(20, 1)]
        );
    }
}
