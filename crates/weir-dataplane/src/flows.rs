//! Reads the flow table while packets change it.
//!
//! If a flow changes during a read, the read is repeated or the flow is skipped. This module never changes entries;
//! [`crate::migrate`] moves entries to a table with a different size or layout. Layout 2 stores the buckets' spill
//! counts differently, so this module does not use them.

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

    /// Returns a bucket's hint: the bits ([`Entry::hint_bit`]) of all tags that may have an entry whose home is this
    /// bucket.
    ///
    /// # Errors
    /// Fails if the bucket is outside the table.
    pub fn hint(&self, bucket: u32) -> Result<u8> {
        let hints = self.hints.get(bucket / HINTS)?;
        Ok(hints.tags[(bucket % HINTS) as usize])
    }

    /// Returns all used entries, forward and reverse, in order of entry index: a nat flow is returned twice.
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

    /// Returns the flow at an entry index; `None` if the index is outside the table, the entry is free, or it changed
    /// during every attempt to read it.
    pub fn at(&self, index: u32) -> Option<Flow> {
        // Make three attempts. An entry that keeps changing is left to the next walk.
        for _ in 0..3 {
            let before = self.entry(index)?;
            if before.id == 0 || before.parts().kind == KIND_FREE {
                return None;
            }
            let cold = self.cold.get(index).ok()?;
            let after = self.entry(index)?;
            let is_unchanged =
                before.id == after.id && before.parts().generation == after.parts().generation;
            if is_unchanged && after.parts().kind != KIND_FREE {
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
