//! Tables that map a hash to a server: of `sh`, `dh` and `mh`. The spread table of `maglev` is not one of them.

use crate::{Error, Kind, Member, bucket, mh};

/// Kind of the hash table of a scheduler.
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
