//! Implements weighted round robin with descending passes (net/netfilter/ipvs/ip_vs_wrr.c).
//!
//! A pass iterates over the list once, and chooses every server whose weight is at least that of the pass. The weight
//! of each pass is lower than that of the previous one by `step`, and the highest pass follows the lowest. Because the
//! weight of the highest pass is the highest weight minus `step - 1`, the weight of the lowest pass is always 1.
//!
//! The kernel counts down passes without a server one by one. For weights such as 1 and 65535, this loop would be too
//! long for BPF. A pass has no server if and only if its weight exceeds those of all available servers, so the passes
//! up to the next one with a server are skipped in one step: a choice iterates over the list at most three times.

use super::{Cursor, Start, first_after};
use crate::Member;

/// Returns the start of a new service with these members.
#[must_use]
pub fn start(members: &[Member]) -> Start {
    let (max_weight, step) = passes(members);
    Start {
        generation: 1,
        last_seq: 0,
        pass_weight: max_weight,
        max_weight,
        step,
    }
}

/// Returns the start for `after`, the list after one change. The walk restarts at the head. The current pass continues
/// if possible; its weight is aligned to the new step, so that the lowest pass is 1 again.
#[must_use]
pub fn next_start(start: &Start, cursor: Cursor, after: &[Member]) -> Start {
    let (max_weight, step) = passes(after);
    let current = start.adopt(cursor).pass_weight;
    let pass_weight = if current > max_weight || current == 0 {
        max_weight
    } else if step > 1 {
        current / step * step + 1
    } else {
        current
    };
    Start {
        generation: start.next_generation(),
        last_seq: 0,
        pass_weight,
        max_weight,
        step,
    }
}

/// Returns the index of the server for the next flow, or `None` if no server is available.
pub fn pick(members: &[Member], start: &Start, cursor: &mut Cursor) -> Option<usize> {
    *cursor = start.adopt(*cursor);
    if start.max_weight == 0 {
        return None;
    }
    let is_in_pass =
        |pass_weight| move |member: &Member| member.is_available() && member.weight >= pass_weight;
    if let Some(index) = first_after(members, cursor.last_seq, is_in_pass(cursor.pass_weight)) {
        cursor.last_seq = members[index].seq;
        return Some(index);
    }

    // A search that began at the head was a complete pass; any other search only completed the current pass.
    let began_mid_pass = cursor.last_seq != 0;
    let is_lowest_pass = began_mid_pass && cursor.pass_weight <= start.step;
    if is_lowest_pass {
        cursor.pass_weight = start.max_weight;
    } else if began_mid_pass {
        cursor.pass_weight = cursor.pass_weight.saturating_sub(start.step);
    }

    let Some(max_weight) = members
        .iter()
        .filter(|member| member.is_available())
        .map(|member| member.weight)
        .max()
    else {
        // Set the position at which the kernel's loop ends without a server: a round that began in the middle of the
        // lowest pass ends at the server at which it began; any other round ends at the head, before the highest pass.
        if is_lowest_pass {
            cursor.pass_weight = 1;
        } else {
            cursor.pass_weight = start.max_weight;
            cursor.last_seq = 0;
        }
        return None;
    };
    let excess = cursor.pass_weight.saturating_sub(max_weight);
    cursor.pass_weight = cursor.pass_weight.saturating_sub(
        excess
            .div_ceil(start.step.max(1))
            .saturating_mul(start.step),
    );
    let index = first_after(members, 0, is_in_pass(cursor.pass_weight))?;
    cursor.last_seq = members[index].seq;
    Some(index)
}

/// Returns the weight of the first pass, and the step between passes.
fn passes(members: &[Member]) -> (u32, u32) {
    let divisor = members.iter().map(|member| member.weight).fold(0, gcd);
    let max_weight = members
        .iter()
        .map(|member| member.weight)
        .max()
        .unwrap_or(0);
    let step = divisor.max(1);
    (max_weight.saturating_sub(step - 1), step)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
