//! Provides the server lists that `p2c` draws from.

use weir_model::SplitMix64;
use weir_sched::{Counts, Member, p2c};

use super::counts;
use crate::{Server, TriedServers};

/// The primary servers that had a nonzero weight at the last weight change.
pub(super) struct Drawable<'a, S> {
    pub(super) servers: &'a [S],
    pub(super) members: &'a [Member],
    pub(super) max_weight: u32,
    pub(super) tried: TriedServers,
}

impl<S: Server> p2c::Servers for Drawable<'_, S> {
    fn count(&self) -> usize {
        self.members.len()
    }

    fn max_weight(&self) -> u32 {
        self.max_weight
    }

    fn weight(&self, position: usize) -> u32 {
        let member = &self.members[position];
        if super::is_candidate(self.servers, member.slot as usize, self.tried) {
            member.weight
        } else {
            0
        }
    }

    fn counts(&self, position: usize) -> Counts {
        counts(self.servers[self.members[position].slot as usize].load())
    }
}

/// A range of a pool's servers. Nothing is precomputed, because it is rarely used.
pub(super) struct Tier<'a, S> {
    servers: &'a [S],
    /// Index in the pool of the first server in the range.
    start: usize,
    max_weight: u32,
    tried: TriedServers,
}

impl<'a, S: Server> Tier<'a, S> {
    pub(super) fn new(servers: &'a [S], start: usize, tried: TriedServers) -> Self {
        let weights = servers.iter().map(|server| server.load().weight());
        Self {
            servers,
            start,
            max_weight: weights.max().unwrap_or(0),
            tried,
        }
    }

    pub(super) fn pick(&self, random: &mut SplitMix64) -> Option<usize> {
        p2c::pick(self, &mut || random.next_u32()).map(|position| self.start + position)
    }
}

impl<S: Server> p2c::Servers for Tier<'_, S> {
    fn count(&self) -> usize {
        self.servers.len()
    }

    fn max_weight(&self) -> u32 {
        self.max_weight
    }

    fn weight(&self, position: usize) -> u32 {
        let load = self.servers[position].load();
        if load.is_usable() && !self.tried.contains(self.start + position) {
            load.weight()
        } else {
            0
        }
    }

    fn counts(&self, position: usize) -> Counts {
        counts(self.servers[position].load())
    }
}
