//! Allocates numbers, lowest free number first.

use std::collections::BTreeSet;

/// The free numbers: all from `next` on, and a set of numbers below it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NumberAllocator {
    next: u32,
    free: BTreeSet<u32>,
}

impl NumberAllocator {
    /// Creates an allocator for the numbers from `first` on, except those in use.
    pub(crate) fn new(first: u32, used: impl Iterator<Item = u32>) -> Self {
        let mut used: Vec<u32> = used.filter(|number| *number >= first).collect();
        used.sort_unstable();
        let mut numbers = Self {
            next: first,
            free: BTreeSet::new(),
        };
        for number in used {
            numbers.free.extend(numbers.next..number);
            numbers.next = numbers.next.max(number.saturating_add(1));
        }
        numbers
    }

    /// Allocates the lowest free number if it is below `end`.
    pub(crate) fn allocate(&mut self, end: u32) -> Option<u32> {
        if let Some(lowest) = self.free.first().copied() {
            if lowest >= end {
                return None;
            }
            return self.free.pop_first();
        }
        let number = self.next;
        (number < end).then(|| {
            self.next += 1;
            number
        })
    }

    /// Frees a number.
    pub(crate) fn free(&mut self, number: u32) {
        self.free.insert(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_free_number_is_allocated_first() {
        let mut numbers = NumberAllocator::new(1, [2, 5, 2].into_iter());
        let allocated: Vec<_> = (0..4).map(|_| numbers.allocate(7)).collect();
        assert_eq!(allocated, [Some(1), Some(3), Some(4), Some(6)]);
        assert_eq!(numbers.allocate(7), None);
        numbers.free(5);
        assert_eq!(numbers.allocate(5), None);
        assert_eq!(numbers.allocate(7), Some(5));
    }
}
