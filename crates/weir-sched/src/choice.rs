//! Provides a common interface to the stateless schedulers.
//!
//! These are all except `rr` and `wrr`, which have a cursor, and `lblc` and `lblcr`, which have a cache.
//!
//! The interface is slow, because each choice builds the tables that are prebuilt for the data plane. It is used for
//! explanations, and as the reference in tests.

use std::net::IpAddr;

use weir_model::Scheduler;

use crate::bound::Bound;
use crate::load::{self, Rule};
use crate::{Availability, Counts, Error, Kind, Member, Mode, bucket, hash, maglev, mh, p2c};

/// The flags of `sh` and `mh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `sh-fallback`, `mh-fallback`: continue probing if the selected server accepts no new flows.
    pub fallback: bool,
    /// `sh-port`, `mh-port`: the source port is part of the key.
    pub port: bool,
}

/// The properties of a service that a choice depends on.
#[derive(Debug, Clone, Copy)]
pub struct Service<'a> {
    /// The scheduler.
    pub kind: Kind,
    /// What to do if a hash selects a server that accepts no new flows.
    pub mode: Mode,
    /// The flags. Only `port` is used, because `mode` includes the effect of `fallback`.
    pub flags: Flags,
    /// Whether only the first three bytes of an IPv4 source are used.
    pub networks: bool,
    /// The servers, newest first.
    pub members: &'a [Member],
    /// The servers for `mh`; otherwise ignored.
    pub entries: &'a [mh::Entry],
    /// The spread table for `maglev`; otherwise ignored.
    pub spread: &'a [u32],
    /// `max_load` in percent; used by hashing schedulers.
    pub max_load: Option<u32>,
}

/// A new flow.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Source address.
    pub source: IpAddr,
    /// Source port.
    pub source_port: u16,
    /// Destination address.
    pub destination: IpAddr,
    /// Hash of the flow's tuple; only `maglev` uses it.
    pub hash: u64,
}

impl Service<'_> {
    /// Returns [`Member::dest`] of the server for a new flow. Returns `None` if no server accepts the flow, or if the
    /// scheduler is stateful or supported only by the proxy.
    pub fn choose(
        &self,
        arrival: &Arrival,
        counts: &dyn Fn(u32) -> Counts,
        draw: &mut dyn FnMut() -> u32,
    ) -> Option<u32> {
        let dest_at = |index: Option<usize>| index.map(|index| self.members[index].dest);
        let best_by = |rule| dest_at(load::pick(rule, self.members, counts));
        match self.kind {
            // `least-time` behaves like `lc` if there are no costs, and this function receives no costs.
            Kind::Lc | Kind::LeastTime => best_by(Rule::Lc),
            Kind::Wlc => best_by(Rule::Wlc),
            Kind::Sed => best_by(Rule::Sed),
            Kind::Nq => best_by(Rule::Nq),
            Kind::Fo => best_by(Rule::Fo),
            Kind::Ovf => best_by(Rule::Ovf),
            Kind::Twos => dest_at(load::twos(self.members, counts, draw)),
            Kind::P2c => dest_at(p2c::pick_member(self.members, counts, draw)),
            Kind::Dh | Kind::Sh | Kind::Mh | Kind::Maglev => self.choose_by_hash(arrival, counts),
            Kind::Rr | Kind::Wrr | Kind::Lblc | Kind::Lblcr => None,
            // Only the proxy reads requests.
            Kind::Hash => None,
        }
    }

    fn choose_by_hash(&self, arrival: &Arrival, counts: &dyn Fn(u32) -> Counts) -> Option<u32> {
        let load_bound = self
            .max_load
            .map(|percent| Bound::new(percent, self.members, counts));
        let availability = |dest| self.availability(dest, load_bound.as_ref(), counts);
        let (fold, port) = self.key(arrival);
        match HashTable::for_kind(self.kind) {
            Some(HashTable::Destination) => {
                let index = bucket::dh_index(hash::fold(arrival.destination));
                bucket::lookup(
                    &bucket::dh_owners(self.members),
                    index,
                    self.mode,
                    &availability,
                )
            }
            Some(HashTable::Source) => {
                let index = bucket::sh_index(fold, port);
                bucket::lookup(
                    &bucket::sh_owners(self.members),
                    index,
                    self.mode,
                    &availability,
                )
            }
            Some(HashTable::Maglev) => {
                let table = mh::table(self.entries).ok()?;
                mh::lookup(&table, fold, port, self.mode, &availability)
            }
            // This function is called only for hashing schedulers; `maglev` uses the spread table.
            None => maglev::lookup(self.spread, arrival.hash, self.mode, &availability),
        }
    }

    /// Returns the folded source address and the source port. Parts that are not in the key are zero.
    fn key(&self, arrival: &Arrival) -> (u32, u16) {
        let fold = hash::fold(arrival.source);
        let uses_network = self.networks && arrival.source.is_ipv4();
        (
            if uses_network {
                fold & 0xffff_ff00
            } else {
                fold
            },
            if self.flags.port {
                arrival.source_port
            } else {
                0
            },
        )
    }

    fn availability(
        &self,
        dest: u32,
        bound: Option<&Bound>,
        counts: &dyn Fn(u32) -> Counts,
    ) -> Availability {
        let Some(member) = self.members.iter().find(|member| member.dest == dest) else {
            return Availability::Quiesced;
        };
        let is_busy =
            bound.is_some_and(|bound| bound.is_busy(member.weight, counts(member.slot).active));
        match member.availability() {
            Availability::Ready if is_busy => Availability::Busy,
            availability @ (Availability::Ready
            | Availability::Quiesced
            | Availability::Overloaded
            | Availability::Busy) => availability,
        }
    }
}

/// What a scheduler's choice depends on in addition to the service, its counters and the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The last chosen server.
    Walk,
    /// The last chosen server, and the weight of the current pass.
    WeightedWalk,
    /// A cache of servers, by destination.
    Locality,
    /// A cache of server sets, by destination.
    ReplicatedLocality,
    /// Random numbers.
    Draws,
}

/// Returns what a scheduler's choice depends on in addition to the service, its counters and the flow; `None` =
/// nothing.
#[must_use]
pub const fn state(kind: Kind) -> Option<State> {
    match kind {
        Kind::Rr => Some(State::Walk),
        Kind::Wrr => Some(State::WeightedWalk),
        Kind::Lblc => Some(State::Locality),
        Kind::Lblcr => Some(State::ReplicatedLocality),
        Kind::Twos | Kind::P2c | Kind::LeastTime => Some(State::Draws),
        Kind::Lc
        | Kind::Wlc
        | Kind::Sed
        | Kind::Nq
        | Kind::Fo
        | Kind::Ovf
        | Kind::Dh
        | Kind::Sh
        | Kind::Mh
        | Kind::Maglev
        | Kind::Hash => None,
    }
}

/// Returns a description of a scheduler's criterion, for output.
#[must_use]
pub const fn criterion(scheduler: Scheduler) -> &'static str {
    match scheduler.kind {
        Kind::Rr => "the server after the last one chosen",
        Kind::Wrr => "the next server whose weight is at least the weight of the current pass",
        Kind::Lc => "the fewest connections",
        Kind::Sed => "the shortest expected delay",
        Kind::Nq => "an idle server, otherwise the shortest expected delay",
        Kind::Fo => "the highest weight",
        Kind::Ovf => "the highest weight among servers with no more connections than their weight",
        Kind::Twos | Kind::P2c => "the less loaded of two servers drawn at random",
        Kind::Dh => "the hash of the VIP",
        Kind::Sh | Kind::Mh if scheduler.flags.networks => "the hash of the client's network",
        Kind::Sh | Kind::Mh => "the hash of the client",
        Kind::Maglev => "the hash of the flow",
        Kind::Lblc | Kind::Lblcr => {
            "a server that served this VIP before, otherwise the fewest connections relative to its weight"
        }
        Kind::LeastTime => {
            "the one of two randomly drawn servers with the lower latency × (active + 1) / weight"
        }
        // Only the proxy implements `hash`.
        Kind::Wlc | Kind::Hash => "the fewest connections relative to its weight",
    }
}

/// The kind of a table that maps a hash to a server, except for the spread table of `maglev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashTable {
    /// The table of `sh`.
    Source,
    /// The table of `dh`.
    Destination,
    /// The table of `mh`.
    Maglev,
}

impl HashTable {
    /// Returns a scheduler's hash table, if it has one.
    #[must_use]
    pub const fn for_kind(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Sh => Some(Self::Source),
            Kind::Dh => Some(Self::Destination),
            Kind::Mh => Some(Self::Maglev),
            Kind::Rr
            | Kind::Wrr
            | Kind::Lc
            | Kind::Wlc
            | Kind::Sed
            | Kind::Nq
            | Kind::Fo
            | Kind::Ovf
            | Kind::Twos
            | Kind::Lblc
            | Kind::Lblcr
            | Kind::Maglev
            | Kind::P2c
            | Kind::LeastTime
            | Kind::Hash => None,
        }
    }

    /// Builds the table, which contains [`Member::dest`] for each hash. `entries` returns the servers for `mh`.
    ///
    /// # Errors
    /// Fails if there are more servers than the table of `mh` has entries.
    pub fn owners(
        self,
        members: &[Member],
        entries: impl FnOnce() -> Vec<mh::Entry>,
    ) -> Result<Vec<u32>, Error> {
        match self {
            Self::Source => Ok(bucket::sh_owners(members).to_vec()),
            Self::Destination => Ok(bucket::dh_owners(members).to_vec()),
            Self::Maglev => mh::table(&entries()),
        }
    }
}

#[cfg(test)]
mod tests;
