//! `p2c`, power of two choices: two different servers are drawn by weight, and the one with less load per weight is
//! chosen.
//!
//! A draw is a uniformly random position, accepted with a probability of its weight divided by the largest weight, and
//! only if its server accepts new flows. With equal weights each draw costs one random number and a look at one server.
//! After [`TRIES`] draws the list is walked instead, so a pick is bounded however few servers accept flows. Accepted
//! draws and the walk have the same probabilities, proportional to the weights of the usable servers, so the number of
//! failed draws does not matter: the shares of equally loaded servers are exactly their weights. The share of an
//! unusable server is divided by weight among the others; it never goes to the next server in the list.
//!
//! The data plane and the proxy use this algorithm: weir-proxy calls [`pick`] over its own list;
//! bpf/lib/schedule_load.h implements the same draws.

use crate::Member;
use crate::load::{Candidate, Counts, Rule, below};

/// Draws before the list is walked, for both servers together.
pub const TRIES: usize = 8;

/// The servers that `p2c` draws from, by position from 0.
pub trait Servers {
    /// Number of positions.
    fn count(&self) -> usize;
    /// The largest weight, whether or not its server currently accepts flows.
    fn heaviest(&self) -> u32;
    /// The weight of a position's server, at most [`Servers::heaviest`]; 0 while it accepts no new flows.
    fn weight(&self, position: usize) -> u32;
    /// The connections of a position's server.
    fn counts(&self, position: usize) -> Counts;
}

/// Position of the server for the next flow; `None` if no server accepts it.
///
/// `draw` returns numbers uniform over all 32 bits. Of two servers with equal load per weight, the first drawn is
/// chosen.
pub fn pick(servers: &impl Servers, draw: &mut impl FnMut() -> u32) -> Option<usize> {
    let count = u32::try_from(servers.count()).unwrap_or(u32::MAX);
    let (mut first, mut second) = (None, None);
    for _ in 0..TRIES {
        // A list of one has no second server.
        if second.is_some() || count - u32::from(first.is_some()) == 0 {
            break;
        }
        let found = try_once(servers, count, first, draw);
        if first.is_none() {
            first = found;
        } else {
            second = found;
        }
    }
    let first = first.or_else(|| walk(servers, None, draw))?;
    if second.is_none() && count > 1 {
        second = walk(servers, Some(first), draw);
    }
    Some(second.map_or(first, |second| better(servers, first, second)))
}

/// One draw among all positions except `other`; `None` = not accepted.
fn try_once(
    servers: &impl Servers,
    count: u32,
    other: Option<usize>,
    draw: &mut impl FnMut() -> u32,
) -> Option<usize> {
    let drawn = below(count - u32::from(other.is_some()), draw) as usize;
    let position = drawn + usize::from(other.is_some_and(|other| drawn >= other));
    let (weight, heaviest) = (servers.weight(position), servers.heaviest());
    // A server with the largest weight is accepted without a further random number.
    let accepted = weight > 0 && (weight >= heaviest || below(heaviest, draw) < weight);
    accepted.then_some(position)
}

/// A position by weight among all usable ones except `other`. Weights that sum to 2^32 or more are truncated there.
fn walk(
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
    let target = u64::from(below(u32::try_from(total).unwrap_or(u32::MAX), draw));
    let (mut reached, mut last) = (0, None);
    for (position, weight) in usable() {
        reached += u64::from(weight);
        last = Some(position);
        if reached > target {
            break;
        }
    }
    // The last one, if a server became full after the sum was computed.
    last
}

/// The first, unless the second has strictly less load per weight.
fn better(servers: &impl Servers, first: usize, second: usize) -> usize {
    let load = |position| {
        let weight = servers.weight(position);
        Candidate::new(Rule::Wlc, position, weight, servers.counts(position))
    };
    if load(first).worse_than(&load(second)) {
        second
    } else {
        first
    }
}

/// [`pick`] for a list of members: the index of the server for the next flow. Servers without weight have no position.
pub fn among(
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    draw: &mut dyn FnMut() -> u32,
) -> Option<usize> {
    let drawable: Vec<usize> = (0..members.len())
        .filter(|index| members[*index].weight > 0)
        .collect();
    let weights = drawable.iter().map(|index| members[*index].weight);
    let list = List {
        heaviest: weights.max()?,
        members,
        drawable: &drawable,
        counts,
    };
    pick(&list, &mut || draw()).map(|position| drawable[position])
}

struct List<'a> {
    members: &'a [Member],
    drawable: &'a [usize],
    heaviest: u32,
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

    fn heaviest(&self) -> u32 {
        self.heaviest
    }

    fn weight(&self, position: usize) -> u32 {
        let member = self.member(position);
        if member.available() { member.weight } else { 0 }
    }

    fn counts(&self, position: usize) -> Counts {
        (self.counts)(self.member(position).slot)
    }
}

#[cfg(test)]
mod tests;
