//! Which destinations the kernel cannot tell apart.
//!
//! Whatever decides about a packet of this machine without source and mark looks at its destination through a prefix:
//! of a rule, of a route in some table, or of those that the kernel treats in ways of their own. Between two
//! neighbouring edges of all these prefixes every destination has the same answer, so that of many behind a few routes
//! a few are asked about.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What the kernel knows without a route: "this host", loopback, groups, everybody; the same of IPv6 and link-local
/// ones (`ip_route_output_key_hash_rcu`, `__ipv6_addr_type`).
const OWN_WAYS: [(IpAddr, u8); 7] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8),
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4),
    (IpAddr::V4(Ipv4Addr::BROADCAST), 32),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 127),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

/// The edges of prefixes, each family's in order.
#[derive(Debug)]
pub(crate) struct Classes {
    v4: Vec<u128>,
    v6: Vec<u128>,
}

impl Classes {
    /// Those that these prefixes make, in addition to the kernel's own.
    pub(crate) fn new(prefixes: impl IntoIterator<Item = (IpAddr, u8)>) -> Self {
        let mut classes = Self {
            v4: Vec::new(),
            v6: Vec::new(),
        };
        for (first, length) in prefixes.into_iter().chain(OWN_WAYS) {
            let (at, bits) = number(first);
            let length = u32::from(length).min(bits);
            // The whole family has no edge.
            if length == 0 {
                continue;
            }
            let size = 1u128 << (bits - length);
            let start = at & !(size - 1);
            let edges = if bits == 32 {
                &mut classes.v4
            } else {
                &mut classes.v6
            };
            edges.push(start);
            edges.extend(start.checked_add(size));
        }
        for edges in [&mut classes.v4, &mut classes.v6] {
            edges.sort_unstable();
            edges.dedup();
        }
        classes
    }

    /// The number of a destination's class, and whether it is one of IPv6.
    fn of(&self, to: IpAddr) -> (bool, usize) {
        let (at, _) = number(to);
        let edges = if to.is_ipv4() { &self.v4 } else { &self.v6 };
        (to.is_ipv6(), edges.partition_point(|edge| *edge <= at))
    }

    /// One destination of each class that occurs, and for each destination the index of its representative.
    pub(crate) fn representatives(&self, to: &[IpAddr]) -> (Vec<IpAddr>, Vec<usize>) {
        let (mut asked, mut known) = (Vec::new(), HashMap::new());
        let places = to.iter().map(|to| {
            *known.entry(self.of(*to)).or_insert_with(|| {
                asked.push(*to);
                asked.len() - 1
            })
        });
        let places = places.collect();
        (asked, places)
    }
}

/// An address as a number, and how many bits it has.
fn number(ip: IpAddr) -> (u128, u32) {
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

    /// The prefixes of `known` that an address lies in, which is what decides about it.
    fn within(known: &[(IpAddr, u8)], to: IpAddr) -> Vec<bool> {
        let covers = |(first, length): &(IpAddr, u8)| {
            let ((at, bits), (to, same)) = (number(*first), number(to));
            let shift = bits - u32::from(*length);
            bits == same && (shift == bits || at >> shift == to >> shift)
        };
        known.iter().chain(&OWN_WAYS).map(covers).collect()
    }

    #[test]
    fn class_shares_all_prefixes() {
        let known = [
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
        let classes = Classes::new(known);
        let asked: Vec<IpAddr> = [
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
        let (stand, places) = classes.representatives(&asked);
        for (to, at) in asked.iter().zip(&places) {
            let other = stand[*at];
            assert_eq!(
                (within(&known, *to), to.is_ipv4()),
                (within(&known, other), other.is_ipv4()),
                "{to} {other}"
            );
        }
        assert!(stand.contains(&ip("10.1.0.7")) && stand.contains(&ip("2001:db8::5")));
    }

    #[test]
    fn undivided_addresses_are_looked_up_once() {
        let classes = Classes::new([(ip("0.0.0.0"), 0), (ip("10.0.0.0"), 8)]);
        let many: Vec<IpAddr> = (0..=255)
            .map(|last| IpAddr::from([10, 0, 3, last]))
            .collect();
        let (asked, places) = classes.representatives(&many);
        assert_eq!(asked, [ip("10.0.3.0")]);
        assert_eq!(places, [0; 256]);
    }
}
