//! Implements round robin: selects the next available server after the last chosen one, ignoring weights.
//!
//! The kernel's implementation is net/netfilter/ipvs/ip_vs_rr.c.

use super::{Cursor, Start, first_after};
use crate::Member;

/// Returns the initial scheduler state of a new service.
#[must_use]
pub const fn start() -> Start {
    Start {
        generation: 1,
        last_seq: 0,
        pass_weight: 0,
        max_weight: 0,
        step: 1,
    }
}

/// Returns the initial scheduler state for the list after one change to `before`.
///
/// The result differs from `start` only if the last chosen server was removed while it was first in the list. The
/// kernel's cursor is then at the head of the list, so a server that is added now is selected first; in the order of
/// `seq`, it would be selected last.
#[must_use]
pub fn next_start(start: &Start, cursor: Cursor, before: &[Member]) -> Start {
    let first_seq = before.first().map_or(0, |member| member.seq);
    if start.adopt(cursor).last_seq <= first_seq {
        return *start;
    }
    Start {
        generation: start.next_generation(),
        last_seq: 0,
        ..*start
    }
}

/// Returns the index of the server for the next flow. Returns `None`, and leaves the position unchanged, if no server
/// is available.
pub fn pick(members: &[Member], start: &Start, cursor: &mut Cursor) -> Option<usize> {
    *cursor = start.adopt(*cursor);
    let index = first_after(members, cursor.last_seq, Member::is_available)
        .or_else(|| first_after(members, 0, Member::is_available))?;
    cursor.last_seq = members[index].seq;
    Some(index)
}
