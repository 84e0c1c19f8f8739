//! What the programs do, as values that can be compared. Their form in the programs' maps is [`super::maps`]' business.

use std::net::IpAddr;

use super::maps::{mark_key, mark_keys, without_host_bits};
use super::{Error, Result};

const OWN_MAX: usize = 512;
const VIPS_MAX: usize = 1024;
/// Port ranges of one VIP, or of one DSCP and family.
pub(super) const RANGES_MAX: usize = 16;
const EXCEPT_MAX: usize = 256;
const GUE_MAX: usize = 16;

/// First and last port, both included; 0 to 65535 is every port.
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

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            bits: self.bits | other.bits,
        }
    }
}

/// A VIP that is reached through tunnels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunnelVip {
    /// The address inside the tunnel.
    pub vip: IpAddr,
    /// Which tunnels.
    pub tunnels: TunnelSet,
    /// Its ports, sorted, at most 16 ranges.
    pub ports: Vec<Ports>,
}

/// A VIP that packets marked with a DSCP are turned back to, or, with DSCP 0, the source that replies are given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// 0 to 63.
    pub dscp: u8,
    /// The VIP.
    pub vip: IpAddr,
    /// The ports that stand for it.
    pub ports: Ports,
}

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// An address of it.
    pub address: IpAddr,
    /// Its length in bits of the address's own family.
    pub len: u8,
}

/// What the programs do. Equal rules are equal values: every list is sorted and without repetition, see [`Rules::sort`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// This host's own addresses, which directors send to and replies come from.
    pub own: Vec<IpAddr>,
    /// The VIPs behind tunnels.
    pub tunnels: Vec<TunnelVip>,
    /// UDP ports that GUE arrives at.
    pub gue_ports: Vec<u16>,
    /// The marks; at most 16 of one family and DSCP.
    pub marks: Vec<Mark>,
    /// Clients whose replies keep the own address, where the DSCP is 0.
    pub except: Vec<Prefix>,
}

impl Rules {
    /// Whether anything arrives that must be changed.
    pub fn needs_ingress(&self) -> bool {
        !self.tunnels.is_empty() || !self.marks.is_empty()
    }

    /// Whether replies must be changed.
    pub fn needs_egress(&self) -> bool {
        self.marks.iter().any(|mark| mark.dscp == 0)
    }

    /// Brings the lists into the order by which rules are compared.
    pub fn sort(&mut self) {
        fn tidy<T: Ord>(list: &mut Vec<T>) {
            list.sort();
            list.dedup();
        }
        tidy(&mut self.own);
        for vip in &mut self.tunnels {
            tidy(&mut vip.ports);
        }
        tidy(&mut self.tunnels);
        tidy(&mut self.gue_ports);
        tidy(&mut self.marks);
        for prefix in &mut self.except {
            *prefix = without_host_bits(*prefix);
        }
        tidy(&mut self.except);
    }

    /// Whether the maps take these rules.
    ///
    /// # Errors
    /// [`Error::Limit`] names the first list that is too long.
    pub fn check(&self) -> Result<()> {
        let limit = |what, count, limit| {
            if count > limit {
                Err(Error::Limit { what, count, limit })
            } else {
                Ok(())
            }
        };
        limit("addresses of this host", self.own.len(), OWN_MAX)?;
        limit("VIPs behind tunnels", self.tunnels.len(), VIPS_MAX)?;
        limit("GUE ports", self.gue_ports.len(), GUE_MAX)?;
        limit("exceptions", self.except.len(), EXCEPT_MAX)?;
        for vip in &self.tunnels {
            limit("port ranges of one VIP", vip.ports.len(), RANGES_MAX)?;
        }
        for key in mark_keys(&self.marks) {
            limit(
                "VIPs and port ranges of one DSCP",
                self.marks_of(key).count(),
                RANGES_MAX,
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
    fn limits_are_those_of_one_key() {
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
            "17 VIPs and port ranges of one DSCP: at most 16"
        );
    }
}
