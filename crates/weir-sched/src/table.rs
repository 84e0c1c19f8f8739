//! `rr` and `wrr` over a sorted list: what the data plane runs.
//!
//! The kernel keeps a pointer to the last chosen server and adjusts it when that server is removed. Here the pointer is
//! the server's `seq`: the walk continues with the first member with a lower one, whether or not the server still
//! exists, so a list may be replaced under an active cursor. Two things cannot be expressed that way and travel with
//! the list as a [`Start`]: `wrr` restarts at every change, and an `rr` cursor beyond the first member means the head
//! of the list, which later additions must not change.
//!
//! The packet path owns the [`Cursor`], the publisher of lists the [`Start`]. [`rr::changed`] and [`wrr::changed`]
//! compute the next `Start` from both, one change (one added, edited or removed server) at a time, because the kernel's
//! result for two changes differs from that for their sum. Cursor updates between reading and publishing are lost,
//! nothing more.
//!
//! [`reference`](mod@crate::reference) is the slow implementation that these must equal.

pub mod rr;
pub mod wrr;

use crate::Member;

/// The position of a service's walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The [`Start::generation`] that this cursor has adopted; 0 adopts any.
    pub generation: u32,
    /// `seq` of the server chosen last; 0 is the head of the list.
    pub last_seq: u32,
    /// `wrr`: the minimum weight in the current pass, 1 to [`Start::max_weight`], or 0 in a service
    /// that never had a server with weight.
    pub pass_weight: u32,
}

/// Initial values for cursors from before a list change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Changes whenever cursors must restart. Never 0.
    pub generation: u32,
    /// [`Cursor::last_seq`] for a cursor of another generation.
    pub last_seq: u32,
    /// [`Cursor::pass_weight`] for a cursor of another generation.
    pub pass_weight: u32,
    /// `wrr`: the first pass's weight, which is the greatest weight less `step - 1`; 0 when no server has weight.
    pub max_weight: u32,
    /// `wrr`: greatest common divisor of the weights above 0, the difference from pass to pass; 1 when there is none.
    pub step: u32,
}

impl Start {
    /// Returns `cursor` if it has this generation, otherwise the start's values.
    #[must_use]
    pub const fn adopt(&self, cursor: Cursor) -> Cursor {
        if cursor.generation == self.generation {
            return cursor;
        }
        Cursor {
            generation: self.generation,
            last_seq: self.last_seq,
            pass_weight: self.pass_weight,
        }
    }

    const fn next_generation(&self) -> u32 {
        match self.generation.wrapping_add(1) {
            0 => 1,
            generation => generation,
        }
    }
}

/// Index of the first member after `last_seq` for which `wanted` returns true.
fn first_after(
    members: &[Member],
    last_seq: u32,
    wanted: impl Fn(&Member) -> bool,
) -> Option<usize> {
    members
        .iter()
        .position(|member| (last_seq == 0 || member.seq < last_seq) && wanted(member))
}

#[cfg(test)]
mod tests;
