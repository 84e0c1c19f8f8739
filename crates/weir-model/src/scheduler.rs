//! Defines a pool's scheduler: name and flags. `weir-sched` implements the schedulers.

use std::fmt;
use std::str::FromStr;

named_enum! {
    /// A scheduler, by its canonical name; `weir-config` handles aliases.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum SchedulerKind {
        /// Round robin.
        Rr = "rr",
        /// Weighted round robin.
        Wrr = "wrr",
        /// Least connections.
        Lc = "lc",
        /// Weighted least connections.
        Wlc = "wlc",
        /// Shortest expected delay.
        Sed = "sed",
        /// Never queue.
        Nq = "nq",
        /// Weighted failover.
        Fo = "fo",
        /// Weighted overflow.
        Ovf = "ovf",
        /// The kernel's power of two choices, `twos`.
        Twos = "twos",
        /// Destination hashing.
        Dh = "dh",
        /// Source hashing.
        Sh = "sh",
        /// The kernel's Maglev hashing.
        Mh = "mh",
        /// Locality-based least connection.
        Lblc = "lblc",
        /// Locality-based least connection with replication.
        Lblcr = "lblcr",
        /// Maglev over the 5-tuple.
        Maglev = "maglev",
        /// Power of two choices.
        P2c = "p2c",
        /// Least response time.
        LeastTime = "least-time",
        /// Hash of the request part that `HashKey` selects.
        Hash = "hash",
    }
}

impl SchedulerKind {
    /// Returns whether the kernel's IPVS has this scheduler.
    pub const fn is_ipvs(self) -> bool {
        self.traits().ipvs
    }

    /// Returns whether proxy services implement the scheduler.
    pub const fn works_in_proxy(self) -> bool {
        self.traits().proxy
    }

    /// Returns whether the scheduler selects a server by hash. If so, `max_load` applies.
    pub const fn hashes(self) -> bool {
        self.traits().hashes
    }

    /// Returns whether the data plane implements the scheduler.
    pub const fn works_at_layer4(self) -> bool {
        self.traits().layer4
    }

    /// Returns whether the scheduler can select a server for a socket, before there is a packet. The kernel's
    /// schedulers by destination cannot, because every destination would be the VIP. `fo` and `p2c` replace `ovf` and
    /// `twos`.
    pub const fn works_for_sockets(self) -> bool {
        match self {
            Self::Rr
            | Self::Wrr
            | Self::Lc
            | Self::Wlc
            | Self::Sed
            | Self::Nq
            | Self::Fo
            | Self::Sh
            | Self::Mh
            | Self::Maglev
            | Self::P2c
            | Self::LeastTime => true,
            Self::Ovf | Self::Twos | Self::Dh | Self::Lblc | Self::Lblcr | Self::Hash => false,
        }
    }

    /// Returns the schedulers to which `max_load` applies.
    pub fn hashing_schedulers() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| kind.hashes())
    }

    /// Returns whether the choice depends only on the packet and the server list. With `max_load`, it also depends on
    /// the load.
    pub const fn is_stateless(self) -> bool {
        self.traits().stateless
    }

    const fn traits(self) -> Traits {
        // The arguments are ipvs, layer4, proxy, hashes and stateless.
        match self {
            Self::Rr
            | Self::Wrr
            | Self::Lc
            | Self::Wlc
            | Self::Sed
            | Self::Nq
            | Self::Fo
            | Self::Ovf
            | Self::Twos => Traits::new(true, true, true, false, false),
            Self::Sh | Self::Mh => Traits::new(true, true, true, true, false),
            Self::Dh => Traits::new(true, true, false, true, false),
            Self::Lblc | Self::Lblcr => Traits::new(true, true, false, false, false),
            Self::Maglev => Traits::new(false, true, false, true, true),
            Self::P2c => Traits::new(false, true, true, false, false),
            Self::LeastTime => Traits::new(false, true, true, false, false),
            Self::Hash => Traits::new(false, false, true, true, false),
        }
    }
}

/// Where a scheduler is available, and which values its choice depends on.
struct Traits {
    ipvs: bool,
    layer4: bool,
    proxy: bool,
    hashes: bool,
    stateless: bool,
}

impl Traits {
    const fn new(ipvs: bool, layer4: bool, proxy: bool, hashes: bool, stateless: bool) -> Self {
        Self {
            ipvs,
            layer4,
            proxy,
            hashes,
            stateless,
        }
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
        let kind = Self::ALL.into_iter().find(|kind| kind.as_str() == name);
        kind.ok_or(UnknownScheduler)
    }
}

/// No scheduler has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownScheduler;

impl fmt::Display for UnknownScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown scheduler")
    }
}

impl std::error::Error for UnknownScheduler {}

/// Flags. `sh-port`, `sh-fallback`, `mh-port` and `mh-fallback` set the first two for `sh` and `mh`; the aliases
/// `ip_hash` and `first` set the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SchedulerFlags {
    /// Hash the client's port too.
    pub port: bool,
    /// Send clients of an unavailable server to the next server in hash order, instead of rejecting them.
    pub fallback: bool,
    /// Hash only the first three bytes of an IPv4 address, as nginx's `ip_hash` does.
    pub networks: bool,
    /// Prefer the first of several equal servers, not the last, as HAProxy's `first` does.
    pub file_order: bool,
}

/// A pool's scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scheduler {
    /// Kind of scheduler.
    pub kind: SchedulerKind,
    /// Flags. Only the names and aliases that [`SchedulerFlags`] lists set them.
    pub flags: SchedulerFlags,
    /// Bounded load: the maximum load of a server as a percentage of the mean; 125 = `max_load = 1.25`, `None` =
    /// unbounded.
    pub max_load_percent: Option<u32>,
}

impl Scheduler {
    /// Default scheduler of layer 4 services.
    pub const L4_DEFAULT: Self = Self::new(SchedulerKind::Wlc);

    /// Creates a scheduler without flags and without a load bound.
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
    fn scheduler_traits_match_documentation() {
        let names_with = |test: fn(SchedulerKind) -> bool| {
            let kinds = SchedulerKind::ALL.into_iter().filter(|kind| test(*kind));
            kinds
                .map(SchedulerKind::as_str)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let ipvs = "rr wrr lc wlc sed nq fo ovf twos dh sh mh lblc lblcr";
        assert_eq!(names_with(SchedulerKind::is_ipvs), ipvs);
        assert_eq!(
            names_with(SchedulerKind::works_at_layer4),
            format!("{ipvs} maglev p2c least-time")
        );
        assert_eq!(
            names_with(SchedulerKind::works_in_proxy),
            "rr wrr lc wlc sed nq fo ovf twos sh mh p2c least-time hash"
        );
        assert_eq!(names_with(SchedulerKind::hashes), "dh sh mh maglev hash");
        assert_eq!(names_with(SchedulerKind::is_stateless), "maglev");
    }

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
