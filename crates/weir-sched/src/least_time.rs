//! `least-time`: the lowest product of latency and load per weight.
//!
//! Proxies know all latencies at each choice and take the lowest [`cost`]. At layer 4 the costs are published every few
//! milliseconds as shares (weight per latency), and [`pick`] draws two servers by share, so that the flows between two
//! updates do not all go to the same server (bpf/lib/schedule_time.h does the same).

use crate::load::below;
use crate::{Counts, Member};

/// The cost of one more request: latency × (active + 1) / weight.
#[must_use]
pub fn cost(latency_us: f64, active: u32, weight: u32) -> f64 {
    latency_us * (f64::from(active) + 1.0) / f64::from(weight.max(1))
}

/// Index of the server for a new flow; `None` if no server is available or has a share: the data plane then uses `lc`.
///
/// One flow of `explore` is assigned by weight alone. Otherwise two servers are drawn by share, and the second is used
/// if it costs less; among idle servers the first draw decides.
pub fn pick(
    members: &[Member],
    shares: &dyn Fn(u32) -> u32,
    counts: &dyn Fn(u32) -> Counts,
    explore: u32,
    draw: &mut dyn FnMut() -> u32,
) -> Option<usize> {
    let by_weight = below(explore, draw) == 0;
    let tickets = |member: &Member| match (member.available(), by_weight) {
        (false, _) => 0,
        (true, true) => u64::from(member.weight),
        (true, false) => u64::from(shares(member.dest)),
    };
    let total: u64 = members.iter().map(tickets).sum();
    if total == 0 {
        return None;
    }
    let ceiling = u32::try_from(total).unwrap_or(u32::MAX);
    let targets = [0, 1].map(|_| below(ceiling, draw));
    let found = targets.map(|target| {
        let mut reached = 0;
        members.iter().position(|member| {
            let tickets = tickets(member);
            reached += tickets;
            tickets > 0 && reached > u64::from(target)
        })
    });
    let [Some(one), Some(other)] = found else {
        return found[0];
    };
    if by_weight {
        return Some(one);
    }
    let load = |index: usize| u64::from(counts(members[index].slot).active);
    if load(one) == 0 && load(other) == 0 {
        return Some(one);
    }
    let share = |index: usize| u64::from(shares(members[index].dest));
    let worse = (load(one) + 1) * share(other) > (load(other) + 1) * share(one);
    Some(if worse { other } else { one })
}
