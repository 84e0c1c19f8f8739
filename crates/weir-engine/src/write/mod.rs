//! Writes changed rows to maps in an order that never exposes an incomplete state to packets.
//!
//! Servers are written before the lists that refer to them, lists before the services that refer to them, and services
//! before their listeners. The address filter includes an address before the first listener of the address is added,
//! and until its last listener is removed. Removal uses the reverse order. Element runs that packets may still read are
//! freed after a grace period.

mod address;
mod inherit;
mod repair;
mod shared_count;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use weir_abi::{DEST_LIVE, DEST_LOCAL, DEST_SNAT, DEST_STRICT, Dest, Service};
use weir_dataplane::{Extent, ExtentAllocator, Maps, Pod, wait_for_packets};
use weir_planner::row_set::{Changes, RowSet};
use weir_planner::rows::{ListenerKey, ServiceRow, VipRow};

pub(crate) use self::address::listener;
use crate::error::{Error, Result};
use crate::tree;

/// Flags that stay set in the rows of removed servers, because packets to these servers still need them.
const RETAINED_FLAGS: u8 = DEST_LOCAL | DEST_STRICT | DEST_SNAT;

/// A service as it was written to the maps.
#[derive(Debug)]
pub(crate) struct WrittenService {
    pub(crate) row: ServiceRow,
    pub(crate) tables: Extent,
    pub(crate) snat: Option<Extent>,
}

/// A VIP as it was written to the maps.
#[derive(Debug)]
pub(crate) struct WrittenVip {
    pub(crate) row: VipRow,
    pub(crate) ranges: Option<Extent>,
}

/// Tracks the contents of the maps and the free elements.
#[derive(Debug)]
pub(crate) struct Writer {
    elements: ExtentAllocator,
    pub(crate) services: BTreeMap<u32, WrittenService>,
    pub(crate) dests: BTreeMap<u32, Dest>,
    pub(crate) listeners: BTreeMap<ListenerKey, u32>,
    pub(crate) vips: BTreeMap<IpAddr, WrittenVip>,
    /// Runs of an earlier daemon by service row, used until the row refers to new runs.
    inherited_tables: BTreeMap<u32, Vec<Extent>>,
    /// Other runs of an earlier daemon, freed when every row refers to new runs.
    inherited: Vec<Extent>,
    /// Rows of an earlier daemon that may be unused now.
    inherited_rows: Changes,
}

impl Writer {
    /// Writes settings and servers. No list refers to a new server yet.
    ///
    /// # Errors
    /// Fails if a row is outside its map.
    pub(crate) fn write_servers(
        &mut self,
        maps: &Maps,
        rows: &RowSet,
        changes: &Changes,
    ) -> Result<()> {
        if maps.settings()? != rows.settings {
            maps.set_settings(&rows.settings)?;
        }
        self.init_shared_counts(maps, rows, changes)?;
        let mut thresholds_eased = false;
        for id in &changes.dests {
            let Some(row) = rows.dests.get(id) else {
                continue;
            };
            let (upper, lower) = rows.thresholds.get(id).copied().unwrap_or_default();
            thresholds_eased |= maps.set_thresholds(row.live, upper, lower)?;
            if self.dests.get(id) != Some(row) {
                maps.dests.set(*id, row)?;
                self.dests.insert(*id, *row);
            }
        }
        // Packets do not update a tree for a server that the tree does not contain.
        if thresholds_eased {
            self.refresh_trees(maps)?;
        }
        Ok(())
    }

    /// Writes services with their tables, then their listeners. Then calls `before_removal`, removes services and marks
    /// removed servers.
    ///
    /// # Errors
    /// Fails if there is no room for tables, or a map is full.
    pub(crate) fn write_services(
        &mut self,
        maps: &Maps,
        rows: &RowSet,
        changes: &Changes,
        now: Instant,
        before_removal: &mut dyn FnMut() -> Result<()>,
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
                self.write_service(maps, *index, row, now)?;
            }
        }
        self.write_addresses(maps, rows, changes, now)?;
        before_removal()?;
        self.remove_services(maps, rows, changes, now)?;
        self.mark_removed_servers(maps, rows, changes)?;
        let inherited = std::mem::take(&mut self.inherited_rows);
        self.remove_addresses(maps, rows, &inherited, now)?;
        self.remove_services(maps, rows, &inherited, now)?;
        for extent in std::mem::take(&mut self.inherited) {
            self.elements.retire(extent, now);
        }
        Ok(())
    }

    fn write_service(
        &mut self,
        maps: &Maps,
        index: u32,
        row: &ServiceRow,
        now: Instant,
    ) -> Result<()> {
        if self.adopt(maps, index, row)? {
            return Ok(());
        }
        let tables = self.allocate(row.tables.elements())?;
        maps.set_elements(tables.at, &row.tables.image(tables.at))?;
        let (header, _) = row.tables.header(tables.at);
        tree::fill(maps, &header)?;
        let previous = self.services.remove(&index);
        let only_tables_differ = previous.as_ref().is_some_and(|previous| {
            let previous = &previous.row;
            (
                previous.flags,
                &previous.snat_addresses,
                previous.snat_ports,
                previous.dscp,
                previous.template,
                previous.generation,
            ) == (
                row.flags,
                &row.snat_addresses,
                row.snat_ports,
                row.dscp,
                row.template,
                row.generation,
            )
        });
        let mut snat = previous.as_ref().and_then(|previous| previous.snat);
        let old_snat = snat;
        if only_tables_differ {
            maps.set_extent(index, tables.at)?;
        } else {
            snat = self.write_run(maps, &row.snat_addresses)?;
            let service = service_row(row, tables.at, snat.map_or(0, |run| run.at));
            maps.services.set(index, &service)?;
        }
        // Until the new tree was published, changes to counters updated the previous tree.
        tree::fill(maps, &header)?;
        if let Some(previous) = previous {
            self.elements.retire(previous.tables, now);
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

    /// Recomputes the trees from the counters, because concurrent updates can be lost.
    ///
    /// # Errors
    /// Fails if a row is outside its map.
    pub(crate) fn refresh_trees(&self, maps: &Maps) -> Result<()> {
        for written in self.services.values() {
            tree::fill(maps, &written.row.tables.header(written.tables.at).0)?;
        }
        Ok(())
    }

    fn write_run<T: Pod>(&mut self, maps: &Maps, values: &[T]) -> Result<Option<Extent>> {
        if values.is_empty() {
            return Ok(None);
        }
        let run = self.allocate(values.len() as u32)?;
        maps.set_elements(run.at, values)?;
        Ok(Some(run))
    }

    /// Allocates a run of elements. If no run is free, waits until no packet uses the retired runs.
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

    fn remove_services(
        &mut self,
        maps: &Maps,
        rows: &RowSet,
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

    /// Marks the rows of removed servers. This must follow the changes to services: no list contains these servers any
    /// longer, so new flows get other servers.
    fn mark_removed_servers(
        &mut self,
        maps: &Maps,
        rows: &RowSet,
        changes: &Changes,
    ) -> Result<()> {
        for id in &changes.dests {
            let Some(removed) = rows.removed_flags.get(id) else {
                continue;
            };
            let row = maps.dests.get(*id)?;
            let marked_row = Dest {
                flags: row.flags & RETAINED_FLAGS | removed.flags,
                policy: removed.policy,
                place: 0,
                ..row
            };
            if row.flags & DEST_LIVE != 0 && row != marked_row {
                maps.dests.set(*id, &marked_row)?;
            }
            self.dests.remove(id);
        }
        Ok(())
    }

    /// Clears the rows of servers whose flows have ended.
    ///
    /// # Errors
    /// Fails if a row is outside its map.
    pub(crate) fn clear_dests(&mut self, maps: &Maps, ids: &[u32]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        for id in ids {
            maps.dests.set(*id, &Dest::ZERO)?;
            self.dests.remove(id);
        }
        // A packet that read the row earlier must not be counted for the row's next owner.
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

/// Returns a service's row with the positions of its tables and its SNAT source addresses.
pub(crate) fn service_row(row: &ServiceRow, extent: u32, snat_at: u32) -> Service {
    row.to_record(extent, snat_at)
}
