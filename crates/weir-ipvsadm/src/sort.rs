//! The order of listings, by the tool's comparisons.
//!
//! Differences are signed 32-bit numbers, so that 192.168.1.1 comes before 10.0.0.2. This order is not transitive, so
//! the result depends on the algorithm: a merge sort, as in glibc's qsort(3).

use std::net::IpAddr;

use crate::{ServerKey, ServiceKey};

/// Sorts like glibc.
pub(crate) fn sorted<T: Clone>(items: &[T], compare: &dyn Fn(&T, &T) -> i32) -> Vec<T> {
    if items.len() <= 1 {
        return items.to_vec();
    }
    let (left, right) = items.split_at(items.len() / 2);
    let (left, right) = (sorted(left, compare), sorted(right, compare));
    let mut merged = Vec::with_capacity(items.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(l), Some(r)) = (left.peek(), right.peek()) {
        let from = if compare(l, r) <= 0 {
            &mut left
        } else {
            &mut right
        };
        merged.extend(from.next());
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

/// By mark, family, protocol, address, port.
pub(crate) fn services(one: &ServiceKey, other: &ServiceKey) -> i32 {
    let parts = |key: &ServiceKey| match *key {
        ServiceKey::Mark { mark, .. } => (mark, 0, 0),
        ServiceKey::Address { protocol, port, .. } => (0, protocol.number(), port),
    };
    let family = |key: &ServiceKey| i32::from(key.is_v6());
    let ((m, p, q), (n, r, s)) = (parts(one), parts(other));
    let address = match (one, other) {
        (ServiceKey::Address { address: a, .. }, ServiceKey::Address { address: b, .. }) => {
            addresses(*a, *b)
        }
        _ => 0,
    };
    [
        difference(m, n),
        family(one) - family(other),
        i32::from(p) - i32::from(r),
        address,
        i32::from(q) - i32::from(s),
    ]
    .into_iter()
    .find(|difference| *difference != 0)
    .unwrap_or(0)
}

/// By address, port.
pub(crate) fn servers(one: &ServerKey, other: &ServerKey) -> i32 {
    match addresses(one.address, other.address) {
        0 => i32::from(one.port) - i32::from(other.port),
        difference => difference,
    }
}

/// The first address decides the family; missing bytes of an IPv4 address are zero.
fn addresses(one: IpAddr, other: IpAddr) -> i32 {
    let words = |address: IpAddr| match address {
        IpAddr::V4(v4) => [u32::from(v4), 0, 0, 0],
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
        }
    };
    let compared = if one.is_ipv6() { 4 } else { 1 };
    let pairs = words(one).into_iter().zip(words(other)).take(compared);
    pairs
        .map(|(a, b)| difference(a, b))
        .find(|difference| *difference != 0)
        .unwrap_or(0)
}

const fn difference(one: u32, other: u32) -> i32 {
    one.wrapping_sub(other).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distant_addresses_sort_in_reverse() {
        let key = |address: &str| ServerKey {
            address: address.parse().unwrap(),
            port: 80,
        };
        let keys = ["10.0.0.2", "192.168.1.1", "10.0.0.1"].map(key);
        let sorted = sorted(&keys, &servers);
        assert_eq!(sorted, ["192.168.1.1", "10.0.0.1", "10.0.0.2"].map(key));
    }
}
