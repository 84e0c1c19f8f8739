//! Scheduler of a pool, by name and flags; `weir-sched` implements them.

use std::fmt;
use std::str::FromStr;

/// Scheduler by its canonical name; `weir-config` handles aliases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchedulerKind {
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
    /// Power of two choices as in the kernel, `twos`.
    Twos,
    /// Destination hashing.
    Dh,
    /// Source hashing.
    Sh,
    /// Maglev hashing as in the kernel.
    Mh,
    /// Locality-based least connection.
    Lblc,
    /// Locality-based least connection with replication.
    Lblcr,
    /// Maglev over the 5-tuple.
    Maglev,
    /// Power of two choices.
    P2c,
    /// Least response time.
    LeastTime,
    /// Hash of a part of the request, `HashKey`.
    Hash,
}

impl SchedulerKind {
    /// Every scheduler: the fourteen of IPVS in their usual order, then Weir's own.
    pub const ALL: [Self; 18] = [
        Self::Rr,
        Self::Wrr,
        Self::Lc,
        Self::Wlc,
        Self::Sed,
        Self::Nq,
        Self::Fo,
        Self::Ovf,
        Self::Twos,
        Self::Dh,
        Self::Sh,
        Self::Mh,
        Self::Lblc,
        Self::Lblcr,
        Self::Maglev,
        Self::P2c,
        Self::LeastTime,
        Self::Hash,
    ];

    /// The name in configuration, command line and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rr => "rr",
            Self::Wrr => "wrr",
            Self::Lc => "lc",
            Self::Wlc => "wlc",
            Self::Sed => "sed",
            Self::Nq => "nq",
            Self::Fo => "fo",
            Self::Ovf => "ovf",
            Self::Twos => "twos",
            Self::Dh => "dh",
            Self::Sh => "sh",
            Self::Mh => "mh",
            Self::Lblc => "lblc",
            Self::Lblcr => "lblcr",
            Self::Maglev => "maglev",
            Self::P2c => "p2c",
            Self::LeastTime => "least-time",
            Self::Hash => "hash",
        }
    }

    /// Whether the kernel's IPVS has this scheduler.
    pub const fn is_ipvs(self) -> bool {
        !matches!(
            self,
            Self::Maglev | Self::P2c | Self::LeastTime | Self::Hash
        )
    }

    /// Whether proxy services implement it.
    pub const fn works_in_proxy(self) -> bool {
        !matches!(self, Self::Dh | Self::Lblc | Self::Lblcr | Self::Maglev)
    }

    /// Whether it selects a server by hash, so that `max_load` applies.
    pub const fn hashes(self) -> bool {
        matches!(
            self,
            Self::Dh | Self::Sh | Self::Mh | Self::Maglev | Self::Hash
        )
    }

    /// Whether the data plane implements it.
    pub const fn is_built(self) -> bool {
        !matches!(self, Self::LeastTime | Self::Hash)
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Parses a canonical name.
impl FromStr for SchedulerKind {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, UnknownScheduler> {
        let named = Self::ALL.into_iter().find(|kind| kind.as_str() == name);
        named.ok_or(UnknownScheduler)
    }
}

/// The name is not a known scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownScheduler;

impl fmt::Display for UnknownScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown scheduler")
    }
}

impl std::error::Error for UnknownScheduler {}

/// Flags of `sh` and `mh`, written `sh-port`, `sh-fallback`, `mh-port`, `mh-fallback`; the other two are what the
/// aliases `ip_hash` and `first` add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SchedulerFlags {
    /// Hash the client's port too.
    pub port: bool,
    /// Use the next server of the hash for clients of an unavailable server, instead of rejecting them.
    pub fallback: bool,
    /// Hash only the first three bytes of an IPv4 address, as nginx's `ip_hash` does.
    pub networks: bool,
    /// Among equal servers prefer the first added, not the last, as HAProxy's `first` does.
    pub file_order: bool,
}

/// A pool's scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scheduler {
    /// Kind of scheduler.
    pub kind: SchedulerKind,
    /// Flags; all false for kinds other than `sh` and `mh`.
    pub flags: SchedulerFlags,
    /// Bounded load: maximum load of a server in percent of the mean; 125 is `max_load = 1.25`. `None` = unbounded.
    pub max_load_percent: Option<u32>,
}

impl Scheduler {
    /// Default scheduler of layer 4 services.
    pub const L4_DEFAULT: Self = Self::new(SchedulerKind::Wlc);

    /// A scheduler without flags and load bound.
    pub const fn new(kind: SchedulerKind) -> Self {
        Self {
            kind,
            flags: SchedulerFlags {
                port: false,
                fallback: false,
                networks: false,
                file_order: false,
            },
            max_load_percent: None,
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        if self.flags.port {
            write!(f, " {}-port", self.kind)?;
        }
        if self.flags.fallback {
            write!(f, " {}-fallback", self.kind)?;
        }
        if self.flags.networks {
            f.write_str(" over the /24")?;
        }
        if self.flags.file_order {
            f.write_str(" in file order")?;
        }
        match self.max_load_percent {
            Some(percent) => write!(f, " max_load {}.{:02}", percent / 100, percent % 100),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduler_names_round_trip() {
        for kind in SchedulerKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        for name in ["", "RR", "roundrobin", "none", "wlc "] {
            assert_eq!(name.parse::<SchedulerKind>(), Err(UnknownScheduler));
        }
    }

    #[test]
    fn scheduler_display_includes_flags_and_bound() {
        let scheduler = Scheduler {
            flags: SchedulerFlags {
                port: true,
                fallback: true,
                networks: false,
                file_order: false,
            },
            max_load_percent: Some(105),
            ..Scheduler::new(SchedulerKind::Mh)
        };
        assert_eq!(
            scheduler.to_string(),
            "mh mh-port mh-fallback max_load 1.05"
        );
    }
}
