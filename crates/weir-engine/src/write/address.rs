//! Writes the rows of VIPs and listeners, and the Bloom filter that passes most other packets early.

use std::time::Instant;

use weir_abi::{Addr, FILTER_WORDS, Filter, Listener, Vip};
use weir_dataplane::{Extent, Maps};
use weir_planner::row_set::{Changes, RowSet};
use weir_planner::rows::{ListenerKey, VipRow, listener_key};

use super::{Writer, WrittenVip};
use crate::error::Result;

impl Writer {
    /// Writes added and changed rows, then deletes removed rows. In between, the filter includes old and new addresses.
    pub(super) fn write_addresses(
        &mut self,
        maps: &Maps,
        rows: &RowSet,
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
            let ranges = self.write_run(maps, &row.ranges)?;
            maps.vips
                .set(&Addr::from(*address), &vip_row(row, ranges))?;
            let previous = self.vips.insert(
                *address,
                WrittenVip {
                    row: row.clone(),
                    ranges,
                },
            );
            if let Some(run) = previous.and_then(|previous| previous.ranges) {
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
        self.remove_addresses(maps, rows, changes, now)?;
        maps.set_filter(&rows.filter)?;
        Ok(())
    }

    /// Removes the rows in `changes` that `rows` does not contain.
    pub(super) fn remove_addresses(
        &mut self,
        maps: &Maps,
        rows: &RowSet,
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
}

/// Returns the map key of a listener.
pub(crate) fn listener(key: ListenerKey) -> Listener {
    listener_key(key)
}

pub(crate) fn vip_row(row: &VipRow, ranges: Option<Extent>) -> Vip {
    row.to_record(ranges.map_or(0, |run| run.at))
}

fn union(first: &Filter, second: &Filter) -> Filter {
    let mut both = Filter::ZERO;
    for word in 0..FILTER_WORDS as usize {
        both.to[word] = first.to[word] | second.to[word];
        both.from[word] = first.from[word] | second.from[word];
    }
    both
}
