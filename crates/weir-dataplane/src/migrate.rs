//! Flows out of a table of another size, into the one in force.
//!
//! First copied while the old programs still run, so that the new ones find them from their first packet; then, when no
//! packet is in an old program any more, brought up to date: what the old programs began since is moved, what they ended is
//! removed, and the state of what they changed is taken over. Where old and new programs both changed an entry, the new one
//! stands and the server's counts are corrected by the difference, because each side counted from the copied class.
//!
//! A flow between the two steps that began in the old table meets the new programs without an entry for that moment.

use std::collections::HashMap;
use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::Ordering;

use weir_abi::{
    ABI_FLOW_LAYOUT, BUCKET_SLOTS, Bucket, Entry, EntryMeta, FLOW_ACTIVE, FLOW_SECOND, FlowCold,
    KIND_FORWARD, Live, NO_PLACE,
};

use crate::error::{Error, Result};
use crate::flows::{Flow, FlowTable};
use crate::maps::Maps;
use crate::sys::Access;

/// Where a flow belongs in the table in force, computed from its tuple and the secret (weir-flow's hash).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The fingerprint, 44 bits.
    pub tag: u64,
    /// The bucket that the hash chose.
    pub home: u32,
    /// The bucket for what does not fit there.
    pub second: u32,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Moved {
    /// Entries that are in the new table because of this step.
    pub moved: u64,
    /// Entries brought up to date.
    pub updated: u64,
    /// Entries removed again, because the old programs ended them after the copy.
    pub ended: u64,
    /// Entries for which both buckets were full.
    pub lost: u64,
}

/// What was put where.
#[derive(Clone, Copy, Debug)]
struct Copied {
    place: u32,
    id: u64,
    /// In the old table when it was copied.
    old: Entry,
    /// What was written to the new one.
    new_meta: u64,
}

/// An old table that is being emptied.
#[derive(Debug)]
pub(crate) struct Migration {
    old: FlowTable,
    /// By place in the old table.
    copied: HashMap<u32, Copied>,
}

const LOCK_TRIES: u32 = 1 << 16;

impl Migration {
    pub(crate) fn open(directory: &Path, layout: u32) -> Result<Self> {
        if layout != ABI_FLOW_LAYOUT {
            let found = format!("flow layout {layout}");
            return Err(Error::ForeignLayout {
                path: directory.to_owned(),
                found,
            });
        }
        Ok(Self {
            old: FlowTable::open(directory, Access::Read)?,
            copied: HashMap::new(),
        })
    }

    /// Copies every flow that is not copied yet.
    pub(crate) fn copy(
        &mut self,
        new: &FlowTable,
        places: impl Fn(&FlowCold) -> Home,
    ) -> Result<Moved> {
        let mut moved = Moved::default();
        let mut fresh = Vec::new();
        for flow in self.old.walk() {
            if self.copied.contains_key(&flow.place) {
                continue;
            }
            match insert(new, &flow, places(&flow.cold))? {
                Inserted::At(copied) => {
                    self.copied.insert(flow.place, copied);
                    fresh.push(flow);
                    moved.moved += 1;
                }
                // It began again under the new programs, or an earlier step of a daemon that died put it there.
                Inserted::Present => {}
                Inserted::Full => moved.lost += 1,
            }
        }
        for flow in fresh {
            self.link_peers(new, &flow)?;
        }
        Ok(moved)
    }

    /// Points both directions of a flow at each other in the new table, or at nothing when only one could be moved.
    fn link_peers(&self, new: &FlowTable, flow: &Flow) -> Result<()> {
        let Some(own) = self.copied.get(&flow.place) else {
            return Ok(());
        };
        let mut cold = new.cold.get(own.place)?;
        cold.peer = NO_PLACE;
        if let Some(peer) = self.copied.get(&flow.cold.peer) {
            cold.peer = peer.place;
            cold.peer_generation = EntryMeta::unpack(peer.new_meta).generation;
        }
        new.cold.set(own.place, &cold)
    }

    /// Takes over what happened since the copy and moves the rest.
    pub(crate) fn finish(
        &mut self,
        maps: &Maps,
        places: impl Fn(&FlowCold) -> Home,
    ) -> Result<Moved> {
        let new = &maps.flows;
        let mut report = Moved::default();
        for (place, copied) in std::mem::take(&mut self.copied) {
            match self.old.at(place) {
                Some(now)
                    if now.entry.id == copied.old.id
                        && now.meta().generation == copied.old.parts().generation =>
                {
                    if now.entry.meta != copied.old.meta {
                        report.updated +=
                            u64::from(update(maps, &copied, Some(now.entry.parts()))?);
                    }
                    self.copied.insert(place, copied);
                }
                _ => report.ended += u64::from(update(maps, &copied, None)?),
            }
        }
        let rest = self.copy(new, places)?;
        report.moved += rest.moved;
        report.lost += rest.lost;
        Ok(report)
    }
}

enum Inserted {
    At(Copied),
    Present,
    Full,
}

/// Puts a flow where its hash says, as the data plane does: under the locks of its buckets, id last.
fn insert(table: &FlowTable, flow: &Flow, home: Home) -> Result<Inserted> {
    let lock = offset_of!(Bucket, lock);
    if !table.buckets.try_lock(home.home, lock, LOCK_TRIES)? {
        return Ok(Inserted::Full);
    }
    let inserted = insert_locked(table, flow, home);
    table.buckets.store_u32(home.home, lock, 0)?;
    inserted
}

fn insert_locked(table: &FlowTable, flow: &Flow, home: Home) -> Result<Inserted> {
    let first = table.buckets.get(home.home)?;
    let second = table.buckets.get(home.second)?;
    let taken = |bucket: &Bucket| {
        bucket
            .slots
            .iter()
            .any(|entry| entry.id != 0 && entry.tag() == home.tag)
    };
    if taken(&first) || (home.home != home.second && taken(&second)) {
        return Ok(Inserted::Present);
    }
    table.allow(home.home, home.tag)?;
    if let Some(slot) = free_slot(&first) {
        return write(table, flow, home, home.home, slot, 0).map(Inserted::At);
    }
    let lock = offset_of!(Bucket, lock);
    if home.home == home.second || !table.buckets.try_lock(home.second, lock, LOCK_TRIES)? {
        return Ok(Inserted::Full);
    }
    // Read again: only under its lock does a free slot stay free.
    let second = table.buckets.get(home.second)?;
    let written = match free_slot(&second) {
        Some(slot) => {
            table
                .buckets
                .add_u32(home.home, offset_of!(Bucket, spilled), 1)?;
            write(table, flow, home, home.second, slot, FLOW_SECOND).map(Inserted::At)
        }
        None => Ok(Inserted::Full),
    };
    table.buckets.store_u32(home.second, lock, 0)?;
    written
}

fn free_slot(bucket: &Bucket) -> Option<u32> {
    (0..BUCKET_SLOTS)
        .zip(bucket.slots)
        .find(|(_, entry)| entry.id == 0)
        .map(|(slot, _)| slot)
}

const fn id_offset(slot: u32) -> usize {
    offset_of!(Bucket, slots) + slot as usize * size_of::<Entry>() + offset_of!(Entry, id)
}

const fn meta_offset(slot: u32) -> usize {
    offset_of!(Bucket, slots) + slot as usize * size_of::<Entry>() + offset_of!(Entry, meta)
}

fn write(
    table: &FlowTable,
    flow: &Flow,
    home: Home,
    bucket: u32,
    slot: u32,
    extra: u8,
) -> Result<Copied> {
    let place = bucket * BUCKET_SLOTS + slot;
    let generation = table.buckets.get(bucket)?.slots[slot as usize]
        .parts()
        .generation
        .wrapping_add(1);
    let meta = EntryMeta {
        generation,
        flags: flow.meta().flags & !FLOW_SECOND | extra,
        ..flow.meta()
    }
    .pack();
    let id = Entry::pack_id(home.tag, flow.dest());
    table.cold.set(
        place,
        &FlowCold {
            home: home.home,
            peer: NO_PLACE,
            ..flow.cold
        },
    )?;
    table.buckets.store_u64(bucket, meta_offset(slot), meta)?;
    table.buckets.store_u64(bucket, id_offset(slot), id)?;
    Ok(Copied {
        place,
        id,
        old: flow.entry,
        new_meta: meta,
    })
}

/// Brings a copied entry to what the old table says now; `None` = the flow ended there. Answers whether it was changed.
fn update(maps: &Maps, copied: &Copied, old: Option<EntryMeta>) -> Result<bool> {
    let (bucket, slot) = (copied.place / BUCKET_SLOTS, copied.place % BUCKET_SLOTS);
    let written = EntryMeta::unpack(copied.new_meta);
    let wanted = match old {
        Some(old) => EntryMeta {
            generation: written.generation,
            flags: old.flags & !FLOW_SECOND | written.flags & FLOW_SECOND,
            ..old
        },
        None => EntryMeta {
            generation: written.generation,
            flags: written.flags,
            ..EntryMeta::default()
        },
    };
    let word = maps.flows.buckets.atomic_u64(bucket, meta_offset(slot))?;
    if word
        .compare_exchange(
            copied.new_meta,
            wanted.pack(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        )
        .is_ok()
    {
        if old.is_none() {
            release(&maps.flows, copied, bucket, slot)?;
        }
        return Ok(true);
    }
    // The new programs changed it as well and counted from the copied class; the old ones did the same.
    let entry = maps.flows.bucket(bucket)?.slots[slot as usize];
    if entry.id != copied.id || written.kind != KIND_FORWARD {
        return Ok(false);
    }
    correct_counts(maps, entry.dest(), written, old)?;
    Ok(false)
}

/// Clears an entry whose meta is free already.
fn release(table: &FlowTable, copied: &Copied, bucket: u32, slot: u32) -> Result<()> {
    if EntryMeta::unpack(copied.new_meta).flags & FLOW_SECOND != 0 {
        let home = table.cold.get(copied.place)?.home;
        table
            .buckets
            .add_u32(home, offset_of!(Bucket, spilled), -1)?;
    }
    table.buckets.store_u64(bucket, id_offset(slot), 0)
}

/// Undoes what the old programs did to the counts of a flow that the new ones own: they have counted it themselves.
fn correct_counts(maps: &Maps, dest: u32, copied: EntryMeta, old: Option<EntryMeta>) -> Result<()> {
    let class = |meta: EntryMeta| meta.flags & FLOW_ACTIVE != 0;
    let add = |row: u32, active: bool, by: u64| -> Result<()> {
        let offset = if active {
            offset_of!(Live, active)
        } else {
            offset_of!(Live, inactive)
        };
        maps.live
            .atomic_u64(row, offset)?
            .fetch_add(by, Ordering::AcqRel);
        Ok(())
    };
    let shared = maps.dests.get(dest)?.live;
    let rows = if shared == dest {
        vec![dest]
    } else {
        vec![dest, shared]
    };
    for row in rows {
        add(row, class(copied), 1)?;
        if let Some(old) = old {
            add(row, class(old), 1u64.wrapping_neg())?;
        }
    }
    Ok(())
}
