//! Implements `rr` and `wrr` on a sorted list, like the data plane.
//!
//! The kernel keeps a pointer to the last chosen server, and adjusts it when that server is removed. Here the pointer
//! is the server's `seq`: the search continues with the first member whose `seq` is lower, whether or not the server
//! still exists, so a list can be replaced while a cursor is active. Two cases cannot be expressed this way, and are
//! published with the list as a [`Start`]: `wrr` restarts at every change, and an `rr` cursor beyond the first member
//! means the head of the list, even if servers are added later.
//!
//! The packet path owns the [`Cursor`]; the publisher of lists owns the [`Start`]. [`rr::next_start`] and
//! [`wrr::next_start`] compute the next `Start` from both, for one change (one added, edited or removed server) at a
//! time, because the kernel's result for two changes differs from that for both at once. Cursor updates between the
//! read and the publication are lost, but this has no other effect.
//!
//! [`reference`](mod@crate::reference) is a slow implementation that returns the same results.

pub mod rr;
pub mod wrr;

use crate::Member;

/// The position in a service's list at which the next search begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The [`Start::generation`] that this cursor has adopted; 0 = none yet.
    pub generation: u32,
    /// `seq` of the last chosen server; 0 = the head of the list.
    pub last_seq: u32,
    /// `wrr`: the minimum weight in the current pass, 1 to [`Start::max_weight`], or 0 while no server has weight.
    pub pass_weight: u32,
}

/// Initial values for cursors after a list change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Changes whenever cursors must restart. Never 0.
    pub generation: u32,
    /// [`Cursor::last_seq`] for a cursor with another generation.
    pub last_seq: u32,
    /// [`Cursor::pass_weight`] for a cursor with another generation.
    pub pass_weight: u32,
    /// `wrr`: the weight of the first pass, which is the highest weight minus `step - 1`; 0 if no server has weight.
    pub max_weight: u32,
    /// `wrr`: greatest common divisor of the weights above 0, which is the difference between passes; 1 if there is
    /// none.
    pub step: u32,
}

impl Start {
    /// Returns `cursor` if it has this generation, otherwise a cursor with the initial values.
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

/// Returns the index of the first member after `last_seq` for which `is_eligible` returns true.
fn first_after(
    members: &[Member],
    last_seq: u32,
    is_eligible: impl Fn(&Member) -> bool,
) -> Option<usize> {
    members
        .iter()
        .position(|member| (last_seq == 0 || member.seq < last_seq) && is_eligible(member))
}

#[cfg(test)]
mod tests;
