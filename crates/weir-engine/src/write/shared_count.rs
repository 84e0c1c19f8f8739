//! Initializes and corrects a server's flow counts that are summed over several services.
//!
//! A shared counter is the sum of a server's counters in all services.

use std::collections::BTreeMap;

use weir_dataplane::Maps;
use weir_planner::row_set::{Changes, RowSet};

use super::Writer;
use crate::error::Result;

impl Writer {
    /// Initializes each shared counter that a server begins to use with the sum of the counters of all servers that
    /// share it.
    pub(super) fn init_shared_counts(
        &self,
        maps: &Maps,
        rows: &RowSet,
        changes: &Changes,
    ) -> Result<()> {
        let mut newly_shared: BTreeMap<u32, bool> = BTreeMap::new();
        let changed = |id: &u32| Some((*id, rows.dests.get(id)?));
        let changed = changes.dests.iter().filter_map(changed);
        for (id, row) in changed.filter(|(id, row)| row.live != *id) {
            let previous_row = maps.dests.get(id)?;
            *newly_shared.entry(row.live).or_default() |= previous_row.live != row.live;
        }
        newly_shared.retain(|_, joins| *joins);
        if newly_shared.is_empty() {
            return Ok(());
        }
        for (live, sum) in shared_sums(maps, rows, |live| newly_shared.contains_key(&live))? {
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

    /// Corrects shared counters that missed packets while sharing began. `previous` contains the differences that the
    /// previous call found: a difference is corrected only if two consecutive calls find it.
    ///
    /// # Errors
    /// Fails if a row is outside its map.
    pub(crate) fn repair_shared_counts(
        &self,
        maps: &Maps,
        rows: &RowSet,
        previous: &mut BTreeMap<u32, (u64, u64)>,
    ) -> Result<()> {
        let mut differences = BTreeMap::new();
        for (live, sum) in shared_sums(maps, rows, |_| true)? {
            let shared = maps.live(live)?;
            let difference = (
                shared.active.wrapping_sub(sum.active),
                shared.inactive.wrapping_sub(sum.inactive),
            );
            // A packet between two reads causes only a temporary difference.
            if difference != (0, 0) && previous.get(&live) == Some(&difference) {
                maps.live.set(
                    live,
                    &weir_abi::Live {
                        active: sum.active,
                        inactive: sum.inactive,
                        ..shared
                    },
                )?;
            } else if difference != (0, 0) {
                differences.insert(live, difference);
            }
        }
        *previous = differences;
        Ok(())
    }
}

/// Returns the sums of the servers' counters for the chosen shared rows, by row.
fn shared_sums(
    maps: &Maps,
    rows: &RowSet,
    chosen: impl Fn(u32) -> bool,
) -> Result<BTreeMap<u32, weir_abi::Live>> {
    let mut sums: BTreeMap<u32, weir_abi::Live> = BTreeMap::new();
    for (id, row) in &rows.dests {
        if row.live == *id || !chosen(row.live) {
            continue;
        }
        let counts = maps.live(*id)?;
        let sum = sums.entry(row.live).or_insert(weir_abi::Live::ZERO);
        sum.active = sum.active.wrapping_add(counts.active);
        sum.inactive = sum.inactive.wrapping_add(counts.inactive);
    }
    Ok(sums)
}
