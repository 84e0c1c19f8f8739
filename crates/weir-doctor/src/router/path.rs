//! Defines the BGP routes to a VIP as a router's speaker shows them, and compares their attributes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// The program that runs BGP on a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Speaker {
    Bird,
    Frr,
}

impl fmt::Display for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bird => "BIRD",
            Self::Frr => "FRR",
        })
    }
}

/// A destination prefix with the paths to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteEntry {
    /// The first address of the prefix.
    pub(super) address: IpAddr,
    /// The length of the prefix, in bits.
    pub(super) length: u8,
    /// The paths. BIRD's paths include those of other protocols.
    pub(super) paths: Vec<Path>,
}

impl RouteEntry {
    /// Creates an entry without paths from text like `192.0.2.10/32`. `None` = the text is not a prefix.
    pub(super) fn parse(prefix: &str) -> Option<Self> {
        let (address, length) = prefix.split_once('/')?;
        Some(Self {
            address: address.parse().ok()?,
            length: length.parse().ok()?,
            paths: Vec::new(),
        })
    }

    /// Returns whether the prefix is a single address.
    pub(super) fn is_host(&self) -> bool {
        self.length == host_length(self.address)
    }

    /// Returns the paths that BGP can use.
    pub(super) fn usable(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|path| path.is_usable())
    }

    /// Returns the number of distinct next hops of the paths that BGP can use.
    pub(super) fn next_hop_count(&self) -> usize {
        next_hop_count(self.usable())
    }

    /// Returns the prefix as text.
    #[cfg(test)]
    pub(super) fn prefix(&self) -> String {
        format!("{}/{}", self.address, self.length)
    }
}

/// Returns the number of distinct next hops.
pub(super) fn next_hop_count<'a>(paths: impl Iterator<Item = &'a Path>) -> usize {
    let next_hops: BTreeSet<&String> = paths.flat_map(|path| &path.next_hops).collect();
    next_hops.len()
}

/// Returns the prefix length of a single address.
pub(super) const fn host_length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// A path to a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    /// The BIRD protocol or FRR peer from which the path was learned.
    pub(super) source: String,
    /// Whether the path was learned through BGP.
    pub(super) is_bgp: bool,
    /// Whether this is the best path.
    pub(super) is_best: bool,
    /// Whether the path is the best path or part of its multipath set. BIRD does not show this.
    pub(super) is_selected: bool,
    /// The next hops, resolved to the routers that packets are sent to. Empty = the next hop is unreachable.
    pub(super) next_hops: BTreeSet<String>,
    /// BIRD: the preference of the protocol's routes.
    pub(super) preference: u32,
    /// FRR: the weight.
    pub(super) weight: u32,
    /// LOCAL_PREF. A missing value is 100.
    pub(super) local_preference: u32,
    /// AS_PATH as text.
    pub(super) as_path: String,
    /// The length of AS_PATH.
    pub(super) as_path_length: usize,
    /// ORIGIN in lower case: `igp`, `egp` or `incomplete`.
    pub(super) origin: String,
    /// MULTI_EXIT_DISC. A missing value is 0.
    pub(super) med: u32,
    /// Whether the path was learned from a router in the same AS. BIRD does not show this.
    pub(super) is_internal: bool,
    /// The metric of the route to the next hop; `None` = unknown or not used.
    pub(super) igp_metric: Option<u32>,
    /// Whether the path has the community GRACEFUL_SHUTDOWN (RFC 8326).
    pub(super) is_drained: bool,
    /// Whether an aggregate keeps the router from sending the path to its neighbors.
    pub(super) is_suppressed: bool,
}

/// An attribute that decides between two paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Attribute {
    Preference,
    Weight,
    LocalPreference,
    AsPathLength,
    Origin,
    Med,
    PeerType,
    IgpMetric,
    /// Unless `bgp bestpath as-path multipath-relax` is set, FRR uses eBGP paths together only if they are from the
    /// same neighbor AS, and iBGP paths only if their AS_PATHs are equal.
    AsPath,
}

impl Path {
    /// Returns whether the path was learned through BGP and its next hop is reachable.
    pub(super) fn is_usable(&self) -> bool {
        self.is_bgp && !self.next_hops.is_empty()
    }

    /// Returns the first attribute, in the order of the speaker's decision process, that keeps the speaker from using
    /// this path together with the best one. `None` = it can use both. The order is that of RFC 4271 section 9.1;
    /// preference and weight are extensions.
    pub(super) fn difference(&self, best: &Self, speaker: Speaker) -> Option<Attribute> {
        if self.is_selected {
            return None;
        }
        // By default, speakers compare the MED only between paths from the same neighbor AS.
        let same_neighbor_as = self.neighbor_as() == best.neighbor_as();
        // Of eBGP paths, FRR compares only the neighbor AS (bgp_route.c, `bgp_path_info_cmp`).
        let as_paths_differ = match self.is_internal {
            true => self.as_path != best.as_path,
            false => !same_neighbor_as,
        };
        let differences = [
            (Attribute::Preference, self.preference != best.preference),
            (Attribute::Weight, self.weight != best.weight),
            (
                Attribute::LocalPreference,
                self.local_preference != best.local_preference,
            ),
            (
                Attribute::AsPathLength,
                self.as_path_length != best.as_path_length,
            ),
            (Attribute::Origin, self.origin != best.origin),
            (Attribute::Med, same_neighbor_as && self.med != best.med),
            (Attribute::PeerType, self.is_internal != best.is_internal),
            (Attribute::IgpMetric, self.igp_metric != best.igp_metric),
            (
                Attribute::AsPath,
                speaker == Speaker::Frr && as_paths_differ,
            ),
        ];
        let mut different = differences.into_iter().filter(|(_, differs)| *differs);
        different.next().map(|(attribute, _)| attribute)
    }

    fn neighbor_as(&self) -> Option<&str> {
        self.as_path.split_whitespace().next()
    }

    /// Returns the value of an attribute as text.
    pub(super) fn value(&self, attribute: Attribute) -> String {
        match attribute {
            Attribute::Preference => self.preference.to_string(),
            Attribute::Weight => self.weight.to_string(),
            Attribute::LocalPreference => self.local_preference.to_string(),
            Attribute::AsPathLength => self.as_path_length.to_string(),
            Attribute::Origin => self.origin.clone(),
            Attribute::Med => self.med.to_string(),
            Attribute::PeerType => (if self.is_internal {
                "internal"
            } else {
                "external"
            })
            .to_owned(),
            Attribute::IgpMetric => self
                .igp_metric
                .map_or("unknown".to_owned(), |metric| metric.to_string()),
            Attribute::AsPath => self.as_path.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> Path {
        Path {
            is_bgp: true,
            local_preference: 100,
            as_path: "65001".to_owned(),
            as_path_length: 1,
            origin: "igp".to_owned(),
            ..Path::default()
        }
    }

    #[test]
    fn first_different_attribute_decides() {
        let origin = "incomplete".to_owned();
        let other_as = "65002".to_owned();
        for (other, bird, frr) in [
            (path(), None, None),
            (
                Path {
                    local_preference: 200,
                    origin: origin.clone(),
                    ..path()
                },
                Some(Attribute::LocalPreference),
                Some(Attribute::LocalPreference),
            ),
            (
                Path { origin, ..path() },
                Some(Attribute::Origin),
                Some(Attribute::Origin),
            ),
            (
                Path { med: 5, ..path() },
                Some(Attribute::Med),
                Some(Attribute::Med),
            ),
            (
                Path {
                    med: 5,
                    as_path: other_as.clone(),
                    ..path()
                },
                None,
                Some(Attribute::AsPath),
            ),
            (
                Path {
                    as_path: "65001 65010".to_owned(),
                    ..path()
                },
                None,
                None,
            ),
            (
                Path {
                    is_selected: true,
                    as_path: other_as,
                    ..path()
                },
                None,
                None,
            ),
        ] {
            assert_eq!(other.difference(&path(), Speaker::Bird), bird, "{other:?}");
            assert_eq!(other.difference(&path(), Speaker::Frr), frr, "{other:?}");
        }
    }

    #[test]
    fn prefix_is_parsed() {
        let entry = RouteEntry::parse("2001:db8::/32").unwrap();
        assert!(!entry.is_host() && entry.prefix() == "2001:db8::/32");
        assert!(RouteEntry::parse("192.0.2.1/32").unwrap().is_host());
        for text in ["192.0.2.1", "Network/32", "192.0.2.1/x"] {
            assert_eq!(RouteEntry::parse(text), None, "{text}");
        }
    }
}
