//! A common interface to the stateless schedulers: all except the walks of `rr` and `wrr` and the caches of `lblc` and
//! `lblcr`.
//!
//! Slow: each pick builds the tables that the data plane gets prebuilt. Used for explanations and as the reference in
//! tests.

use std::net::IpAddr;

use weir_model::Scheduler;

use crate::bound::Bound;
use crate::load::{self, Rule};
use crate::{Availability, Counts, Error, Kind, Member, Mode, bucket, hash, maglev, mh, p2c};

/// The flags of `sh` and `mh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `sh-fallback`, `mh-fallback`: continue probing if the server found accepts no new flow.
    pub fallback: bool,
    /// `sh-port`, `mh-port`: the source port is part of the key.
    pub port: bool,
}

/// The properties of a service that a choice depends on.
#[derive(Debug, Clone, Copy)]
pub struct Service<'a> {
    /// The scheduler.
    pub kind: Kind,
    /// What to do if a hash selects a server that accepts no flow.
    pub mode: Mode,
    /// Whether the source port is part of the key. `fallback` is ignored; `mode` contains it.
    pub flags: Flags,
    /// Whether only the first three bytes of an IPv4 source are used.
    pub networks: bool,
    /// The servers, the newest first.
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
    /// Its source address.
    pub source: IpAddr,
    /// Its source port.
    pub source_port: u16,
    /// Its destination address.
    pub destination: IpAddr,
    /// The keyed hash of its tuple.
    pub hash: u64,
}

impl Service<'_> {
    /// Returns [`Member::dest`] of the server for a new flow. `None` if no server accepts it, and for stateful
    /// schedulers and those that only the proxy has.
    pub fn choose(
        &self,
        arrival: &Arrival,
        counts: &dyn Fn(u32) -> Counts,
        draw: &mut dyn FnMut() -> u32,
    ) -> Option<u32> {
        let picked = |index: Option<usize>| index.map(|index| self.members[index].dest);
        let least = |rule| picked(load::pick(rule, self.members, counts));
        match self.kind {
            // Without costs, which are not among the arguments.
            Kind::Lc | Kind::LeastTime => least(Rule::Lc),
            Kind::Wlc => least(Rule::Wlc),
            Kind::Sed => least(Rule::Sed),
            Kind::Nq => least(Rule::Nq),
            Kind::Fo => least(Rule::Fo),
            Kind::Ovf => least(Rule::Ovf),
            Kind::Twos => picked(load::twos(self.members, counts, draw)),
            Kind::P2c => picked(p2c::among(self.members, counts, draw)),
            Kind::Dh | Kind::Sh | Kind::Mh | Kind::Maglev => self.by_hash(arrival, counts),
            Kind::Rr | Kind::Wrr | Kind::Lblc | Kind::Lblcr => None,
            // Only the proxy reads requests.
            Kind::Hash => None,
        }
    }

    fn by_hash(&self, arrival: &Arrival, counts: &dyn Fn(u32) -> Counts) -> Option<u32> {
        let bound = self
            .max_load
            .map(|percent| Bound::new(percent, self.members, counts));
        let state = |dest| self.availability(dest, bound.as_ref(), counts);
        let (fold, port) = self.key(arrival);
        match HashTable::of(self.kind) {
            Some(HashTable::Destination) => {
                let index = bucket::dh_index(hash::fold(arrival.destination));
                bucket::lookup(&bucket::dh_owners(self.members), index, self.mode, &state)
            }
            Some(HashTable::Source) => {
                let index = bucket::sh_index(fold, port);
                bucket::lookup(&bucket::sh_owners(self.members), index, self.mode, &state)
            }
            Some(HashTable::Maglev) => {
                let table = mh::table(self.entries).ok()?;
                mh::lookup(&table, fold, port, self.mode, &state)
            }
            // The caller selects this function for hashing schedulers only; `maglev` has the spread table.
            None => maglev::lookup(self.spread, arrival.hash, self.mode, &state),
        }
    }

    /// Folded source and port, as far as they are part of the key.
    fn key(&self, arrival: &Arrival) -> (u32, u16) {
        let fold = hash::fold(arrival.source);
        let network = self.networks && arrival.source.is_ipv4();
        (
            if network { fold & 0xffff_ff00 } else { fold },
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
        let busy =
            bound.is_some_and(|bound| bound.is_busy(member.weight, counts(member.slot).active));
        match member.availability() {
            Availability::Ready if busy => Availability::Busy,
            found @ (Availability::Ready
            | Availability::Quiesced
            | Availability::Overloaded
            | Availability::Busy) => found,
        }
    }
}

/// What a scheduler keeps or draws for its choice, so that [`Service::choose`] alone does not determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The server chosen last.
    Walk,
    /// The server chosen last, and the weight of the pass.
    WeightedWalk,
    /// A cache of servers by destination.
    Locality,
    /// A cache of sets of servers by destination.
    ReplicatedLocality,
    /// Random numbers.
    Draws,
}

/// Returns what a scheduler keeps or draws; `None` = its choice depends on its arguments alone.
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

/// The criterion of a scheduler, for output.
#[must_use]
pub const fn criterion(scheduler: Scheduler) -> &'static str {
    match scheduler.kind {
        Kind::Rr => "the next after the one chosen last",
        Kind::Wrr => "the next whose weight reaches this pass",
        Kind::Lc => "the fewest connections",
        Kind::Sed => "the shortest expected delay",
        Kind::Nq => "an idle one, else the shortest expected delay",
        Kind::Fo => "the greatest weight",
        Kind::Ovf => "the greatest weight among those with room",
        Kind::Twos | Kind::P2c => "the less loaded of two drawn at random",
        Kind::Dh => "the hash of the VIP",
        Kind::Sh | Kind::Mh if scheduler.flags.networks => "the hash of the client's network",
        Kind::Sh | Kind::Mh => "the hash of the client",
        Kind::Maglev => "the hash of the flow",
        Kind::Lblc | Kind::Lblcr => {
            "a server that had this VIP before, else the fewest connections for its weight"
        }
        Kind::LeastTime => {
            "two drawn by share, the one with the lower latency × (active + 1) / weight"
        }
        // Only the proxy implements the last one.
        Kind::Wlc | Kind::Hash => "the fewest connections for its weight",
    }
}

/// Kind of the table that maps a hash to a server. The spread table of `maglev` is not one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashTable {
    /// Of `sh`.
    Source,
    /// Of `dh`.
    Destination,
    /// Of `mh`.
    Maglev,
}

impl HashTable {
    /// Returns the hash table of a scheduler, if it has one.
    #[must_use]
    pub const fn of(kind: Kind) -> Option<Self> {
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

    /// Builds the table: [`Member::dest`] for each hash. `entries` are the servers for `mh`.
    ///
    /// # Errors
    /// More servers than the table of `mh` has entries.
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
