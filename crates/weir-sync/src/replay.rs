//! Protects a session against replays with a sliding window over sequence numbers (RFC 4303, section 3.4.3).

/// Size of the window: number of sequence numbers that are tracked, counted down from the highest.
pub(crate) const WINDOW_SIZE: u64 = 1024;
const WORDS: usize = (WINDOW_SIZE / 64) as usize;

/// The sequence numbers that a session has received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// The highest number received plus one; 0 = none.
    next: u64,
    received: [u64; WORDS],
}

impl Window {
    /// Records a number. Returns false if it was received before or is below the window.
    pub(crate) fn accept(&mut self, sequence: u64) -> bool {
        if sequence == u64::MAX {
            return false;
        }
        if sequence >= self.next {
            let first_new = self.next;
            self.next = sequence + 1;
            if sequence - first_new >= WINDOW_SIZE {
                self.received = [0; WORDS];
            } else {
                (first_new..sequence).for_each(|number| self.set(number, false));
            }
        } else if self.next - sequence > WINDOW_SIZE || self.contains(sequence) {
            return false;
        }
        self.set(sequence, true);
        true
    }

    fn set(&mut self, number: u64, is_received: bool) {
        let (index, bit) = ((number / 64) as usize % WORDS, 1u64 << (number % 64));
        if is_received {
            self.received[index] |= bit;
        } else {
            self.received[index] &= !bit;
        }
    }

    /// Returns whether the number is in the window and was received.
    pub(crate) fn contains(&self, number: u64) -> bool {
        number < self.next
            && self.next - number <= WINDOW_SIZE
            && self.received[(number / 64) as usize % WORDS] & 1 << (number % 64) != 0
    }

    /// Returns the highest number received, or `None` if none was received.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn old_and_repeated_numbers_are_rejected() {
        let mut window = Window::default();
        assert!(window.accept(0));
        assert!(!window.accept(0));
        assert!(window.accept(5000));
        assert!(!window.accept(5000 - WINDOW_SIZE));
        assert!(window.accept(5001 - WINDOW_SIZE));
        assert!(!window.accept(u64::MAX));
    }

    #[test]
    fn window_contains_exactly_the_numbers_received_within_its_size() {
        let mut window = Window::default();
        assert_eq!(window.highest(), None);
        assert!(!window.contains(0));
        // First, more numbers than the window's size, without gaps. Then gaps, numbers below the highest one, and a gap
        // as long as the window, after which no earlier number is in it.
        let numbers = (0..1500).chain([1503, 1501, 1600, 1502, 2623, 1601, 2622, 3648, 3647]);
        let mut received = [false; 8192];
        let mut highest = 0;
        for number in numbers {
            assert!(window.accept(number), "{number}");
            received[number as usize] = true;
            highest = highest.max(number);
            assert_eq!(window.highest(), Some(highest));
            let lowest = (highest + 1).saturating_sub(WINDOW_SIZE);
            for other in lowest.saturating_sub(2)..=highest + 2 {
                let expected = other >= lowest && received[other as usize];
                assert_eq!(window.contains(other), expected, "{other} after {number}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_number_is_accepted_twice(numbers in prop::collection::vec(0u64..4096, 0..2000)) {
            let (mut window, mut accepted) = (Window::default(), HashSet::new());
            for number in numbers {
                let highest = window.highest();
                let is_accepted = window.accept(number);
                if is_accepted {
                    prop_assert!(accepted.insert(number));
                } else {
                    let is_old = highest.is_some_and(|it| it >= number + WINDOW_SIZE);
                    prop_assert!(accepted.contains(&number) || is_old);
                }
            }
        }
    }
}
