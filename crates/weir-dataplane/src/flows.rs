//! Reads the flow table while packets change it.
//!
//! A flow that changes while it is read is read again or skipped. This module never changes entries; [`crate::migrate`]
//! moves entries to a table with a different size or layout. The spill counts of buckets differ in layout 2, so this
//! module does not use them.

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

/// A consistent copy of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Entry index: bucket × 7 + slot.
    pub index: u32,
    /// The entry.
    pub entry: Entry,
    /// The cold record, with the tuple.
    pub cold: FlowCold,
}

impl Flow {
    /// Returns the fields of the entry's meta word.
    pub fn meta(&self) -> EntryMeta {
        self.entry.parts()
    }

    /// Returns the flow's server row, an index into `weir_dests`.
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

    /// Returns the number of buckets.
    pub fn buckets(&self) -> u32 {
        self.buckets.entries()
    }

    /// Returns the number of entries that the table can hold.
    pub fn capacity(&self) -> u32 {
        self.cold.entries()
    }

    /// Returns a copy of a bucket.
    ///
    /// # Errors
    /// Fails if the index is outside the table.
    pub fn bucket(&self, index: u32) -> Result<Bucket> {
        self.buckets.get(index)
    }

    /// Returns a bit set of the tags whose home bucket may be this one; see [`Entry::hint_bit`].
    ///
    /// # Errors
    /// Fails if the bucket is outside the table.
    pub fn hint(&self, bucket: u32) -> Result<u8> {
        let hints = self.hints.get(bucket / HINTS)?;
        Ok(hints.tags[(bucket % HINTS) as usize])
    }

    /// Returns all flows, forward and reverse entries, in order of entry index.
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

    /// Returns the flow at an entry index; `None` if the entry is free, or if it changed during every attempt to read
    /// it.
    pub fn at(&self, index: u32) -> Option<Flow> {
        // Make three attempts. The next walk reads an entry that keeps changing.
        for _ in 0..3 {
            let before = self.entry(index)?;
            if before.id == 0 || before.parts().kind == KIND_FREE {
                return None;
            }
            let cold = self.cold.get(index).ok()?;
            let after = self.entry(index)?;
            let same =
                before.id == after.id && before.parts().generation == after.parts().generation;
            if same && after.parts().kind != KIND_FREE {
                return Some(Flow {
                    index,
                    entry: after,
                    cold,
                });
            }
        }
        None
    }

    /// Prefetches an entry that [`Self::at`] will read soon.
    pub fn prefetch(&self, index: u32) {
        self.buckets.prefetch(index / BUCKET_SLOTS);
        self.cold.prefetch(index);
    }

    /// Returns a copy of a cold record, which can belong to an earlier flow.
    ///
    /// # Errors
    /// Fails if the index is outside the table.
    pub fn cold(&self, index: u32) -> Result<FlowCold> {
        self.cold.get(index)
    }

    fn entry(&self, index: u32) -> Option<Entry> {
        let bucket = self.buckets.get(index / BUCKET_SLOTS).ok()?;
        bucket.slots.get((index % BUCKET_SLOTS) as usize).copied()
    }
}
