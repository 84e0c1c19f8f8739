//! Implements weighted round robin with descending passes (net/netfilter/ipvs/ip_vs_wrr.c).
//!
//! A pass iterates over the list once, and chooses every server whose weight is at least that of the pass. The weight
//! of each pass is lower than that of the previous one by `step`, and the highest pass follows the lowest. Because the
//! weight of the highest pass is the highest weight minus `step - 1`, the weight of the lowest pass is always 1.
//!
//! The kernel steps through passes without a server one at a time. For weights such as 1 and 65535, this loop would be
//! too long for BPF. A pass has no server if and only if its weight exceeds those of all available servers, so such
//! passes can be skipped all at once, and a choice iterates over the list at most three times.

use super::{Cursor, Start, first_after};
use crate::Member;

/// Returns the initial scheduler state of a new service with these members.
#[must_use]
pub fn start(members: &[Member]) -> Start {
    let (first_pass_weight, step) = passes(members);
    Start {
        generation: 1,
        last_seq: 0,
        pass_weight: first_pass_weight,
        max_weight: first_pass_weight,
        step,
    }
}

/// Returns the initial scheduler state for `after`, the list after one change. The next search begins at the head. The
/// current pass continues if possible; its weight is aligned to the new step, so that the weight of the lowest pass is
/// 1 again.
#[must_use]
pub fn next_start(start: &Start, cursor: Cursor, after: &[Member]) -> Start {
    let (first_pass_weight, step) = passes(after);
    let current = start.adopt(cursor).pass_weight;
    let aligned = match step {
        1 => current,
        _ => current / step * step + 1,
    };
    let pass_weight = match current {
        0 => first_pass_weight,
        _ => aligned.min(first_pass_weight),
    };
    Start {
        generation: start.next_generation(),
        last_seq: 0,
        pass_weight,
        max_weight: first_pass_weight,
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
    let finished_lowest_pass = began_mid_pass && cursor.pass_weight <= start.step;
    if finished_lowest_pass {
        cursor.pass_weight = start.max_weight;
    } else if began_mid_pass {
        cursor.pass_weight = cursor.pass_weight.saturating_sub(start.step);
    }

    let Some(max_available_weight) = members
        .iter()
        .filter(|member| member.is_available())
        .map(|member| member.weight)
        .max()
    else {
        // Leave the cursor where the kernel leaves it when no server is available: a search that began in the middle
        // of the lowest pass ends at the server where it began; any other search ends at the head, before the highest
        // pass.
        if finished_lowest_pass {
            cursor.pass_weight = 1;
        } else {
            cursor.pass_weight = start.max_weight;
            cursor.last_seq = 0;
        }
        return None;
    };
    let excess = cursor.pass_weight.saturating_sub(max_available_weight);
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
