//! The flow table from outside: reading what packets wrote, without stopping them.
//!
//! A flow that changes while it is read is read again or left out; nothing here changes an entry. Moving entries to a table
//! of another size or layout is in [`crate::migrate`]. What layout 2 has elsewhere, the marks of a
//! bucket, is not asked for here.

use std::path::Path;

use weir_abi::{BUCKET_SLOTS, Bucket, Entry, EntryMeta, FlowCold, HINTS, Hints, KIND_FREE};

use crate::error::Result;
use crate::mmap::Mapped;
use crate::sys::Access;

/// The buckets, the cold records and the hints.
#[derive(Debug)]
pub struct FlowTable {
    pub(crate) buckets: Mapped<Bucket>,
    pub(crate) cold: Mapped<FlowCold>,
    hints: Mapped<Hints>,
}

/// One flow as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Bucket × 7 + slot.
    pub place: u32,
    /// The entry.
    pub entry: Entry,
    /// The tuple and what goes with it.
    pub cold: FlowCold,
}

impl Flow {
    /// The parts of the entry's meta word.
    pub fn meta(&self) -> EntryMeta {
        self.entry.parts()
    }

    /// Index into `weir_dests`.
    pub fn dest(&self) -> u32 {
        self.entry.dest()
    }
}

impl FlowTable {
    /// Opens the table pinned in a directory.
    pub(crate) fn open(directory: &Path, access: Access) -> Result<Self> {
        Ok(Self {
            buckets: Mapped::open("weir_flows", directory, access)?,
            cold: Mapped::open("weir_flows_cold", directory, access)?,
            hints: Mapped::open("weir_hints", directory, access)?,
        })
    }

    /// Number of buckets.
    pub fn buckets(&self) -> u32 {
        self.buckets.entries()
    }

    /// Number of places.
    pub fn places(&self) -> u32 {
        self.cold.entries()
    }

    /// A bucket as it is now.
    ///
    /// # Errors
    /// It is outside the table.
    pub fn bucket(&self, index: u32) -> Result<Bucket> {
        self.buckets.get(index)
    }

    /// Which tags may be at home in a bucket, by [`Entry::hint_bit`].
    ///
    /// # Errors
    /// The bucket is outside the table.
    pub fn hint(&self, bucket: u32) -> Result<u8> {
        let hints = self.hints.get(bucket / HINTS)?;
        Ok(hints.tags[(bucket % HINTS) as usize])
    }

    /// Every flow, forward and reverse entries alike, in the order of places.
    pub fn walk(&self) -> impl Iterator<Item = Flow> + '_ {
        (0..self.buckets.entries()).flat_map(move |index| {
            let slots = self
                .buckets
                .get(index)
                .map(|bucket| bucket.slots)
                .unwrap_or_default();
            (0..BUCKET_SLOTS)
                .zip(slots)
                .filter_map(move |(slot, entry)| {
                    if entry.id == 0 {
                        return None;
                    }
                    self.at(index * BUCKET_SLOTS + slot)
                })
        })
    }

    /// The flow at a place, if there is one that stays long enough to be read.
    pub fn at(&self, place: u32) -> Option<Flow> {
        // Three tries: a place that is given away again and again is read by the next walk.
        for _ in 0..3 {
            let before = self.entry(place)?;
            if before.id == 0 || before.parts().kind == KIND_FREE {
                return None;
            }
            let cold = self.cold.get(place).ok()?;
            let after = self.entry(place)?;
            let same =
                before.id == after.id && before.parts().generation == after.parts().generation;
            if same && after.parts().kind != KIND_FREE {
                return Some(Flow {
                    place,
                    entry: after,
                    cold,
                });
            }
        }
        None
    }

    fn entry(&self, place: u32) -> Option<Entry> {
        let bucket = self.buckets.get(place / BUCKET_SLOTS).ok()?;
        bucket.slots.get((place % BUCKET_SLOTS) as usize).copied()
    }
}
