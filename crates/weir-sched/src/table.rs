//! `rr` and `wrr` over a sorted list: what the data plane runs.
//!
//! The kernel keeps a pointer to the last chosen server and mends it when that server goes. Here the pointer is the server's
//! `seq`: to continue after it is to take the first member with a lower one, whether or not the server still exists, so a
//! list may be replaced under a running cursor. Two things cannot be had that way and travel with the list as a [`Start`]:
//! `wrr` begins anew at every change, and an `rr` cursor beyond the first member means the head of the list, which later
//! additions must not change.
//!
//! A [`Cursor`] belongs to the packets, a [`Start`] to whoever publishes lists. [`rr::changed`] and [`wrr::changed`] make the
//! next `Start` out of both, one change (one added, edited or removed server) at a time, because the kernel's rule is not the
//! same for two changes as for their sum. What a cursor did between being read and the publishing is lost, no more.
//!
//! [`reference`](mod@crate::reference) is the slow form that these must equal.

pub mod rr;
pub mod wrr;

use crate::Member;

/// Where a service's walk stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The [`Start::generation`] that this cursor has adopted; 0 adopts any.
    pub generation: u32,
    /// `seq` of the server chosen last; 0 is the head of the list.
    pub last_seq: u32,
    /// `wrr`: the weight that a server must have at least in the present pass, 1 to [`Start::max_weight`], or 0 in a service
    /// that never had a server with weight.
    pub pass_weight: u32,
}

/// What a list says to a cursor from before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Changes whenever a cursor must begin anew. Never 0.
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
    /// What `cursor` stands for under this start: itself, or the start's own values when it is of another generation.
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

/// Index of the first member after `last_seq` that `wanted` holds for.
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
