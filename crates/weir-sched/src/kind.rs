//! The schedulers by name, their flags, and the method by which each picks: IPVS's fourteen and two of Weir's own.
//!
//! What other load balancers call these is a matter of configuration, above this crate.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Round robin.
    Rr,
    /// Weighted round robin.
    Wrr,
    /// Least connections.
    Lc,
    /// Weighted least connections.
    Wlc,
    /// Shortest expected delay.
    Sed,
    /// Never queue.
    Nq,
    /// Weighted failover.
    Fo,
    /// Weighted overflow.
    Ovf,
    /// Power of two choices.
    Twos,
    /// Destination hashing.
    Dh,
    /// Source hashing.
    Sh,
    /// Maglev hashing.
    Mh,
    /// Locality-based least connections.
    Lblc,
    /// Locality-based least connections with replication.
    Lblcr,
    /// Maglev hashing of the whole tuple; not in IPVS.
    Maglev,
    /// The better of two drawn with equal chances; not in IPVS.
    P2c,
}

/// What a pick of a scheduler reads; see the table at the top of the crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The list and a cursor.
    Walk,
    /// The list and live counters.
    Load,
    /// 256 buckets.
    Bucket,
    /// A Maglev table.
    Maglev,
    /// An address cache over the list and live counters.
    Cache,
}

/// The scheduler flags of a service, as they travel in its `flags` word (include/uapi/linux/ip_vs.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `sh-fallback`, `mh-fallback`: probe on when the server found takes no new flow.
    pub fallback: bool,
    /// `sh-port`, `mh-port`: the source port is part of the key.
    pub port: bool,
}

impl Flags {
    /// The bit of `fallback`: `IP_VS_SVC_F_SCHED1`.
    pub const FALLBACK: u32 = 8;
    /// The bit of `port`: `IP_VS_SVC_F_SCHED2`.
    pub const PORT: u32 = 16;

    /// Reads the two bits out of a service's flags word; all others are not the scheduler's.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            fallback: bits & Self::FALLBACK != 0,
            port: bits & Self::PORT != 0,
        }
    }

    /// The two bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        (if self.fallback { Self::FALLBACK } else { 0 }) | (if self.port { Self::PORT } else { 0 })
    }
}

impl Kind {
    /// All of them, in the order of the manual.
    pub const ALL: [Kind; 16] = [
        Kind::Rr,
        Kind::Wrr,
        Kind::Lc,
        Kind::Wlc,
        Kind::Sed,
        Kind::Nq,
        Kind::Fo,
        Kind::Ovf,
        Kind::Twos,
        Kind::Dh,
        Kind::Sh,
        Kind::Mh,
        Kind::Lblc,
        Kind::Lblcr,
        Kind::Maglev,
        Kind::P2c,
    ];

    /// Whether the kernel has it.
    #[must_use]
    pub const fn is_ipvs(self) -> bool {
        !matches!(self, Kind::Maglev | Kind::P2c)
    }

    /// Its name: the kernel's, where the kernel has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Rr => "rr",
            Kind::Wrr => "wrr",
            Kind::Lc => "lc",
            Kind::Wlc => "wlc",
            Kind::Sed => "sed",
            Kind::Nq => "nq",
            Kind::Fo => "fo",
            Kind::Ovf => "ovf",
            Kind::Twos => "twos",
            Kind::Dh => "dh",
            Kind::Sh => "sh",
            Kind::Mh => "mh",
            Kind::Lblc => "lblc",
            Kind::Lblcr => "lblcr",
            Kind::Maglev => "maglev",
            Kind::P2c => "p2c",
        }
    }

    /// How it picks.
    #[must_use]
    pub const fn method(self) -> Method {
        match self {
            Kind::Rr | Kind::Wrr => Method::Walk,
            Kind::Lc
            | Kind::Wlc
            | Kind::Sed
            | Kind::Nq
            | Kind::Fo
            | Kind::Ovf
            | Kind::Twos
            | Kind::P2c => Method::Load,
            Kind::Dh | Kind::Sh => Method::Bucket,
            Kind::Mh | Kind::Maglev => Method::Maglev,
            Kind::Lblc | Kind::Lblcr => Method::Cache,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| Error::UnknownScheduler {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "RR", "roundrobin", "none", "wlc "] {
            assert_eq!(
                name.parse::<Kind>(),
                Err(Error::UnknownScheduler { name: name.into() })
            );
        }
    }

    #[test]
    fn flags_read_back_and_ignore_foreign_bits() {
        let both = Flags {
            fallback: true,
            port: true,
        };
        assert_eq!(both.bits(), 24);
        assert_eq!(Flags::from_bits(0xffff_ffff), both);
        assert_eq!(Flags::from_bits(1 | 2 | 4 | 32), Flags::default());
        assert_eq!(
            Flags::from_bits(16),
            Flags {
                fallback: false,
                port: true
            }
        );
    }
}
