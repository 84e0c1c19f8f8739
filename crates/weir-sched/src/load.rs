//! The schedulers that compare live counters: `lc wlc sed nq fo ovf`, and `twos` between two random candidates.
//!
//! All iterate over the list once, from the newest server, and keep the first of equals. Loads per weight are compared
//! by 64-bit cross multiplication, as in net/netfilter/ipvs/ip_vs_{lc,wlc,sed,nq,fo,ovf,twos}.c. The caller provides
//! counters and random numbers; the flow table defines which connections are active.

use crate::Member;

/// Current connections of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Established or being established.
    pub active: u32,
    /// All other tracked connections.
    pub inactive: u32,
}

impl Counts {
    /// The kernel's `ip_vs_dest_conn_overhead`: an active connection counts as 256 inactive ones, in 32 bits.
    #[must_use]
    pub const fn overhead(self) -> u32 {
        (self.active << 8).wrapping_add(self.inactive)
    }

    /// The value that `sed` and `nq` compare: the active connections if this server is chosen.
    const fn queue(self) -> u32 {
        self.active.wrapping_add(1)
    }
}

/// A rule that only needs the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Least overhead, ignoring weights.
    Lc,
    /// Least overhead per weight.
    Wlc,
    /// Least `(active + 1)` per weight.
    Sed,
    /// The first server without active connections, or else as [`Rule::Sed`].
    Nq,
    /// Greatest weight.
    Fo,
    /// Greatest weight among servers with at most as many active connections as their weight.
    Ovf,
}

/// Index of the server for the next flow; `None` if no server is available (for `ovf`: none below its weight).
pub fn pick(rule: Rule, members: &[Member], counts: &dyn Fn(u32) -> Counts) -> Option<usize> {
    best_of(rule, members, counts, 0..members.len())
}

/// The better of two positions, the first of equals; `None` if neither accepts the flow or exists.
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
    let mut best: Option<Candidate> = None;
    for index in positions {
        let Some(member) = members.get(index).filter(|member| member.available()) else {
            continue;
        };
        let now = counts(member.slot);
        if rule == Rule::Ovf && now.active > member.weight {
            continue;
        }
        let candidate = Candidate::new(rule, index, member.weight, now);
        if best.is_none_or(|best| best.worse_than(&candidate)) {
            best = Some(candidate);
        }
    }
    best.map(|best| best.index)
}

/// Index of the better of two servers drawn by weight; `None` if no server is available.
///
/// `draw` returns numbers uniform over all 32 bits. The kernel draws from 0 to the total weight inclusive, so the first
/// server of the list is chosen slightly more often than its weight.
pub fn twos(
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    draw: &mut dyn FnMut() -> u32,
) -> Option<usize> {
    let total: u64 = members
        .iter()
        .filter(|m| m.available())
        .map(|m| u64::from(m.weight))
        .sum();
    if total == 0 {
        return None;
    }
    let ceiling = u32::try_from(total + 1).unwrap_or(u32::MAX);
    let first = drawn(members, below(ceiling, draw).into())?;
    let second = drawn(members, below(ceiling, draw).into())?;
    Some(better(members, counts, first, second))
}

/// The first, unless the second has strictly less load per weight.
fn better(
    members: &[Member],
    counts: &dyn Fn(u32) -> Counts,
    first: usize,
    second: usize,
) -> usize {
    let load = |index: usize| {
        let member = &members[index];
        Candidate::new(Rule::Wlc, index, member.weight, counts(member.slot))
    };
    if load(first).worse_than(&load(second)) {
        second
    } else {
        first
    }
}

/// Maximum number of redraws for an unbiased number. The kernel has no limit; one draw in `2^32 / ceiling` needs one.
const REDRAWS: u32 = 8;

/// A number below `ceiling`, computed like the kernel's `get_random_u32_below`.
pub(crate) fn below(ceiling: u32, draw: &mut (impl FnMut() -> u32 + ?Sized)) -> u32 {
    let mut product = u64::from(ceiling) * u64::from(draw());
    for _ in 0..REDRAWS {
        if product as u32 >= ceiling || product as u32 >= ceiling.wrapping_neg() % ceiling {
            break;
        }
        product = u64::from(ceiling) * u64::from(draw());
    }
    (product >> 32) as u32
}

/// The server at which the cumulative weights from the head reach `target`.
pub(crate) fn drawn(members: &[Member], target: u64) -> Option<usize> {
    let mut reached = 0;
    members.iter().position(|member| {
        if member.available() {
            reached += u64::from(member.weight);
        }
        member.available() && reached >= target
    })
}

/// The load of a server as a fraction: a lower cost per share is better.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    index: usize,
    cost: u32,
    share: u32,
}

impl Candidate {
    pub(crate) fn new(rule: Rule, index: usize, weight: u32, now: Counts) -> Self {
        let (cost, share) = match rule {
            Rule::Lc => (now.overhead(), 1),
            Rule::Wlc => (now.overhead(), weight),
            // Cost 0 is better than every server with connections and equal to every other idle one.
            Rule::Nq if now.active == 0 => (0, weight),
            Rule::Sed | Rule::Nq => (now.queue(), weight),
            Rule::Fo | Rule::Ovf => (1, weight),
        };
        Self { index, cost, share }
    }

    pub(crate) fn worse_than(&self, other: &Self) -> bool {
        u64::from(self.cost) * u64::from(other.share)
            > u64::from(other.cost) * u64::from(self.share)
    }
}

#[cfg(test)]
mod tests;
