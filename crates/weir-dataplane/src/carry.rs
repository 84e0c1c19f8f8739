//! Copies the contents of an old state, which has different sizes or is from a different build, into a new state.
//!
//! Rows are copied by index, up to the smaller size. A map whose key or value size differs is skipped; maps that refer
//! to each other are either all copied or all skipped. Until the programs are replaced, packets are counted in the old
//! maps. The counts since the copy are added to the new maps once no packet can be in an old program.

use std::io::ErrorKind;
use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::Ordering;

use weir_abi::{Cursor, Dest, Element, Filter, Hop, Live, Service, Settings, Traffic};

use crate::error::{Context, Error, Result};
use crate::maps::{self, Maps};
use crate::mmap::Mapped;
use crate::pod::Pod;
use crate::sys::{self, Access};
use crate::table::{PerCpu, Table};

/// Counters of the old state that the new state does not share, with their values when they were copied.
#[derive(Debug)]
pub(crate) struct CarriedCounters {
    live: Option<(Mapped<Live>, Vec<Live>)>,
    traffic: Option<(PerCpu<Traffic>, Vec<Traffic>)>,
}

/// Maps that refer to each other.
struct Routing {
    vips: Table<weir_abi::Addr, weir_abi::Vip>,
    listeners: Table<weir_abi::Listener, u32>,
    devices: Table<u32, weir_abi::Device>,
    services: Mapped<Service>,
    elements: Mapped<Element>,
    cursors: Mapped<Cursor>,
    dests: Mapped<Dest>,
    hops: Mapped<Hop>,
}

impl Routing {
    fn open(state: &Path) -> Result<Self> {
        Ok(Self {
            vips: open_table(state, "weir_vips")?,
            listeners: open_table(state, "weir_listeners")?,
            devices: open_table(state, "weir_devices")?,
            services: open_mapped(state, "weir_services")?,
            elements: open_mapped(state, "weir_tables")?,
            cursors: open_mapped(state, "weir_cursors")?,
            dests: open_mapped(state, "weir_dests")?,
            hops: open_mapped(state, "weir_hops")?,
        })
    }

    fn copy_to(&self, new: &Maps) -> Result<()> {
        copy_table(&self.vips, &new.vips)?;
        copy_table(&self.listeners, &new.listeners)?;
        copy_table(&self.devices, &new.devices)?;
        copy_rows(&self.elements, &new.elements)?;
        copy_rows(&self.cursors, &new.cursors)?;
        copy_rows(&self.dests, &new.dests)?;
        copy_rows(&self.hops, &new.hops)?;
        copy_rows(&self.services, &new.services)
    }
}

impl CarriedCounters {
    /// Copies the maps that the new state does not share with the old state.
    pub(crate) fn copy(state: &Path, new: &Maps) -> Result<Self> {
        if let Some(routing) = if_compatible(Routing::open(state))? {
            routing.copy_to(new)?;
        }
        if let Some(settings) = if_compatible(open_mapped::<Settings>(state, "weir_settings"))? {
            new.set_settings(&settings.get(0)?)?;
        }
        if let Some(filter) = if_compatible(open_mapped::<Filter>(state, "weir_filters"))? {
            new.set_filter(&filter.get(0)?)?;
        }
        let mut carried = Self {
            live: None,
            traffic: None,
        };
        if let Some(old) = if_compatible(open_mapped::<Live>(state, "weir_live"))?
            && !is_same_map(&old, &new.live)
        {
            let rows = rows_in_both(&old, &new.live)?;
            new.live.set_all(0, &rows)?;
            carried.live = Some((old, rows));
        }
        if let Some(old) = if_compatible(open_per_cpu::<Traffic>(state, "weir_traffic"))?
            && old.entries() != new.traffic.entries()
        {
            let mut rows = maps::sums_of_traffic(&old)?;
            rows.truncate(new.traffic.entries() as usize);
            add_traffic(&new.traffic, rows.iter().copied())?;
            carried.traffic = Some((old, rows));
        }
        Ok(carried)
    }

    /// Adds the counts of the old maps since the copy. No packet may still be in an old program.
    pub(crate) fn add_difference(self, new: &Maps) -> Result<()> {
        if let Some((old, rows)) = self.live {
            add_live_difference(&old, &rows, &new.live)?;
        }
        if let Some((old, before)) = self.traffic {
            let current = maps::sums_of_traffic(&old)?;
            let pairs = current.iter().zip(&before);
            add_traffic(
                &new.traffic,
                pairs.map(|(current, before)| difference(current, before)),
            )?;
        }
        Ok(())
    }
}

/// Adds the difference between `old` and `before` to the rows of `new`.
fn add_live_difference(old: &Mapped<Live>, before: &[Live], new: &Mapped<Live>) -> Result<()> {
    for (row, before) in (0u32..).zip(before) {
        let current = old.get(row)?;
        let words = [
            (offset_of!(Live, active), before.active, current.active),
            (
                offset_of!(Live, inactive),
                before.inactive,
                current.inactive,
            ),
            (offset_of!(Live, total), before.total, current.total),
            (
                offset_of!(Live, stateless),
                before.stateless,
                current.stateless,
            ),
            (offset_of!(Live, syns), before.syns, current.syns),
            (
                offset_of!(Live, answered),
                before.answered,
                current.answered,
            ),
        ];
        for (offset, before, current) in words
            .into_iter()
            .filter(|(_, before, current)| before != current)
        {
            new.atomic_u64(row, offset)?
                .fetch_add(current.wrapping_sub(before), Ordering::AcqRel);
        }
        if current.persistent != before.persistent {
            new.atomic_u32(row, offset_of!(Live, persistent))?
                .fetch_add(
                    current.persistent.wrapping_sub(before.persistent),
                    Ordering::AcqRel,
                );
        }
    }
    Ok(())
}

/// Adds the server counts of a replaced state to the new state, which has `dests` server rows, if the build that
/// created the new state did not copy them. In this case, the new rows started at zero, and each flow that ends would
/// make them wrap around. Returns whether counts were added. No packet may still be in a program of the replaced state.
pub(crate) fn transfer(old: &Maps, state: &Path, dests: u32) -> Result<bool> {
    let Some(new_live) = if_compatible(Mapped::open("weir_live", state, Access::Full))? else {
        return Ok(false);
    };
    if is_same_map(&old.live, &new_live) {
        return Ok(false);
    }
    let count = dests.min(old.dests.entries());
    let mut has_uncopied_rows = false;
    for row in 0..count.min(new_live.entries()) {
        let (old_row, new_row) = (old.live.get(row)?, new_live.get(row)?);
        // In such a short time, a row in use is not assigned to a different server.
        has_uncopied_rows |= old_row.active + old_row.inactive > 0 && new_row.total < old_row.total;
    }
    if !has_uncopied_rows {
        return Ok(false);
    }
    let zeros = vec![Live::ZERO; count.min(new_live.entries()) as usize];
    add_live_difference(&old.live, &zeros, &new_live)?;
    if let Some(new_traffic) = if_compatible(open_per_cpu::<Traffic>(state, "weir_traffic"))?
        && new_traffic.entries() != old.traffic.entries()
    {
        let mut rows = maps::sums_of_traffic(&old.traffic)?;
        rows.truncate(count.min(new_traffic.entries()) as usize);
        add_traffic(&new_traffic, rows.into_iter())?;
    }
    Ok(true)
}

fn difference(current: &Traffic, before: &Traffic) -> Traffic {
    Traffic {
        packets_in: current.packets_in.wrapping_sub(before.packets_in),
        bytes_in: current.bytes_in.wrapping_sub(before.bytes_in),
        packets_out: current.packets_out.wrapping_sub(before.packets_out),
        bytes_out: current.bytes_out.wrapping_sub(before.bytes_out),
    }
}

/// Adds counts to the first CPU's value of each row. A concurrent update by a packet can be lost.
fn add_traffic(traffic: &PerCpu<Traffic>, rows: impl Iterator<Item = Traffic>) -> Result<()> {
    for (row, added) in (0u32..).zip(rows) {
        if added == Traffic::ZERO {
            continue;
        }
        let mut values = traffic.get(row)?;
        if let Some(first) = values.first_mut() {
            first.packets_in = first.packets_in.wrapping_add(added.packets_in);
            first.bytes_in = first.bytes_in.wrapping_add(added.bytes_in);
            first.packets_out = first.packets_out.wrapping_add(added.packets_out);
            first.bytes_out = first.bytes_out.wrapping_add(added.bytes_out);
        }
        traffic.set(row, &values)?;
    }
    Ok(())
}

fn open_table<K: Pod, V: Pod>(state: &Path, name: &'static str) -> Result<Table<K, V>> {
    let path = state.join(name);
    Table::new(name, sys::open_pin(&path, Access::Read).at(&path)?)
}

fn open_per_cpu<V: Pod>(state: &Path, name: &'static str) -> Result<PerCpu<V>> {
    let path = state.join(name);
    PerCpu::new(name, sys::open_pin(&path, Access::Full).at(&path)?)
}

fn open_mapped<T: Pod>(state: &Path, name: &'static str) -> Result<Mapped<T>> {
    Mapped::open(name, state, Access::Read)
}

/// Returns `None` if the state has no such map, or one with different properties, such as the value size.
fn if_compatible<T>(opened: Result<T>) -> Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Error::MapMismatch { .. }) => Ok(None),
        Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn copy_table<K: Pod, V: Pod>(old: &Table<K, V>, new: &Table<K, V>) -> Result<()> {
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

/// Returns whether two states share this map.
fn is_same_map<T: Pod>(old: &Mapped<T>, new: &Mapped<T>) -> bool {
    use std::os::fd::AsFd;
    let id = |map: &Mapped<T>| sys::map_info(map.map().as_fd()).map(|info| info.id).ok();
    id(old).is_some() && id(old) == id(new)
}
