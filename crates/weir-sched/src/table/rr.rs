//! Round robin: the next available server after the last chosen one, weights aside (net/netfilter/ipvs/ip_vs_rr.c).

use super::{Cursor, Start, first_after};
use crate::Member;

/// The start of a new service.
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

/// The start that goes with the list that one change made of `before`.
///
/// It differs from the present one only when the remembered server went while it was the first of the list. The kernel's
/// cursor is then at the head, so that a server added now is the next; by `seq` alone it would be the last.
#[must_use]
pub fn changed(start: &Start, cursor: Cursor, before: &[Member]) -> Start {
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

/// Index of the server for the next flow, or none when no server is available; then the cursor stays.
pub fn pick(members: &[Member], start: &Start, cursor: &mut Cursor) -> Option<usize> {
    *cursor = start.adopt(*cursor);
    let index = first_after(members, cursor.last_seq, Member::available)
        .or_else(|| first_after(members, 0, Member::available))?;
    cursor.last_seq = members[index].seq;
    Some(index)
}
