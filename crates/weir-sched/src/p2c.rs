//! Implements `p2c`, power of two choices.
//!
//! It draws two different servers by weight, and chooses the server with less load per weight.
//!
//! A draw is a uniformly random position. The position is accepted only if its server accepts new flows, and then with
//! a probability of the server's weight divided by the largest weight. With equal weights, each draw needs one random
//! number and reads one server. After [`TRIES`] draws, the server is drawn by weight from the whole list instead, so
//! the cost of a choice is bounded even if few servers accept flows. Accepted draws and draws from the whole list have
//! the same probabilities, proportional to the weights of the usable servers. The number of failed draws is therefore
//! irrelevant: the shares of equally loaded servers are exactly proportional to their weights. The share of an unusable
//! server is distributed by weight to all others, not to the next server in the list.
//!
//! The data plane and the proxy use this algorithm: the proxy calls [`pick`] for its own list; bpf/lib/schedule_load.h
//! implements the same draws.

use crate::Member;
use crate::load::{Candidate, Counts, Rule, random_below};

/// Maximum number of draws before the whole list is read, for both servers together.
pub const TRIES: usize = 8;

/// The servers that `p2c` draws from, by position, starting at 0.
pub trait Servers {
    /// Returns the number of positions.
    fn count(&self) -> usize;
    /// Returns the largest weight, even if its server currently accepts no new flows.
    fn max_weight(&self) -> u32;
    /// Returns the weight of the server at a position, at most [`Servers::max_weight`]; 0 while the server accepts no
    /// new flows.
    fn weight(&self, position: usize) -> u32;
    /// Returns the connections of the server at a position.
    fn counts(&self, position: usize) -> Counts;
}

/// Returns the position of the server for the next flow, or `None` if no server accepts it.
///
/// `draw` returns uniformly distributed 32-bit numbers. If two servers have equal load per weight, the first one drawn
/// is chosen.
pub fn pick(servers: &impl Servers, draw: &mut impl FnMut() -> u32) -> Option<usize> {
    let count = u32::try_from(servers.count()).unwrap_or(u32::MAX);
    let (mut first, mut second) = (None, None);
    for _ in 0..TRIES {
        // An empty list has no server, and a list with one server has no second one.
        if second.is_some() || count - u32::from(first.is_some()) == 0 {
            break;
        }
        let found = draw_once(servers, count, first, draw);
        if first.is_none() {
            first = found;
        } else {
            second = found;
        }
    }
    let first = first.or_else(|| draw_by_weight(servers, None, draw))?;
    if second.is_none() {
        second = draw_by_weight(servers, Some(first), draw);
    }
    Some(second.map_or(first, |second| less_loaded(servers, first, second)))
}

/// Draws once from all positions except `other`. Returns `None` if the draw is not accepted.
fn draw_once(
    servers: &impl Servers,
    count: u32,
    other: Option<usize>,
    draw: &mut impl FnMut() -> u32,
) -> Option<usize> {
    let drawn = random_below(count - u32::from(other.is_some()), draw) as usize;
    let position = drawn + usize::from(other.is_some_and(|other| drawn >= other));
    let (weight, max_weight) = (servers.weight(position), servers.max_weight());
    // A server with the largest weight is accepted without another random number.
    let is_accepted =
        weight > 0 && (weight >= max_weight || random_below(max_weight, draw) < weight);
    is_accepted.then_some(position)
}

/// Draws a position by weight from all usable ones except `other`. If the weights sum to 2^32 or more, the sum is
/// limited to 2^32 - 1.
fn draw_by_weight(
    servers: &impl Servers,
    other: Option<usize>,
    draw: &mut impl FnMut() -> u32,
) -> Option<usize> {
    let usable = || {
        (0..servers.count())
            .filter(|position| Some(*position) != other)
            .map(|position| (position, servers.weight(position)))
            .filter(|(_, weight)| *weight > 0)
    };
    let total = usable().map(|(_, weight)| u64::from(weight)).sum::<u64>();
    if total == 0 {
        return None;
    }
    let target = u64::from(random_below(u32::try_from(total).unwrap_or(u32::MAX), draw));
    let (mut reached, mut last) = (0, None);
    for (position, weight) in usable() {
        reached += u64::from(weight);
        last = Some(position);
        if reached > target {
            break;
        }
    }
    // The position that reaches the target, or the last usable position if a server stopped accepting flows after the
    // sum was computed.
    last
}

/// Returns the first server, unless the second has strictly less load per weight.
fn less_loaded(servers: &impl Servers, first: usize, second: usize) -> usize {
    let load = |position| {
        let weight = servers.weight(position);
        Candidate::new(Rule::Wlc, position, weight, servers.counts(position))
    };
    if load(first).is_worse_than(&load(second)) {
        second
    } else {
        first
    }
}

/// Calls [`pick`] for a list of members. Returns the index of the server for the next flow. Servers with weight 0 have
/// no position.
pub fn pick_member(
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    draw: &mut dyn FnMut() -> u32,
) -> Option<usize> {
    let drawable: Vec<usize> = (0..members.len())
        .filter(|index| members[*index].weight > 0)
        .collect();
    let weights = drawable.iter().map(|index| members[*index].weight);
    let list = List {
        max_weight: weights.max()?,
        members,
        drawable: &drawable,
        counts,
    };
    pick(&list, &mut || draw()).map(|position| drawable[position])
}

struct List<'a> {
    members: &'a [Member],
    drawable: &'a [usize],
    max_weight: u32,
    counts: &'a dyn Fn(u32) -> Counts,
}

impl List<'_> {
    fn member(&self, position: usize) -> &Member {
        &self.members[self.drawable[position]]
    }
}

impl Servers for List<'_> {
    fn count(&self) -> usize {
        self.drawable.len()
    }

    fn max_weight(&self) -> u32 {
        self.max_weight
    }

    fn weight(&self, position: usize) -> u32 {
        let member = self.member(position);
        if member.is_available() {
            member.weight
        } else {
            0
        }
    }

    fn counts(&self, position: usize) -> Counts {
        (self.counts)(self.member(position).slot)
    }
}

#[cfg(test)]
mod tests;
