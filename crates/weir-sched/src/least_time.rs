//! Implements `least-time`, which selects the server with the lowest product of latency and load per weight.
//!
//! The proxy reads all latencies for each choice, and selects the server with the lowest [`cost`]. At layer 4, shares
//! (weight / latency^1.5, see crates/weir-latency/src/share.rs) are published every few milliseconds. [`pick`] draws
//! two servers at random by share, so that the flows between two updates do not all go to the same server, and compares
//! (active + 1) / share. bpf/lib/schedule_time.h does the same.

use crate::load::random_below;
use crate::{Counts, Member};

/// Returns the cost of one more request: latency × (active + 1) / weight.
#[must_use]
pub fn cost(latency_us: f64, active: u32, weight: u32) -> f64 {
    latency_us * (f64::from(active) + 1.0) / f64::from(weight.max(1))
}

/// Returns the index of the server for a new flow, or `None` if no server is available or no available server has a
/// share. In this case, the data plane uses `lc`.
///
/// One in `explore` flows is assigned by weight alone. For the others, two servers are drawn by share, and the second
/// is used if its cost is lower. If both are idle, the first is used.
pub fn pick(
    members: &[Member],
    shares: &dyn Fn(u32) -> u32,
    counts: &dyn Fn(u32) -> Counts,
    explore: u32,
    draw: &mut dyn FnMut() -> u32,
) -> Option<usize> {
    let by_weight = random_below(explore, draw) == 0;
    let drawing_weight = |member: &Member| match (member.is_available(), by_weight) {
        (false, _) => 0,
        (true, true) => u64::from(member.weight),
        (true, false) => u64::from(shares(member.dest)),
    };
    let total: u64 = members.iter().map(drawing_weight).sum();
    if total == 0 {
        return None;
    }
    let ceiling = u32::try_from(total).unwrap_or(u32::MAX);
    let targets = [0, 1].map(|_| random_below(ceiling, draw));
    let drawn = targets.map(|target| {
        let mut reached = 0;
        members.iter().position(|member| {
            reached += drawing_weight(member);
            reached > u64::from(target)
        })
    });
    let [Some(first), Some(second)] = drawn else {
        return drawn[0];
    };
    if by_weight {
        return Some(first);
    }
    let load = |index: usize| u64::from(counts(members[index].slot).active);
    if load(first) == 0 && load(second) == 0 {
        return Some(first);
    }
    let share = |index: usize| u64::from(shares(members[index].dest));
    let is_worse = (load(first) + 1) * share(second) > (load(second) + 1) * share(first);
    Some(if is_worse { second } else { first })
}

#[cfg(test)]
mod tests;
