//! Implements a set of IP networks with lookups in logarithmic time, for client address conditions.
//!
//! The networks are listed in the configuration or read from files.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use crate::Network;

/// Networks, and the files from which some of them were read. A set without networks contains no address.
#[derive(Debug, Clone, Default)]
pub struct NetworkSet {
    /// Networks listed in the configuration, in configuration order.
    listed: Vec<Network>,
    /// Paths of the files, each with the number of networks read from it.
    files: Vec<(String, usize)>,
    /// Ranges (first and last address) of all networks: sorted, disjoint and not adjacent.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl NetworkSet {
    /// Creates a set from the listed networks and the networks that were read from files.
    pub fn new(listed: Vec<Network>, files: Vec<(String, Vec<Network>)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let from_files = files.iter().flat_map(|(_, networks)| networks);
        for network in listed.iter().chain(from_files) {
            match network.address {
                IpAddr::V4(address) => {
                    let host_mask = u32::MAX.checked_shr(u32::from(network.prefix)).unwrap_or(0);
                    let first = address.to_bits() & !host_mask;
                    v4.push((first, first | host_mask));
                }
                IpAddr::V6(address) => {
                    let host_mask = u128::MAX
                        .checked_shr(u32::from(network.prefix))
                        .unwrap_or(0);
                    let first = address.to_bits() & !host_mask;
                    v6.push((first, first | host_mask));
                }
            }
        }
        Self {
            listed,
            files: files
                .into_iter()
                .map(|(file, networks)| (file, networks.len()))
                .collect(),
            v4: merge_ranges(v4, |last| last.checked_add(1)),
            v6: merge_ranges(v6, |last| last.checked_add(1)),
        }
    }

    /// Returns whether one of the networks contains `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => ranges_contain(&self.v4, address.to_bits()),
            IpAddr::V6(address) => ranges_contain(&self.v6, address.to_bits()),
        }
    }
}

fn merge_ranges<T: Copy + Ord>(
    mut ranges: Vec<(T, T)>,
    next: impl Fn(T) -> Option<T>,
) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut result: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match result.last_mut() {
            Some(previous) if next(previous.1).is_none_or(|next| first <= next) => {
                previous.1 = previous.1.max(last);
            }
            _ => result.push((first, last)),
        }
    }
    result
}

fn ranges_contain<T: Copy + Ord>(ranges: &[(T, T)], address: T) -> bool {
    let count = ranges.partition_point(|(first, _)| *first <= address);
    count > 0 && address <= ranges[count - 1].1
}

/// Sets are equal if they list the same networks in the same order, have the same files with the same numbers of
/// networks, and contain the same addresses.
impl PartialEq for NetworkSet {
    fn eq(&self, other: &Self) -> bool {
        (&self.listed, &self.files, &self.v4, &self.v6)
            == (&other.listed, &other.files, &other.v4, &other.v6)
    }
}

impl Eq for NetworkSet {}

impl Hash for NetworkSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.listed, &self.files, &self.v4, &self.v6).hash(state);
    }
}

/// Formats the listed networks, then the files, each with the number of networks read from it.
impl fmt::Display for NetworkSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for network in &self.listed {
            write!(f, "{separator}{network}")?;
            separator = " ";
        }
        for (file, count) in &self.files {
            let plural = if *count == 1 { "" } else { "s" };
            write!(f, "{separator}{file} ({count} network{plural})")?;
            separator = " ";
        }
        Ok(())
    }
}

impl FromIterator<Network> for NetworkSet {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        Self::new(networks.into_iter().collect(), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_network() -> impl Strategy<Value = Network> {
        let v4 = (0u32..64, 24u8..=32).prop_map(|(low, prefix)| Network {
            address: IpAddr::V4((0xc000_0200 | low).into()),
            prefix,
        });
        let v6 = (any::<u8>(), 120u8..=128).prop_map(|(low, prefix)| Network {
            address: IpAddr::V6(u128::from(low).into()),
            prefix,
        });
        let wide = prop_oneof![Just("0.0.0.0"), Just("::")].prop_map(|text| Network {
            address: text.parse().unwrap(),
            prefix: 0,
        });
        prop_oneof![10 => v4, 10 => v6, 1 => wide]
    }

    proptest! {
        #[test]
        fn set_contains_address_if_a_network_contains_it(
            networks in prop::collection::vec(any_network(), 0..12),
            low in 0u32..80,
        ) {
            let set: NetworkSet = networks.iter().copied().collect();
            for address in [IpAddr::V4((0xc000_0200 | low).into()), IpAddr::V6(u128::from(low).into())] {
                let expected = networks.iter().any(|network| network.contains(address));
                prop_assert_eq!(set.contains(address), expected);
            }
        }
    }

    #[test]
    fn empty_set_contains_nothing_and_adjacent_ranges_merge() {
        assert!(!NetworkSet::default().contains("192.0.2.1".parse().unwrap()));
        let network = |address: &str, prefix| Network {
            address: address.parse().unwrap(),
            prefix,
        };
        let set: NetworkSet = [
            network("255.255.255.255", 32),
            network("128.0.0.0", 1),
            network("0.0.0.0", 1),
        ]
        .into_iter()
        .collect();
        assert_eq!(set.v4, [(0, u32::MAX)]);
        assert_eq!(set.to_string(), "255.255.255.255/32 128.0.0.0/1 0.0.0.0/1");
    }

    #[test]
    fn files_are_shown_with_the_number_of_their_networks() {
        let network = |last: u8| Network {
            address: [192, 0, 2, last].into(),
            prefix: 32,
        };
        let set = |files: &[(&str, u8)]| {
            let files = files
                .iter()
                .map(|(name, count)| ((*name).to_owned(), (0..*count).map(network).collect()));
            NetworkSet::new(vec![network(9)], files.collect())
        };
        let text = set(&[("/a", 0), ("/b", 1), ("/c", 2)]).to_string();
        assert_eq!(
            text,
            "192.0.2.9/32 /a (0 networks) /b (1 network) /c (2 networks)"
        );
        let hash_of = |set: &NetworkSet| {
            let mut hasher = std::collections::hash_map::DefaultHasher::new();
            set.hash(&mut hasher);
            hasher.finish()
        };
        let (small, large) = (set(&[("/a", 1)]), set(&[("/a", 2)]));
        assert_eq!(hash_of(&small), hash_of(&set(&[("/a", 1)])));
        assert_ne!(hash_of(&small), hash_of(&large));
        assert_ne!(small, large);
    }
}
