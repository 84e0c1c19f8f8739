//! Implements every scheduler as a pure function or a table builder.
//!
//! A scheduler selects a service's server for the next flow. All schedulers read the same [`Member`] list, in the
//! kernel's order. They form seven groups, which differ in the data that the data plane needs:
//!
//! | group | schedulers | inputs | module |
//! |---|---|---|---|
//! | walk | `rr wrr` | the list and a cursor | [`table`] |
//! | load | `lc wlc sed nq fo ovf twos` | the list, live counters, random numbers for the last one | [`load`] |
//! | draw | Weir's own `p2c` | two servers, their live counters, random numbers; rarely the list | [`p2c`] |
//! | time | Weir's own `least-time` | the list, live counters, published shares, random numbers | [`least_time`] |
//! | bucket | `dh sh` | 256 buckets | [`bucket`] |
//! | maglev | `mh`, and Weir's own `maglev` | a table of prime size | [`mh`], [`maglev`] |
//! | cache | `lblc lblcr` | the list, counters and an address cache | [`locality`] |
//!
//! Hashing schedulers can have a load bound: [`bound`]. Long lists have an additional tree of winners: [`tournament`].
//!
//! The functions specify the BPF code: they have the same inputs, the same 32-bit and 64-bit arithmetic, and bounded
//! loops. [`reference`](mod@reference) implements `rr` and `wrr` a second time, step by step, on a linked list like the
//! kernel's; property tests compare both implementations.
//!
//! This crate reads no clock, draws no random numbers, counts no connections and does not depend on the layout of
//! tables in maps. It depends only on weir-model.

// A new scheduler must be handled wherever the existing ones are handled.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod availability;
pub mod bound;
pub mod bucket;
pub mod choice;
pub mod hash;
pub mod least_time;
pub mod load;
pub mod locality;
pub mod maglev;
pub mod mh;
pub mod p2c;
pub mod reference;
pub mod table;
pub mod tournament;

pub use availability::{Availability, Mode};
pub use choice::{Flags, HashTable};
pub use load::Counts;
pub use table::{Cursor, Start};
pub use weir_model::SchedulerKind as Kind;

/// A server of a service, as used by the schedulers.
///
/// A list of members is in the kernel's order: newest first, with strictly descending `seq`. Servers that accept no new
/// flows remain in the list, because several schedulers assign positions to them too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Sequence number in the service: an added server gets a higher number than all earlier servers. Never 0.
    pub seq: u32,
    /// Number of the server in the data plane. Never 0, which means "none" in tables.
    pub dest: u32,
    /// Effective weight, 0 to `i32::MAX`; 0 = quiesced or down.
    pub weight: u32,
    /// Index of the server's counters.
    pub slot: u32,
    /// Whether the server is below its upper connection threshold. Unlike the weight, this can change without a new
    /// list.
    pub usable: bool,
}

impl Member {
    /// Returns whether the server accepts new flows.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.availability() == Availability::Ready
    }

    /// Returns whether the server accepts new flows, and if it does not, why.
    #[must_use]
    pub fn availability(&self) -> Availability {
        if self.weight == 0 {
            Availability::Quiesced
        } else if self.usable {
            Availability::Ready
        } else {
            Availability::Overloaded
        }
    }
}

/// Why a table cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There are more servers than table entries; the kernel returns EINVAL.
    #[error("{servers} servers do not fit into a table of {entries} entries")]
    TooManyServers {
        /// Number of servers in the list.
        servers: usize,
        /// Number of entries in the table.
        entries: usize,
    },
    /// The table size is not one of [`maglev::SIZES`].
    #[error("{size} is not a valid size of a Maglev table")]
    TableSize {
        /// The requested size.
        size: u32,
    },
}
