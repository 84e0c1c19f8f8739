//! Defines the rules of the programs as comparable values. [`super::maps`] encodes them for the maps of the programs.

use std::net::IpAddr;

use super::maps::{mark_key, mark_keys, truncated};
use super::{Error, Result};

const MAX_HOST_ADDRESSES: usize = 512;
const MAX_VIPS: usize = 1024;
/// Maximum number of port ranges of one VIP, or of one DSCP and family.
pub(super) const MAX_RANGES: usize = 16;
const MAX_EXCEPT_PREFIXES: usize = 256;
const MAX_GUE_PORTS: usize = 16;

/// First and last port, both inclusive; 0 to 65535 means every port.
pub type Ports = (u16, u16);

/// The tunnels that may carry a VIP's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TunnelSet {
    pub(super) bits: u32,
}

impl TunnelSet {
    /// IP in IP.
    pub const IPIP: Self = Self { bits: 1 };
    /// GUE, to the ports of [`Rules::gue_ports`].
    pub const GUE: Self = Self { bits: 2 };
    /// GRE.
    pub const GRE: Self = Self { bits: 4 };

    /// Returns the union of two sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            bits: self.bits | other.bits,
        }
    }
}

/// A VIP whose packets arrive through tunnels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunnelVip {
    /// The destination address inside the tunnel.
    pub vip: IpAddr,
    /// The tunnels that may carry its packets.
    pub tunnels: TunnelSet,
    /// Its ports, sorted, at most 16 ranges.
    pub ports: Vec<Ports>,
}

/// The VIP to restore in packets that are marked with a DSCP; with DSCP 0, the VIP to use as the source of replies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The DSCP, 0 to 63.
    pub dscp: u8,
    /// The VIP.
    pub vip: IpAddr,
    /// Its ports.
    pub ports: Ports,
}

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// An address in the network.
    pub address: IpAddr,
    /// Prefix length in bits, in the address's family.
    pub len: u8,
}

/// The rules of the programs. Every list is sorted and without duplicates, so that rules can be compared; see
/// [`Rules::sort`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// This host's addresses: directors send packets to them, and replies are sent from them.
    pub host_addresses: Vec<IpAddr>,
    /// VIPs whose packets arrive through tunnels.
    pub tunnels: Vec<TunnelVip>,
    /// UDP ports for GUE.
    pub gue_ports: Vec<u16>,
    /// The marks; at most 16 for one family and DSCP.
    pub marks: Vec<Mark>,
    /// For marks with DSCP 0: the clients to which replies keep this host's address as their source.
    pub except: Vec<Prefix>,
}

impl Rules {
    /// Returns whether an ingress program is needed.
    pub fn needs_ingress(&self) -> bool {
        !self.tunnels.is_empty() || !self.marks.is_empty()
    }

    /// Returns whether an egress program is needed.
    pub fn needs_egress(&self) -> bool {
        self.marks.iter().any(|mark| mark.dscp == 0)
    }

    /// Sorts the lists and removes duplicates.
    pub fn sort(&mut self) {
        fn sort_unique<T: Ord>(list: &mut Vec<T>) {
            list.sort();
            list.dedup();
        }
        sort_unique(&mut self.host_addresses);
        for vip in &mut self.tunnels {
            sort_unique(&mut vip.ports);
        }
        sort_unique(&mut self.tunnels);
        sort_unique(&mut self.gue_ports);
        sort_unique(&mut self.marks);
        for prefix in &mut self.except {
            *prefix = truncated(*prefix);
        }
        sort_unique(&mut self.except);
    }

    /// Checks that the rules fit the maps.
    ///
    /// # Errors
    /// [`Error::Limit`] for the first list that is too long.
    pub fn check(&self) -> Result<()> {
        let limit = |subject, count, limit| {
            if count > limit {
                Err(Error::Limit {
                    subject,
                    count,
                    limit,
                })
            } else {
                Ok(())
            }
        };
        limit(
            "addresses of this host",
            self.host_addresses.len(),
            MAX_HOST_ADDRESSES,
        )?;
        limit("VIPs behind tunnels", self.tunnels.len(), MAX_VIPS)?;
        limit("GUE ports", self.gue_ports.len(), MAX_GUE_PORTS)?;
        limit("exceptions", self.except.len(), MAX_EXCEPT_PREFIXES)?;
        for vip in &self.tunnels {
            limit("port ranges for one VIP", vip.ports.len(), MAX_RANGES)?;
        }
        for key in mark_keys(&self.marks) {
            limit(
                "VIPs and port ranges for one DSCP",
                self.marks_of(key).count(),
                MAX_RANGES,
            )?;
        }
        Ok(())
    }

    pub(super) fn marks_of(&self, key: [u8; 4]) -> impl Iterator<Item = &Mark> {
        self.marks.iter().filter(move |mark| mark_key(mark) == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_limit_applies_per_dscp() {
        let mark = |dscp, port| Mark {
            dscp,
            vip: "192.0.2.1".parse().unwrap(),
            ports: (port, port),
        };
        let mut rules = Rules {
            marks: (1..=16).map(|port| mark(1, port)).collect(),
            ..Rules::default()
        };
        rules.marks.push(mark(2, 1));
        rules.check().unwrap();
        rules.marks.push(mark(1, 17));
        let error = rules.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "too many VIPs and port ranges for one DSCP: 17, the maximum is 16"
        );
    }
}
