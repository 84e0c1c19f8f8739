//! Defines IP networks.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// An IP network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Network {
    /// Any address in the network.
    pub address: IpAddr,
    /// Prefix length.
    pub prefix: u8,
}

impl Network {
    /// Returns whether the network contains `address`; always false if the address families differ.
    pub fn contains(&self, address: IpAddr) -> bool {
        let has_same_prefix = |a: u128, b: u128, bits: u8| match bits {
            0 => true,
            bits => (a ^ b) >> (128 - u32::from(bits)) == 0,
        };
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => has_same_prefix(
                u128::from(a.to_bits()) << 96,
                u128::from(b.to_bits()) << 96,
                self.prefix,
            ),
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                has_same_prefix(a.to_bits(), b.to_bits(), self.prefix)
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_depends_on_the_prefix() {
        let contains = |network: &str, prefix, address: &str| {
            let address: IpAddr = address.parse().unwrap();
            let network = Network {
                address: network.parse().unwrap(),
                prefix,
            };
            network.contains(address)
        };
        assert!(contains("10.0.0.1", 24, "10.0.0.5"));
        assert!(!contains("10.0.0.1", 24, "10.0.1.5"));
        assert!(!contains("10.0.0.4", 32, "10.0.0.5"));
        assert!(contains("10.0.0.5", 32, "10.0.0.5"));
        assert!(contains("fd71::3", 64, "fd71::14"));
        assert!(!contains("10.0.0.1", 0, "fd71::14"));
        assert!(contains("10.0.0.0", 8, "10.255.0.1"));
        assert!(!contains("10.0.0.0", 8, "11.0.0.1"));
        assert!(contains("0.0.0.0", 0, "192.0.2.1"));
        assert!(contains("2001:db8::", 33, "2001:db8:7fff::1"));
        assert!(!contains("2001:db8::", 33, "2001:db8:8000::1"));
    }
}
