//! Divides destinations into classes in which all route lookups have the same result.
//!
//! If a packet from this machine has neither a source nor a mark, only prefixes determine its route: the prefixes of
//! rules, of routes in any table, and of the kernel's special addresses. All destinations between two adjacent
//! boundaries of these prefixes have the same route. Looking up one destination of each class is therefore sufficient.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Prefixes that the kernel handles without a route: "this host", loopback, multicast, broadcast, and IPv6 link-local
/// (`ip_route_output_key_hash_rcu`, `__ipv6_addr_type`).
const SPECIAL_PREFIXES: [(IpAddr, u8); 7] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8),
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4),
    (IpAddr::V4(Ipv4Addr::BROADCAST), 32),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 127),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

/// The boundaries between classes, sorted, by address family.
#[derive(Debug)]
pub(crate) struct Classes {
    v4: Vec<u128>,
    v6: Vec<u128>,
}

impl Classes {
    /// Creates the classes for these prefixes and the kernel's special prefixes.
    pub(crate) fn new(prefixes: impl IntoIterator<Item = (IpAddr, u8)>) -> Self {
        let mut classes = Self {
            v4: Vec::new(),
            v6: Vec::new(),
        };
        for (first, length) in prefixes.into_iter().chain(SPECIAL_PREFIXES) {
            let (address, bits) = to_number(first);
            let length = u32::from(length).min(bits);
            // The prefix that contains all addresses has no boundary.
            if length == 0 {
                continue;
            }
            let size = 1u128 << (bits - length);
            let start = address & !(size - 1);
            let boundaries = if bits == 32 {
                &mut classes.v4
            } else {
                &mut classes.v6
            };
            boundaries.push(start);
            boundaries.extend(start.checked_add(size));
        }
        for boundaries in [&mut classes.v4, &mut classes.v6] {
            boundaries.sort_unstable();
            boundaries.dedup();
        }
        classes
    }

    /// Returns a destination's class: whether the destination is IPv6, and an index.
    fn class_of(&self, destination: IpAddr) -> (bool, usize) {
        let (address, _) = to_number(destination);
        let boundaries = if destination.is_ipv4() {
            &self.v4
        } else {
            &self.v6
        };
        (
            destination.is_ipv6(),
            boundaries.partition_point(|boundary| *boundary <= address),
        )
    }

    /// Returns a representative destination for each class that occurs, and for each destination the index of its
    /// representative.
    pub(crate) fn representatives(&self, destinations: &[IpAddr]) -> (Vec<IpAddr>, Vec<usize>) {
        let (mut representatives, mut indexes_by_class) = (Vec::new(), HashMap::new());
        let indexes = destinations.iter().map(|destination| {
            *indexes_by_class
                .entry(self.class_of(*destination))
                .or_insert_with(|| {
                    representatives.push(*destination);
                    representatives.len() - 1
                })
        });
        let indexes = indexes.collect();
        (representatives, indexes)
    }
}

/// Converts an address to a number and returns its width in bits.
fn to_number(ip: IpAddr) -> (u128, u32) {
    match ip {
        IpAddr::V4(ip) => (u32::from(ip).into(), 32),
        IpAddr::V6(ip) => (ip.into(), 128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Returns for each prefix whether it contains an address.
    fn prefixes_contain(prefixes: &[(IpAddr, u8)], destination: IpAddr) -> Vec<bool> {
        let contains = |(first, length): &(IpAddr, u8)| {
            let ((first, bits), (address, width)) = (to_number(*first), to_number(destination));
            let shift = bits - u32::from(*length);
            bits == width && (shift == bits || first >> shift == address >> shift)
        };
        prefixes
            .iter()
            .chain(&SPECIAL_PREFIXES)
            .map(contains)
            .collect()
    }

    #[test]
    fn prefixes_contain_all_or_no_destinations_of_a_class() {
        let prefixes = [
            (ip("0.0.0.0"), 0),
            (ip("10.0.0.0"), 8),
            (ip("10.1.0.0"), 16),
            (ip("10.1.0.7"), 32),
            (ip("255.255.255.0"), 24),
            (ip("::"), 0),
            (ip("2001:db8::"), 32),
            (ip("2001:db8:0:1::"), 64),
            (ip("2001:db8::5"), 128),
        ];
        let classes = Classes::new(prefixes);
        let destinations: Vec<IpAddr> = [
            "0.0.0.0",
            "9.255.255.255",
            "10.0.0.0",
            "10.0.255.255",
            "10.1.0.6",
            "10.1.0.7",
            "10.1.0.8",
            "10.2.0.0",
            "11.0.0.0",
            "127.0.0.1",
            "224.0.0.1",
            "255.255.255.0",
            "255.255.255.254",
            "255.255.255.255",
            "::1",
            "2001:db7::1",
            "2001:db8::4",
            "2001:db8::5",
            "2001:db8::6",
            "2001:db8:0:1::1",
            "2001:db8:0:2::1",
            "fe80::1",
            "ff02::1",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ]
        .map(ip)
        .to_vec();
        let (representatives, indexes) = classes.representatives(&destinations);
        for (destination, index) in destinations.iter().zip(&indexes) {
            let other = representatives[*index];
            assert_eq!(
                (
                    prefixes_contain(&prefixes, *destination),
                    destination.is_ipv4()
                ),
                (prefixes_contain(&prefixes, other), other.is_ipv4()),
                "{destination} {other}"
            );
        }
        assert!(
            representatives.contains(&ip("10.1.0.7"))
                && representatives.contains(&ip("2001:db8::5"))
        );
    }

    #[test]
    fn destinations_of_one_class_are_looked_up_once() {
        let classes = Classes::new([(ip("0.0.0.0"), 0), (ip("10.0.0.0"), 8)]);
        let many: Vec<IpAddr> = (0..=255)
            .map(|last| IpAddr::from([10, 0, 3, last]))
            .collect();
        let (representatives, indexes) = classes.representatives(&many);
        assert_eq!(representatives, [ip("10.0.3.0")]);
        assert_eq!(indexes, [0; 256]);
    }
}
