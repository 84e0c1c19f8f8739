//! Implements the schedulers that compare live counters: `lc`, `wlc`, `sed`, `nq`, `fo`, `ovf` and `twos`.
//!
//! `twos` compares two random candidates. The others iterate over the list once, starting with the newest server, and
//! select the first of several equal servers.
//!
//! Only the proxy uses [`pick_tied`], because it chooses among equal servers itself. Loads per weight are compared by
//! 64-bit cross multiplication, as in net/netfilter/ipvs/ip_vs_{lc,wlc,sed,nq,fo,ovf,twos}.c. The caller provides
//! counters and random numbers. The flow table defines which connections are active.

use crate::Member;

/// Connection counts of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Number of connections that are established or being established.
    pub active: u32,
    /// Number of all other tracked connections.
    pub inactive: u32,
}

impl Counts {
    /// Returns the kernel's `ip_vs_dest_conn_overhead`: an active connection counts as 256 inactive ones, in 32 bits.
    #[must_use]
    pub const fn overhead(self) -> u32 {
        (self.active << 8).wrapping_add(self.inactive)
    }

    /// Returns the value that `sed` and `nq` compare: the number of active connections if this server is chosen.
    const fn queue(self) -> u32 {
        self.active.wrapping_add(1)
    }
}

/// A rule that needs only weights and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Least overhead, ignoring weights.
    Lc,
    /// Least overhead per weight.
    Wlc,
    /// Least `(active + 1)` per weight.
    Sed,
    /// The first server without active connections; if there is none, like [`Rule::Sed`].
    Nq,
    /// Highest weight.
    Fo,
    /// Highest weight among servers with at most as many active connections as their weight.
    Ovf,
}

/// Returns the index of the server for the next flow, or `None` if no server is available. With `ovf`, a server whose
/// active connections exceed its weight is not available.
pub fn pick(rule: Rule, members: &[Member], counts: &dyn Fn(u32) -> Counts) -> Option<usize> {
    best_of(rule, members, counts, 0..members.len())
}

/// Stores in `ties`, in the order of the list, the indices of all servers that are equal to the one that [`pick`]
/// returns, which is the first. `ties` is empty if no server is available.
pub fn pick_tied(
    rule: Rule,
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    ties: &mut Vec<usize>,
) {
    ties.clear();
    let mut best: Option<Candidate> = None;
    for candidate in candidates(rule, members, counts, 0..members.len()) {
        if best.is_some_and(|best| candidate.is_worse_than(&best)) {
            continue;
        }
        if best.is_none_or(|best| best.is_worse_than(&candidate)) {
            ties.clear();
            best = Some(candidate);
        }
        ties.push(candidate.index);
    }
}

/// Returns the better of two positions, or the first if they are equal. Returns `None` if neither position has a server
/// that accepts the flow.
pub(crate) fn better_position(
    rule: Rule,
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    positions: [usize; 2],
) -> Option<usize> {
    best_of(rule, members, counts, positions.into_iter())
}

fn best_of(
    rule: Rule,
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    positions: impl Iterator<Item = usize>,
) -> Option<usize> {
    let better = |best: Candidate, candidate| match best.is_worse_than(&candidate) {
        true => candidate,
        false => best,
    };
    let best = candidates(rule, members, counts, positions).reduce(better);
    best.map(|best| best.index)
}

/// Returns the servers at these positions that accept the flow.
fn candidates<'a>(
    rule: Rule,
    members: &'a [Member],
    counts: &'a dyn Fn(u32) -> Counts,
    positions: impl Iterator<Item = usize> + 'a,
) -> impl Iterator<Item = Candidate> + 'a {
    positions.filter_map(move |index| {
        let member = members.get(index).filter(|member| member.is_available())?;
        let current = counts(member.slot);
        let is_overloaded = rule == Rule::Ovf && current.active > member.weight;
        (!is_overloaded).then(|| Candidate::new(rule, index, member.weight, current))
    })
}

/// Returns the index of the better of two servers drawn by weight, or `None` if no server is available.
///
/// `draw` returns uniformly distributed 32-bit numbers. The kernel draws from 0 to the total weight inclusive, so the
/// first server in the list is chosen slightly more often than its weight implies.
pub fn twos(
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    draw: &mut dyn FnMut() -> u32,
) -> Option<usize> {
    let total: u64 = members
        .iter()
        .filter(|member| member.is_available())
        .map(|member| u64::from(member.weight))
        .sum();
    if total == 0 {
        return None;
    }
    let ceiling = u32::try_from(total + 1).unwrap_or(u32::MAX);
    let first = position_by_weight(members, random_below(ceiling, draw).into())?;
    let second = position_by_weight(members, random_below(ceiling, draw).into())?;
    Some(less_loaded(members, counts, first, second))
}

/// Returns the first server, unless the second has strictly less load per weight.
fn less_loaded(
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    first: usize,
    second: usize,
) -> usize {
    let load = |index: usize| {
        let member = &members[index];
        Candidate::new(Rule::Wlc, index, member.weight, counts(member.slot))
    };
    if load(first).is_worse_than(&load(second)) {
        second
    } else {
        first
    }
}

/// Maximum number of redraws for an unbiased number; the kernel has no limit. Fewer than one in `2^32 / ceiling` draws
/// need a redraw.
const MAX_REDRAWS: u32 = 8;

/// Returns a random number below `ceiling`, computed like the kernel's `get_random_u32_below`.
pub(crate) fn random_below(ceiling: u32, draw: &mut (impl FnMut() -> u32 + ?Sized)) -> u32 {
    let mut product = u64::from(ceiling) * u64::from(draw());
    for _ in 0..MAX_REDRAWS {
        if product as u32 >= ceiling || product as u32 >= ceiling.wrapping_neg() % ceiling {
            break;
        }
        product = u64::from(ceiling) * u64::from(draw());
    }
    (product >> 32) as u32
}

/// Returns the index of the server at which the cumulative weight, from the head of the list, reaches `target`.
pub(crate) fn position_by_weight(members: &[Member], target: u64) -> Option<usize> {
    let mut reached = 0;
    members.iter().position(|member| {
        if member.is_available() {
            reached += u64::from(member.weight);
        }
        member.is_available() && reached >= target
    })
}

/// The load of a server as the fraction `cost / share`: lower is better.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    index: usize,
    cost: u32,
    share: u32,
}

impl Candidate {
    pub(crate) fn new(rule: Rule, index: usize, weight: u32, counts: Counts) -> Self {
        let (cost, share) = match rule {
            Rule::Lc => (counts.overhead(), 1),
            Rule::Wlc => (counts.overhead(), weight),
            // With cost 0, an idle server is better than any server with connections and equal to any other idle
            // server.
            Rule::Nq if counts.active == 0 => (0, weight),
            Rule::Sed | Rule::Nq => (counts.queue(), weight),
            Rule::Fo | Rule::Ovf => (1, weight),
        };
        Self { index, cost, share }
    }

    pub(crate) fn is_worse_than(&self, other: &Self) -> bool {
        u64::from(self.cost) * u64::from(other.share)
            > u64::from(other.cost) * u64::from(self.share)
    }
}

#[cfg(test)]
mod tests;
