//! Every scheduler as a pure function or a table builder.
//!
//! A scheduler answers one question: which of a service's servers takes the next flow. All of them read the same [`Member`]
//! list in the kernel's order, and they choose in six ways, which is what the data plane needs to know:
//!
//! | way | schedulers | what a pick reads | module |
//! |---|---|---|---|
//! | walk | `rr wrr` | the list and a cursor | [`table`] |
//! | load | `lc wlc sed nq fo ovf twos` | the list, live counters, random numbers for the last one | [`load`] |
//! | draw | Weir's own `p2c` | two servers, their live counters, random numbers; rarely the list | [`p2c`] |
//! | bucket | `dh sh` | 256 buckets | [`bucket`] |
//! | maglev | `mh`, and Weir's own `maglev` | a table of prime size | [`mh`], [`maglev`] |
//! | cache | `lblc lblcr` | the list, counters and an address cache | [`locality`] |
//!
//! Those that hash may be bounded by load: [`bound`]. Long lists have a tree of winners beside them: [`tournament`].
//!
//! The functions here are the specification of the BPF code: same inputs, same arithmetic in 32 and 64 bits, bounded loops.
//! [`reference`](mod@reference) spells `rr` and `wrr` out a second time, step by step over the kernel's linked list, and
//! property tests hold the two together.
//!
//! What this crate refuses to do: read a clock, draw random numbers, count connections, or know how a table is laid out in a
//! map. Of the other crates it knows weir-model's names alone.

pub mod availability;
pub mod bound;
pub mod bucket;
pub mod choice;
pub mod hash;
pub mod load;
pub mod locality;
pub mod maglev;
pub mod mh;
pub mod p2c;
pub mod reference;
pub mod table;
pub mod tournament;

pub use availability::{Availability, Mode};
pub use choice::Flags;
pub use load::Counts;
pub use table::{Cursor, Start};
pub use weir_model::SchedulerKind as Kind;

/// One server of a service as the schedulers see it.
///
/// A list of members is in the kernel's order: the newest first, which is strictly descending `seq`. Servers that take no new
/// flow stay in the list, because several schedulers give them a place all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Order of adding within the service: each added server gets a higher number than any before it. Never 0.
    pub seq: u32,
    /// What a pick stands for: the number of the destination in the data plane. Never 0, which means "none" in tables.
    pub dest: u32,
    /// Effective weight, 0 to `i32::MAX`; 0 is quiesced or down.
    pub weight: u32,
    /// Where this server's counters are.
    pub slot: u32,
    /// False while the server is at its upper connection threshold. Unlike a weight, this changes without a new list.
    pub usable: bool,
}

impl Member {
    /// Whether a new flow may go here.
    #[must_use]
    pub fn available(&self) -> bool {
        self.availability() == Availability::Ready
    }

    /// Why a new flow may or may not go here.
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

/// Why a scheduler or its table cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// More servers than the table has places; the kernel answers EINVAL.
    #[error("{servers} servers do not fit a table of {places} places")]
    TooManyServers {
        /// Servers in the list.
        servers: usize,
        /// Places in the table.
        places: usize,
    },
    /// A table size that is not one of [`maglev::SIZES`].
    #[error("{size} is not a Maglev table size")]
    TableSize {
        /// The size asked for.
        size: u32,
    },
}
