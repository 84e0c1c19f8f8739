//! What a new state takes over from one of other sizes.
//!
//! Rows are copied by index, as far as both states have them. Packets go on counting in the old maps until the programs are
//! replaced; what they added meanwhile is added once more when no packet can be in an old program.

use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::Ordering;

use weir_abi::{Live, Traffic};

use crate::error::Result;
use crate::maps::Maps;
use crate::mmap::Mapped;
use crate::pod::Pod;
use crate::sys::{self, Access};

/// An old state whose counts are to be settled.
#[derive(Debug)]
pub(crate) struct Carried {
    old: Maps,
    live: Option<Vec<Live>>,
    traffic: Option<Vec<Traffic>>,
}

impl Carried {
    /// Copies everything that the old state holds; `None` = its maps are of another shape, nothing could be copied.
    pub(crate) fn copy(state: &Path, flows: (&Path, u32), new: &Maps) -> Result<Option<Self>> {
        let Ok(old) = Maps::open(state, flows, Access::Read) else {
            return Ok(None);
        };
        copy_table(&old.vips, &new.vips)?;
        copy_table(&old.listeners, &new.listeners)?;
        copy_table(&old.devices, &new.devices)?;
        copy_rows(&old.elements, &new.elements)?;
        copy_rows(&old.cursors, &new.cursors)?;
        copy_rows(&old.dests, &new.dests)?;
        copy_rows(&old.hops, &new.hops)?;
        copy_rows(&old.services, &new.services)?;
        new.set_settings(&old.settings()?)?;
        new.set_filter(&old.filter()?)?;

        let mut carried = Self {
            old,
            live: None,
            traffic: None,
        };
        if !same_map(&carried.old.live, &new.live) {
            let rows = rows_in_both(&carried.old.live, &new.live)?;
            new.live.set_all(0, &rows)?;
            carried.live = Some(rows);
        }
        if carried.old.traffic.entries() != new.traffic.entries() {
            let mut rows = carried.old.all_traffic()?;
            rows.truncate(new.traffic.entries() as usize);
            add_traffic(new, rows.iter().copied())?;
            carried.traffic = Some(rows);
        }
        Ok(Some(carried))
    }

    /// Adds what was counted in the old maps since the copy. No packet may be in an old program any more.
    pub(crate) fn settle(self, new: &Maps) -> Result<()> {
        for (row, before) in (0u32..).zip(self.live.unwrap_or_default()) {
            let now = self.old.live.get(row)?;
            let words = [
                (offset_of!(Live, active), before.active, now.active),
                (offset_of!(Live, inactive), before.inactive, now.inactive),
                (offset_of!(Live, total), before.total, now.total),
                (offset_of!(Live, stateless), before.stateless, now.stateless),
            ];
            for (offset, before, now) in words.into_iter().filter(|(_, before, now)| before != now)
            {
                new.live
                    .atomic_u64(row, offset)?
                    .fetch_add(now.wrapping_sub(before), Ordering::AcqRel);
            }
        }
        if let Some(before) = self.traffic {
            let now = self.old.all_traffic()?;
            add_traffic(
                new,
                now.iter()
                    .zip(&before)
                    .map(|(now, before)| difference(now, before)),
            )?;
        }
        Ok(())
    }
}

fn difference(now: &Traffic, before: &Traffic) -> Traffic {
    Traffic {
        packets_in: now.packets_in.wrapping_sub(before.packets_in),
        bytes_in: now.bytes_in.wrapping_sub(before.bytes_in),
        packets_out: now.packets_out.wrapping_sub(before.packets_out),
        bytes_out: now.bytes_out.wrapping_sub(before.bytes_out),
    }
}

/// Adds to the first CPU's value of each row; what a packet adds to that row in the same microseconds may be lost.
fn add_traffic(maps: &Maps, rows: impl Iterator<Item = Traffic>) -> Result<()> {
    for (row, by) in (0u32..).zip(rows) {
        if by == Traffic::ZERO {
            continue;
        }
        let mut values = maps.traffic.get(row)?;
        if let Some(first) = values.first_mut() {
            first.packets_in = first.packets_in.wrapping_add(by.packets_in);
            first.bytes_in = first.bytes_in.wrapping_add(by.bytes_in);
            first.packets_out = first.packets_out.wrapping_add(by.packets_out);
            first.bytes_out = first.bytes_out.wrapping_add(by.bytes_out);
        }
        maps.traffic.set(row, &values)?;
    }
    Ok(())
}

fn copy_table<K: Pod, V: Pod>(
    old: &crate::table::Table<K, V>,
    new: &crate::table::Table<K, V>,
) -> Result<()> {
    let (keys, values): (Vec<K>, Vec<V>) = old
        .elements()?
        .into_iter()
        .take(new.capacity() as usize)
        .unzip();
    new.set_many(&keys, &values)
}

fn rows_in_both<T: Pod>(old: &Mapped<T>, new: &Mapped<T>) -> Result<Vec<T>> {
    old.get_all(0, old.entries().min(new.entries()))
}

fn copy_rows<T: Pod>(old: &Mapped<T>, new: &Mapped<T>) -> Result<()> {
    new.set_all(0, &rows_in_both(old, new)?)
}

/// Whether both are one map, shared by two states.
fn same_map<T: Pod>(old: &Mapped<T>, new: &Mapped<T>) -> bool {
    use std::os::fd::AsFd;
    let id = |map: &Mapped<T>| sys::map_info(map.map().as_fd()).map(|info| info.id).ok();
    id(old).is_some() && id(old) == id(new)
}
