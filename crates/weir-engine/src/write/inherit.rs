//! Adopts the map contents of an earlier daemon: they stay active until they are rewritten, and are then freed.

use std::collections::BTreeMap;

use weir_abi::{Element, Service};
use weir_dataplane::{Extent, ExtentAllocator, Maps, elements_of};
use weir_planner::row_set::Changes;
use weir_planner::rows::{ServiceRow, VipRow};

use super::{Writer, WrittenService, WrittenVip, service_row};
use crate::error::Result;
use crate::tree;

impl Writer {
    /// Adopts the contents of the maps: rows of an earlier daemon stay active until they are rewritten.
    ///
    /// # Errors
    /// Fails if the maps cannot be read.
    pub(crate) fn adopt_maps(maps: &Maps) -> Result<Self> {
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
            // The run is in `inherited`.
            writer
                .vips
                .insert(addr.to_ip(), WrittenVip { row, ranges: None });
        }
        for row in 1..maps.services.entries() {
            let service = maps.services.get(row)?;
            if service != Service::ZERO {
                writer.inherited_rows.services.insert(row);
                let runs = merge_overlapping(maps.extents_of(&service)?);
                writer.inherited_tables.insert(row, runs);
            }
        }
        ranges.retain(|run| run.at != 0 && run.length != 0);
        writer.inherit(ranges, maps.elements.entries());
        writer.inherited_rows.listeners = writer.listeners.keys().copied().collect();
        writer.inherited_rows.vips = writer.vips.keys().copied().collect();
        Ok(writer)
    }

    /// Adopts the element runs of an earlier daemon. Overlapping runs, which this build does not create, are freed
    /// together: a run that is freed twice would be allocated twice.
    fn inherit(&mut self, ranges: Vec<Extent>, elements: u32) {
        let tables = self.inherited_tables.values().flatten();
        let mut all: Vec<Extent> = tables.chain(&ranges).copied().collect();
        let count = all.len();
        all = merge_overlapping(all);
        self.inherited = merge_overlapping(ranges);
        if all.len() != count {
            self.inherited = all.clone();
            self.inherited_tables.clear();
        }
        self.elements = ExtentAllocator::with_used(elements, all);
    }

    /// Adopts a row and its tables if an earlier daemon wrote the planned content. Returns whether they were adopted.
    pub(super) fn adopt(&mut self, maps: &Maps, index: u32, row: &ServiceRow) -> Result<bool> {
        let Some(runs) = self.inherited_tables.get(&index) else {
            return Ok(false);
        };
        let present = maps.services.get(index)?;
        let run = |at, length| Extent { at, length };
        let tables = run(present.extent, row.tables.elements());
        let snat =
            (present.snat_at != 0).then(|| run(present.snat_at, u32::from(present.snat_len)));
        let content_matches = |run: Extent, expected: &[Element]| -> Result<bool> {
            Ok(maps.elements.get_all(run.at, expected.len() as u32)? == expected)
        };
        let is_same = *runs == merge_overlapping(snat.into_iter().chain([tables]).collect())
            && present == service_row(row, present.extent, present.snat_at)
            && content_matches(tables, &row.tables.image(tables.at))?
            && snat.map_or(Ok(true), |run| {
                content_matches(run, &elements_of(&row.snat_addresses))
            })?;
        if is_same {
            tree::fill(maps, &row.tables.header(tables.at).0)?;
            self.inherited_tables.remove(&index);
            let row = row.clone();
            let written = WrittenService { row, tables, snat };
            self.services.insert(index, written);
        }
        Ok(is_same)
    }
}

/// Merges overlapping runs: a run that is freed twice would be allocated twice.
fn merge_overlapping(mut runs: Vec<Extent>) -> Vec<Extent> {
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
            merge_overlapping(vec![run(10, 5), run(1, 4), run(12, 8), run(20, 1)]),
            [run(1, 4), run(10, 10), run(20, 1)]
        );
    }
}
