//! Finds the reasons why a router does not distribute the packets of a VIP across all directors.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::path::{Attribute, Path, RouteEntry, Speaker, host_length, next_hop_count};

/// A cause. VIPs with the same cause are reported together. The order is that of the report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// BGP has no route to the VIP alone.
    NotAnnounced {
        /// The prefix whose route packets follow.
        covering: Option<String>,
    },
    /// A route from another protocol is preferred over BGP's.
    OtherProtocol {
        protocol: String,
        sources: Vec<String>,
    },
    /// BGP has a route to the VIP alone, but the kernel has none.
    NotInKernel {
        is_ipv4: bool,
        /// The prefix whose route packets follow.
        covering: Option<String>,
        sources: Vec<String>,
    },
    /// BGP uses only some paths, because the others differ from them.
    Different {
        attribute: Attribute,
        /// The sources of the paths with each value. The first value is that of the best path.
        values: Vec<(String, Vec<String>)>,
    },
    /// BGP selects only some of its equal paths.
    NotSelected {
        is_ipv4: bool,
        is_internal: bool,
        selected: usize,
        paths: usize,
    },
    /// The kernel has fewer next hops than BGP has selected.
    NotMerged {
        is_ipv4: bool,
        in_kernel: usize,
        sources: Vec<String>,
    },
    /// An aggregate keeps the router from sending the route to its neighbors.
    Suppressed,
}

/// The kernel's route to a VIP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelRoute {
    /// The destination, like `192.0.2.0/24`.
    pub(super) prefix: String,
    /// The length of the prefix, in bits.
    pub(super) length: u8,
    /// The number of distinct next hops; 0 = unknown.
    pub(super) next_hops: usize,
}

/// Returns the causes for one VIP. `entry` = the speaker's routes to the longest prefix that contains the VIP; `kernel`
/// = the route that packets follow, or `None` if they are dropped.
pub(super) fn causes(
    vip: IpAddr,
    entry: Option<&RouteEntry>,
    kernel: Option<&KernelRoute>,
    speaker: Speaker,
) -> Vec<Cause> {
    let is_ipv4 = vip.is_ipv4();
    let covering = kernel
        .filter(|route| route.length < host_length(vip))
        .map(|route| route.prefix.clone());
    let entry = entry.filter(|entry| entry.is_host() && entry.usable().next().is_some());
    let Some(entry) = entry else {
        return vec![Cause::NotAnnounced { covering }];
    };
    let sources = sorted_sources(entry.usable());
    let other = entry.paths.iter().find(|path| path.is_best && !path.is_bgp);
    if let Some(other) = other {
        return vec![Cause::OtherProtocol {
            protocol: other.source.clone(),
            sources,
        }];
    }
    let mut causes = Vec::new();
    if entry.usable().any(|path| path.is_suppressed) {
        causes.push(Cause::Suppressed);
    }
    let is_in_kernel = kernel.is_some() && covering.is_none();
    if !is_in_kernel {
        causes.push(Cause::NotInKernel {
            is_ipv4,
            covering,
            sources,
        });
    }
    let Some(best) = entry.usable().find(|path| path.is_best) else {
        return causes;
    };
    // Routers use a path with GRACEFUL_SHUTDOWN only if there is no other.
    let others = entry
        .usable()
        .filter(|path| !path.is_best && !path.is_drained);
    let (equal, different) = split_by_difference(best, others, speaker);
    causes.extend(differences(best, &different, &equal));
    let selected: Vec<&Path> = match speaker {
        Speaker::Bird => equal.clone(),
        Speaker::Frr => equal
            .iter()
            .copied()
            .filter(|path| path.is_selected)
            .collect(),
    };
    if selected.len() < equal.len() {
        causes.push(Cause::NotSelected {
            is_ipv4,
            is_internal: best.is_internal,
            selected: selected.len(),
            paths: equal.len(),
        });
    }
    let in_kernel = kernel.map_or(0, |route| route.next_hops);
    if is_in_kernel && in_kernel > 0 && in_kernel < next_hop_count(selected.iter().copied()) {
        causes.push(Cause::NotMerged {
            is_ipv4,
            in_kernel,
            sources: sorted_sources(selected.iter().copied()),
        });
    }
    causes
}

/// Paths that differ from the best one, by the deciding attribute.
type Different<'a> = BTreeMap<Attribute, Vec<&'a Path>>;

/// Returns the best path with those that the speaker can use together with it, and the others.
fn split_by_difference<'a>(
    best: &'a Path,
    others: impl Iterator<Item = &'a Path>,
    speaker: Speaker,
) -> (Vec<&'a Path>, Different<'a>) {
    let mut equal = vec![best];
    let mut different = Different::new();
    for path in others {
        match path.difference(best, speaker) {
            None => equal.push(path),
            Some(attribute) => different.entry(attribute).or_default().push(path),
        }
    }
    (equal, different)
}

fn differences(best: &Path, different: &Different<'_>, equal: &[&Path]) -> Vec<Cause> {
    let cause = |(attribute, paths): (&Attribute, &Vec<&Path>)| {
        let mut by_value: BTreeMap<String, Vec<&Path>> = BTreeMap::new();
        for path in paths {
            by_value
                .entry(path.value(*attribute))
                .or_default()
                .push(path);
        }
        let best = (
            best.value(*attribute),
            sorted_sources(equal.iter().copied()),
        );
        let others = by_value.into_iter();
        let others = others.map(|(value, paths)| (value, sorted_sources(paths.into_iter())));
        Cause::Different {
            attribute: *attribute,
            values: [best].into_iter().chain(others).collect(),
        }
    };
    different.iter().map(cause).collect()
}

/// Returns the sources of paths, in order.
fn sorted_sources<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let mut names: Vec<String> = paths.map(|path| path.source.clone()).collect();
    names.sort();
    names.dedup();
    names
}
