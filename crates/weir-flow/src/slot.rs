//! Determines which flow table buckets can contain the entry for a hash, and the order in which they are tried.
//!
//! Also computes the home bucket's marks for entries in other buckets.
//!
//! The rules match bpf/lib/bucket.h. The reference model uses them to allocate the same slots as the data plane, and
//! tests use them to read a table.

use weir_abi::{BUCKET_SLOTS, Bucket, SPILL_PAIRS, STASH_PAIRS};
use weir_model::GOLDEN_64;

use crate::key::scale;

/// Position of the hash bits that select the first pair of buckets.
const PAIR_SHIFT: u32 = 8;
/// Position of the hash bit that selects the first bucket of a pair.
const SIDE_SHIFT: u32 = 12;
/// Number of bits of a mark.
const MARK_BITS: u32 = 4;

/// The numbers of home buckets and of the stash buckets after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    home_count: u32,
    stash_count: u32,
}

impl Geometry {
    /// Returns the geometry of a table of `buckets` buckets.
    #[must_use]
    pub const fn new(buckets: u32) -> Self {
        let home_count = Bucket::home_count(buckets);
        Self {
            home_count,
            stash_count: buckets - home_count,
        }
    }

    /// Returns the number of home buckets.
    #[must_use]
    pub const fn home_count(self) -> u32 {
        self.home_count
    }

    const fn stash_pairs(self) -> u32 {
        self.stash_count.div_ceil(2)
    }
}

/// The buckets that can contain the entry for a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The tag: 44 bits of the hash.
    pub tag: u64,
    /// The bucket that is searched first.
    pub home: u32,
    first: u32,
    side: u32,
    geometry: Geometry,
}

/// How a home bucket counts one of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The entry is in its home bucket.
    None,
    /// Increment of [`Bucket::spilled`].
    Spilled(u64),
    /// Increment of [`Bucket::stashed`].
    Stashed(u32),
}

impl Placement {
    /// Returns the placement of a hash in a table of this geometry.
    #[must_use]
    pub const fn new(hash: u64, geometry: Geometry) -> Self {
        Self {
            tag: hash & ((1 << 44) - 1),
            home: scale(hash, geometry.home_count),
            first: (hash >> PAIR_SHIFT) as u32 % SPILL_PAIRS,
            side: (hash >> SIDE_SHIFT) as u32 & 1,
            geometry,
        }
    }

    /// Returns the buckets in the order in which they are tried, each with its mark in the home bucket.
    pub fn buckets(self) -> impl Iterator<Item = (u32, Mark)> {
        let steps = |pairs: u32| (0..2 * pairs).map(move |step| (step / 2, self.side ^ step & 1));
        let spilled =
            steps(SPILL_PAIRS).filter_map(move |(step, side)| self.spill_bucket(step, side));
        let stashed =
            steps(STASH_PAIRS).filter_map(move |(pair, side)| self.stash_bucket(pair, side));
        std::iter::once((self.home, Mark::None))
            .chain(spilled)
            .chain(stashed)
    }

    fn spill_bucket(self, step: u32, side: u32) -> Option<(u32, Mark)> {
        let pair = (self.first + step) % SPILL_PAIRS;
        let bucket = (self.home ^ pair << 1) & !1 | side;
        let exists = bucket < self.geometry.home_count && bucket != self.home;
        exists.then_some((bucket, Mark::Spilled(1 << (pair * MARK_BITS))))
    }

    fn stash_bucket(self, pair: u32, side: u32) -> Option<(u32, Mark)> {
        let Geometry {
            home_count,
            stash_count,
        } = self.geometry;
        let pairs = self.geometry.stash_pairs();
        if pair >= pairs {
            return None;
        }
        let first = scale(u64::from(self.home).wrapping_mul(GOLDEN_64), pairs);
        let bucket = home_count + (first + pair) % pairs * 2 + side;
        let exists = bucket < home_count + stash_count;
        exists.then_some((bucket, Mark::Stashed(1 << (pair * MARK_BITS))))
    }
}

/// Tracks which slots are used.
#[derive(Clone, Debug)]
pub(crate) struct SlotAllocator {
    geometry: Geometry,
    /// One bit per slot.
    used: Vec<u8>,
}

impl SlotAllocator {
    /// Creates an allocator for a table of `buckets` buckets, with all slots free.
    pub(crate) fn new(buckets: u32) -> Self {
        Self {
            geometry: Geometry::new(buckets),
            used: vec![0; buckets as usize],
        }
    }

    /// Allocates a slot for a hash. Returns `None` if all buckets for the hash are full.
    pub(crate) fn allocate(&mut self, hash: u64) -> Option<u32> {
        Placement::new(hash, self.geometry)
            .buckets()
            .find_map(|(bucket, _)| {
                let slots = self.used.get_mut(bucket as usize)?;
                let slot = slots.trailing_ones();
                (slot < BUCKET_SLOTS).then(|| {
                    *slots |= 1 << slot;
                    bucket * BUCKET_SLOTS + slot
                })
            })
    }

    /// Frees a slot.
    pub(crate) fn free(&mut self, index: u32) {
        if let Some(slots) = self.used.get_mut((index / BUCKET_SLOTS) as usize) {
            *slots &= !(1 << (index % BUCKET_SLOTS));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;
    use weir_model::SplitMix64;

    use super::*;

    fn is_full(allocator: &SlotAllocator, bucket: u32) -> bool {
        allocator.used[bucket as usize].count_ones() == BUCKET_SLOTS
    }

    /// Allocates the two slots of a NAT flow.
    fn allocate_both(allocator: &mut SlotAllocator, random: &mut SplitMix64) -> Option<(u32, u32)> {
        let reverse = allocator.allocate(random.next_u64())?;
        let Some(forward) = allocator.allocate(random.next_u64()) else {
            allocator.free(reverse);
            return None;
        };
        Some((reverse, forward))
    }

    /// Fills `percent` of a table with NAT flows, then replaces all of them ten times, the oldest first or at random.
    /// Returns the number of failed allocations.
    fn count_failures(buckets: u32, percent: u32, oldest_first: bool) -> usize {
        let mut random = SplitMix64::new(buckets.into());
        let mut allocator = SlotAllocator::new(buckets);
        let count = (buckets * BUCKET_SLOTS * percent / 200) as usize;
        let mut flows = Vec::new();
        let mut failures = 0;
        for turn in 0..11 * count {
            if turn >= count {
                let index = match oldest_first {
                    true => turn % count,
                    false => (random.next_u64() % count as u64) as usize,
                };
                let (reverse, forward) = flows.swap_remove(index);
                allocator.free(reverse);
                allocator.free(forward);
                let new_flow = loop {
                    match allocate_both(&mut allocator, &mut random) {
                        Some(both) => break both,
                        None => failures += 1,
                    }
                };
                flows.push(new_flow);
                let last = flows.len() - 1;
                flows.swap(index, last);
                continue;
            }
            match allocate_both(&mut allocator, &mut random) {
                Some(both) => flows.push(both),
                None => failures += 1,
            }
        }
        failures
    }

    #[test]
    fn nat_flows_fit_at_90_percent_after_ten_turnovers() {
        for buckets in [32, 64, 150, 1000, 4096] {
            for oldest_first in [false, true] {
                assert_eq!(
                    count_failures(buckets, 90, oldest_first),
                    0,
                    "{buckets} buckets"
                );
            }
        }
    }

    #[test]
    fn every_slot_of_a_page_is_allocated() {
        let mut allocator = SlotAllocator::new(32);
        let mut random = SplitMix64::new(1);
        let used: HashSet<u32> = (0..32 * BUCKET_SLOTS)
            .map(|_| allocator.allocate(random.next_u64()).unwrap())
            .collect();
        assert_eq!(used.len(), 224);
        assert_eq!(allocator.allocate(random.next_u64()), None);
    }

    proptest! {
        #[test]
        fn buckets_of_a_hash_are_distinct_and_in_the_table(hash: u64, buckets in 1u32..5000) {
            let geometry = Geometry::new(buckets);
            let placement = Placement::new(hash, geometry);
            let mut seen = HashSet::new();
            for (bucket, mark) in placement.buckets() {
                prop_assert!(bucket < buckets && seen.insert(bucket), "{bucket}");
                prop_assert_eq!(matches!(mark, Mark::Stashed(_)), bucket >= geometry.home_count());
            }
            prop_assert!(placement.home < geometry.home_count() && placement.tag < 1 << 44);
        }

        /// A reader that uses only the marks of the home bucket finds every entry, and no slot is allocated twice.
        #[test]
        fn marks_cover_every_entry(
            buckets in 1u32..200,
            steps in prop::collection::vec((any::<u64>(), 0u8..8), 1..2000),
        ) {
            let geometry = Geometry::new(buckets);
            let mut allocator = SlotAllocator::new(buckets);
            let mut allocated: Vec<(u64, u32)> = Vec::new();
            let mut marks: HashMap<u32, (u64, u32)> = HashMap::new();
            // The hashes select only a sixteenth of the home buckets, so these buckets fill up.
            for (random, action) in steps {
                if action == 0 && !allocated.is_empty() {
                    let (hash, index) = allocated.swap_remove(random as usize % allocated.len());
                    allocator.free(index);
                    change_marks(&mut marks, hash, index, geometry, -1);
                    continue;
                }
                let hash = random & 0x0fff_ffff_ffff_ffff;
                let Some(index) = allocator.allocate(hash) else {
                    let placement = Placement::new(hash, geometry);
                    prop_assert!(placement.buckets().all(|(bucket, _)| is_full(&allocator, bucket)));
                    continue;
                };
                prop_assert!(allocated.iter().all(|(_, other)| *other != index));
                change_marks(&mut marks, hash, index, geometry, 1);
                allocated.push((hash, index));
            }
            for (hash, index) in &allocated {
                let placement = Placement::new(*hash, geometry);
                let (spilled, stashed) = marks.get(&placement.home).copied().unwrap_or_default();
                let searched = placement.buckets().filter(|(_, mark)| match mark {
                    Mark::None => true,
                    Mark::Spilled(increment) => spilled & (increment * 15) != 0,
                    Mark::Stashed(increment) => stashed & (increment * 15) != 0,
                });
                let buckets: Vec<u32> = searched.map(|(bucket, _)| bucket).collect();
                prop_assert!(buckets.contains(&(index / BUCKET_SLOTS)), "{hash:x} {index}");
            }
            for (hash, index) in allocated.drain(..) {
                change_marks(&mut marks, hash, index, geometry, -1);
            }
            prop_assert!(marks.values().all(|marks| *marks == (0, 0)));
        }
    }

    /// Adds an entry to the marks of its home bucket (`delta` 1) or removes it (−1), like the data plane. A carry
    /// between counters would make the test fail.
    fn change_marks(
        marks: &mut HashMap<u32, (u64, u32)>,
        hash: u64,
        index: u32,
        geometry: Geometry,
        delta: i8,
    ) {
        let placement = Placement::new(hash, geometry);
        let (_, mark) = placement
            .buckets()
            .find(|(bucket, _)| *bucket == index / BUCKET_SLOTS)
            .expect("slot is not in one of the hash's buckets");
        let (spilled, stashed) = marks.entry(placement.home).or_default();
        match mark {
            Mark::None => {}
            Mark::Spilled(increment) => {
                *spilled = spilled.wrapping_add_signed(i64::from(delta) * increment.cast_signed());
            }
            Mark::Stashed(increment) => {
                *stashed = stashed.wrapping_add_signed(i32::from(delta) * increment.cast_signed());
            }
        }
    }
}
