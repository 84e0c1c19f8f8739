//! Sorts listings with the tool's comparison functions.
//!
//! The comparison functions return differences as signed 32-bit numbers, so 192.168.1.1 sorts before 10.0.0.2. Such a
//! comparison is not transitive, so the result depends on the algorithm. glibc's qsort(3) uses merge sort.

use std::net::IpAddr;

use crate::{ServerKey, ServiceKey};

/// Sorts items with glibc's merge sort.
pub(crate) fn sorted<T: Clone>(items: &[T], compare: &dyn Fn(&T, &T) -> i32) -> Vec<T> {
    if items.len() <= 1 {
        return items.to_vec();
    }
    let (left, right) = items.split_at(items.len() / 2);
    let (left, right) = (sorted(left, compare), sorted(right, compare));
    let mut merged = Vec::with_capacity(items.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(l), Some(r)) = (left.peek(), right.peek()) {
        let smaller = if compare(l, r) <= 0 {
            &mut left
        } else {
            &mut right
        };
        merged.extend(smaller.next());
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

/// Compares services by mark, family, protocol, address and port.
pub(crate) fn compare_services(left: &ServiceKey, right: &ServiceKey) -> i32 {
    let mark_protocol_port = |key: &ServiceKey| match *key {
        ServiceKey::Mark { mark, .. } => (mark, 0, 0),
        ServiceKey::Address { protocol, port, .. } => (0, protocol.number(), port),
    };
    let family = |key: &ServiceKey| i32::from(key.is_v6());
    let ((left_mark, left_protocol, left_port), (right_mark, right_protocol, right_port)) =
        (mark_protocol_port(left), mark_protocol_port(right));
    let address = match (left, right) {
        (ServiceKey::Address { address: a, .. }, ServiceKey::Address { address: b, .. }) => {
            compare_addresses(*a, *b)
        }
        _ => 0,
    };
    [
        difference(left_mark, right_mark),
        family(left) - family(right),
        i32::from(left_protocol) - i32::from(right_protocol),
        address,
        i32::from(left_port) - i32::from(right_port),
    ]
    .into_iter()
    .find(|difference| *difference != 0)
    .unwrap_or(0)
}

/// Compares servers by address and port.
pub(crate) fn compare_servers(left: &ServerKey, right: &ServerKey) -> i32 {
    match compare_addresses(left.address, right.address) {
        0 => i32::from(left.port) - i32::from(right.port),
        difference => difference,
    }
}

/// Compares addresses. The family of the left address determines how many words are compared: one for IPv4, four for
/// IPv6. Missing words of an IPv4 address count as zero.
fn compare_addresses(left: IpAddr, right: IpAddr) -> i32 {
    let words = |address: IpAddr| match address {
        IpAddr::V4(v4) => [u32::from(v4), 0, 0, 0],
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
        }
    };
    let count = if left.is_ipv6() { 4 } else { 1 };
    let pairs = words(left).into_iter().zip(words(right)).take(count);
    pairs
        .map(|(a, b)| difference(a, b))
        .find(|difference| *difference != 0)
        .unwrap_or(0)
}

const fn difference(left: u32, right: u32) -> i32 {
    left.wrapping_sub(right).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    #[test]
    fn addresses_that_differ_by_2_to_31_or_more_sort_in_reverse() {
        let key = |address: &str| ServerKey {
            address: address.parse().unwrap(),
            port: 80,
        };
        let keys = ["10.0.0.2", "192.168.1.1", "10.0.0.1"].map(key);
        let sorted = sorted(&keys, &compare_servers);
        assert_eq!(sorted, ["192.168.1.1", "10.0.0.1", "10.0.0.2"].map(key));
    }

    /// Asserts that each key is smaller than the keys after it.
    #[track_caller]
    fn assert_ascending<T: std::fmt::Debug>(keys: &[T], compare: fn(&T, &T) -> i32) {
        for (left_index, left) in keys.iter().enumerate() {
            for (right_index, right) in keys.iter().enumerate() {
                let expected = left_index.cmp(&right_index);
                assert_eq!(compare(left, right).cmp(&0), expected, "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn servers_sort_by_address_and_port() {
        let key = |(address, port): (&str, u16)| ServerKey {
            address: address.parse().unwrap(),
            port,
        };
        let v4 = [
            ("10.0.0.1", 0),
            ("10.0.0.1", 1),
            ("10.0.0.1", 65_535),
            ("10.0.0.2", 80),
        ];
        assert_ascending(&v4.map(key), compare_servers);
        let v6 = [
            ("fd00::1", 80),
            ("fd00::1", 81),
            ("fd00::2", 1),
            ("fd00:0:0:1::", 1),
            ("fd00:0:1::", 1),
        ];
        assert_ascending(&v6.map(key), compare_servers);
    }

    #[test]
    fn services_sort_by_mark_family_protocol_address_and_port() {
        let service = |(protocol, address, port): (Protocol, &str, u16)| ServiceKey::Address {
            protocol,
            address: address.parse().unwrap(),
            port,
        };
        let mark = |(mark, v6): (u32, bool)| ServiceKey::Mark { mark, v6 };
        let services = [
            (Protocol::Tcp, "10.0.0.1", 80),
            (Protocol::Tcp, "10.0.0.1", 443),
            (Protocol::Tcp, "10.0.0.2", 1),
            (Protocol::Udp, "10.0.0.1", 1),
            (Protocol::Tcp, "::1", 1),
            (Protocol::Udp, "::1", 1),
        ];
        let marks = [(1, false), (1, true), (2, false), (2, true)];
        let keys: Vec<ServiceKey> = services
            .into_iter()
            .map(service)
            .chain(marks.map(mark))
            .collect();
        assert_ascending(&keys, compare_services);
    }
}
