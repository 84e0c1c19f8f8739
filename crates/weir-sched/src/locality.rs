//! Implements `lblc` and `lblcr`, which assign a server, or a set of servers, to each destination address.
//!
//! New flows to an address use its servers while these have capacity (net/netfilter/ipvs/ip_vs_lblc.c, ip_vs_lblcr.c).
//!
//! There are three differences from the kernel, which do not matter in ordinary use: entries expire on time, not at the
//! next half-hourly sweep; a set has at most [`MAX_SET`] servers; a server that was removed from the service is never
//! dropped from a set for being the most loaded. As in the kernel, `lblc` ignores the upper threshold of a cached
//! server.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::load::{self, Rule};
use crate::{Counts, Kind, Member};

/// Maximum number of servers that `lblcr` caches for an address; additional servers are used but not cached.
pub const MAX_SET: usize = 16;

/// The cache entry of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// [`Member::dest`] of the servers, in the order in which they were added; one server for `lblc`.
    pub dests: Vec<u32>,
    /// Time of the last flow to the address, in the unit of `now`; it wraps around.
    pub last_use: u32,
    /// Time of the last change to the set, in the unit of `now`; it wraps around.
    pub last_change: u32,
}

/// The cache of a service.
#[derive(Debug, Clone)]
pub struct Cache {
    is_replicated: bool,
    expiration: u32,
    entries: HashMap<IpAddr, Entry>,
}

impl Cache {
    /// Creates an empty cache, for `lblcr` if `kind` is `Lblcr`, otherwise for `lblc`. `expiration` is in the unit of
    /// `now`.
    #[must_use]
    pub fn new(kind: Kind, expiration: u32) -> Self {
        Self {
            is_replicated: kind == Kind::Lblcr,
            expiration,
            entries: HashMap::new(),
        }
    }

    /// Inserts an entry, for example from another cache.
    pub fn insert(&mut self, address: IpAddr, entry: Entry) {
        self.entries.insert(address, entry);
    }

    /// Returns the index of the server for the next flow to `destination`, or `None` if no server is available.
    pub fn pick(
        &mut self,
        members: &[Member],
        counts: &dyn Fn(u32) -> Counts,
        destination: IpAddr,
        now: u32,
    ) -> Option<usize> {
        let expiration = self.expiration;
        self.entries
            .retain(|_, entry| now.wrapping_sub(entry.last_use) < expiration);
        let cached = self.entries.get_mut(&destination).and_then(|entry| {
            entry.last_use = now;
            if self.is_replicated {
                entry.serve_from_set(members, counts, now, expiration)
            } else {
                position(members, *entry.dests.first()?)
            }
        });
        if let Some(index) = cached.filter(|&index| !is_full(index, members, counts)) {
            return Some(index);
        }
        let index = load::pick(Rule::Wlc, members, counts)?;
        let dest = members[index].dest;
        let entry = self.entries.entry(destination).or_insert_with(|| Entry {
            dests: Vec::new(),
            last_use: now,
            last_change: now,
        });
        if !self.is_replicated {
            entry.dests = vec![dest];
        } else if !entry.dests.contains(&dest) && entry.dests.len() < MAX_SET {
            entry.dests.push(dest);
            entry.last_change = now;
        }
        Some(index)
    }
}

impl Entry {
    /// Returns the least loaded server of the set. Removes the most loaded server from a set that has not changed for
    /// the expiration time.
    fn serve_from_set(
        &mut self,
        members: &[Member],
        counts: &dyn Fn(u32) -> Counts,
        now: u32,
        expiration: u32,
    ) -> Option<usize> {
        // The kernel's list order: the server that was added last is first.
        let set: Vec<usize> = self
            .dests
            .iter()
            .rev()
            .filter_map(|&dest| position(members, dest))
            .collect();
        let load = |index: usize| {
            let member = &members[index];
            (
                u64::from(counts(member.slot).overhead()),
                u64::from(member.weight),
            )
        };
        let is_less = |(a, b): (u64, u64), (c, d): (u64, u64)| a * d < c * b;
        let least_loaded = set
            .iter()
            .copied()
            .filter(|&index| members[index].usable)
            .reduce(|best, index| {
                if is_less(load(index), load(best)) {
                    index
                } else {
                    best
                }
            });
        if self.dests.len() > 1 && now.wrapping_sub(self.last_change) > expiration {
            let most_loaded = set.iter().copied().reduce(|most_loaded, index| {
                if is_less(load(most_loaded), load(index)) {
                    index
                } else {
                    most_loaded
                }
            });
            if let Some(most_loaded) = most_loaded {
                self.dests.retain(|&dest| dest != members[most_loaded].dest);
                self.last_change = now;
            }
        }
        least_loaded
    }
}

/// Returns the position of a server if its weight is not 0, ignoring thresholds.
fn position(members: &[Member], dest: u32) -> Option<usize> {
    members
        .iter()
        .position(|member| member.dest == dest && member.weight > 0)
}

/// Returns whether a server has more active flows than its weight while another server has fewer than half of its own
/// weight.
fn is_full(index: usize, members: &[Member], counts: &dyn Fn(u32) -> Counts) -> bool {
    let active = |member: &Member| u64::from(counts(member.slot).active);
    active(&members[index]) > u64::from(members[index].weight)
        && members
            .iter()
            .any(|member| active(member) * 2 < u64::from(member.weight))
}

#[cfg(test)]
mod tests;
