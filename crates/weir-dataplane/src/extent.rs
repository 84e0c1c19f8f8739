//! Allocates the elements of `weir_tables`.
//!
//! An extent that packets may still read is not reused immediately: it stays in a list of retired extents for a grace
//! period, or until the caller reports that no packet uses it. Time is an argument; this module does not access the
//! map.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time before a retired extent is reused. A packet uses an extent for a few microseconds, in a softirq that is not
/// preempted for long.
pub const GRACE: Duration = Duration::from_secs(1);

/// A run of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// The first element; never 0, which means "none" in rows.
    pub at: u32,
    /// Number of elements, above 0.
    pub length: u32,
}

/// An allocator that uses the first free run that is long enough.
#[derive(Clone, Debug)]
pub struct ExtentAllocator {
    /// Length of every free run, by its start; adjacent runs are merged.
    free: BTreeMap<u32, u32>,
    retired: VecDeque<(Instant, Extent)>,
}

impl ExtentAllocator {
    /// Creates an allocator in which all elements except the first are free.
    pub fn new(elements: u32) -> Self {
        let usable = elements.saturating_sub(1);
        let free = if usable > 0 {
            BTreeMap::from([(1, usable)])
        } else {
            BTreeMap::new()
        };
        Self {
            free,
            retired: VecDeque::new(),
        }
    }

    /// Creates an allocator in which these runs are in use. The runs can overlap, because extents can share a hash
    /// table.
    pub fn with_used(elements: u32, used: impl IntoIterator<Item = Extent>) -> Self {
        let mut allocator = Self::new(elements);
        for extent in used {
            allocator.mark_used(extent);
        }
        allocator
    }

    /// Removes the free parts of `extent` from the free runs.
    fn mark_used(&mut self, extent: Extent) {
        let end = extent.at.saturating_add(extent.length);
        let overlapping: Vec<(u32, u32)> = self
            .free
            .range(..end)
            .rev()
            .take_while(|(at, length)| *at + *length > extent.at)
            .map(|(at, length)| (*at, *length))
            .collect();
        for (at, length) in overlapping {
            self.free.remove(&at);
            if at < extent.at {
                self.free.insert(at, extent.at - at);
            }
            if at + length > end {
                self.free.insert(end, at + length - end);
            }
        }
    }

    /// Allocates `length` elements; `None` = `length` is 0, or no free run is long enough, although one may exist once
    /// retired runs are freed.
    pub fn allocate(&mut self, length: u32) -> Option<Extent> {
        if length == 0 {
            return None;
        }
        let (at, free) = self
            .free
            .iter()
            .find(|(_, free)| **free >= length)
            .map(|(at, free)| (*at, *free))?;
        self.free.remove(&at);
        if free > length {
            self.free.insert(at + length, free - length);
        }
        Some(Extent { at, length })
    }

    /// Retires an extent that no row refers to any longer; packets may still be reading it at `now`.
    pub fn retire(&mut self, extent: Extent, now: Instant) {
        self.retired.push_back((now, extent));
    }

    /// Frees extents that were retired at least [`GRACE`] before `now`.
    pub fn reclaim(&mut self, now: Instant) {
        while let Some((retired, extent)) = self.retired.front().copied() {
            if now.saturating_duration_since(retired) < GRACE {
                return;
            }
            self.retired.pop_front();
            self.release(extent);
        }
    }

    /// Frees all retired extents. Call [`crate::wait_for_packets`] first.
    pub fn reclaim_all(&mut self) {
        while let Some((_, extent)) = self.retired.pop_front() {
            self.release(extent);
        }
    }

    fn release(&mut self, extent: Extent) {
        let Extent { mut at, mut length } = extent;
        if let Some((before, run)) = self
            .free
            .range(..at)
            .next_back()
            .map(|(before, run)| (*before, *run))
            && before + run == at
        {
            self.free.remove(&before);
            at = before;
            length += run;
        }
        if let Some(run) = self.free.remove(&(at + length)) {
            length += run;
        }
        self.free.insert(at, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free_elements(allocator: &ExtentAllocator) -> u64 {
        allocator.free.values().copied().map(u64::from).sum()
    }
    use proptest::prelude::*;

    fn extent(at: u32, length: u32) -> Extent {
        Extent { at, length }
    }

    #[test]
    fn element_zero_is_never_allocated() {
        let mut allocator = ExtentAllocator::new(4);
        assert_eq!(allocator.allocate(3), Some(extent(1, 3)));
        assert_eq!(allocator.allocate(1), None);
    }

    #[test]
    fn retired_extent_is_reused_after_grace_period() {
        let start = Instant::now();
        let mut allocator = ExtentAllocator::new(5);
        let allocated = allocator.allocate(4).unwrap();
        allocator.retire(allocated, start);
        allocator.reclaim(start + GRACE - Duration::from_nanos(1));
        assert_eq!(allocator.allocate(1), None);
        allocator.reclaim(start + GRACE);
        assert_eq!(allocator.allocate(4), Some(allocated));
    }

    #[test]
    fn adjacent_free_runs_are_merged() {
        let mut allocator = ExtentAllocator::new(13);
        let parts: Vec<_> = (0..4).map(|_| allocator.allocate(3).unwrap()).collect();
        for index in [0, 2, 3, 1] {
            allocator.retire(parts[index], Instant::now());
        }
        allocator.reclaim_all();
        assert_eq!(allocator.allocate(12), Some(extent(1, 12)));
    }

    #[test]
    fn elements_of_overlapping_adopted_extents_are_not_free() {
        let mut allocator =
            ExtentAllocator::with_used(20, [extent(5, 4), extent(7, 3), extent(18, 9)]);
        assert_eq!(free_elements(&allocator), 4 + 8);
        assert_eq!(allocator.allocate(5), Some(extent(10, 5)));
        assert_eq!(allocator.allocate(4), Some(extent(1, 4)));
        assert_eq!(allocator.allocate(4), None);
    }

    proptest! {
        #[test]
        fn no_element_is_allocated_twice(operations in prop::collection::vec((any::<bool>(), 1u32..40), 1..200)) {
            let mut allocator = ExtentAllocator::new(512);
            let mut allocated: Vec<Extent> = Vec::new();
            for (free, size) in operations {
                if free && !allocated.is_empty() {
                    let extent = allocated.swap_remove(size as usize % allocated.len());
                    allocator.retire(extent, Instant::now());
                    allocator.reclaim_all();
                } else if let Some(extent) = allocator.allocate(size) {
                    prop_assert!(extent.at >= 1 && extent.at + extent.length <= 512);
                    for other in &allocated {
                        prop_assert!(extent.at + extent.length <= other.at || other.at + other.length <= extent.at);
                    }
                    allocated.push(extent);
                }
                let used: u64 = allocated.iter().map(|extent| u64::from(extent.length)).sum();
                prop_assert_eq!(free_elements(&allocator) + used, 511);
            }
        }
    }
}
