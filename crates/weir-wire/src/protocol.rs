//! Defines registered protocol numbers and TCP flags.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// EtherType (IEEE 802 Numbers, IANA).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

#[expect(missing_docs, reason = "the names are the registry's")]
impl EtherType {
    pub const IPV4: Self = Self(0x0800);
    pub const ARP: Self = Self(0x0806);
    pub const IPV6: Self = Self(0x86dd);
    /// 802.1Q customer tag.
    pub const VLAN: Self = Self(0x8100);
    /// 802.1ad service tag.
    pub const SERVICE_VLAN: Self = Self(0x88a8);

    /// Returns whether a VLAN tag follows.
    #[must_use]
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN)
    }

    /// Returns the EtherType of an IP packet, according to its version field, or `None` if it is not an IP packet.
    #[must_use]
    pub fn for_ip_packet(packet: &[u8]) -> Option<Self> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => Some(Self::IPV4),
            Some(6) => Some(Self::IPV6),
            _ => None,
        }
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IPV4 => f.write_str("ipv4"),
            Self::ARP => f.write_str("arp"),
            Self::IPV6 => f.write_str("ipv6"),
            Self(other) => write!(f, "ethertype {other:#06x}"),
        }
    }
}

/// IP protocol and IPv6 next header (Protocol Numbers, IANA).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

#[expect(missing_docs, reason = "the names are the registry's")]
impl IpProtocol {
    pub const HOP_BY_HOP: Self = Self(0);
    pub const ICMP: Self = Self(1);
    /// IPv4 in IP.
    pub const IPIP: Self = Self(4);
    pub const TCP: Self = Self(6);
    pub const UDP: Self = Self(17);
    /// IPv6 in IP.
    pub const IPV6: Self = Self(41);
    pub const ROUTING: Self = Self(43);
    pub const FRAGMENT: Self = Self(44);
    pub const GRE: Self = Self(47);
    pub const ESP: Self = Self(50);
    pub const AH: Self = Self(51);
    pub const ICMPV6: Self = Self(58);
    /// No header follows (RFC 8200 section 4.7).
    pub const NO_NEXT_HEADER: Self = Self(59);
    pub const DEST_OPTS: Self = Self(60);
    pub const SCTP: Self = Self(132);

    /// Returns the protocol number for encapsulating the IP packet `inner` in an IP packet, or `None` if it is not an
    /// IP packet.
    #[must_use]
    pub fn for_inner_packet(inner: &[u8]) -> Option<Self> {
        match EtherType::for_ip_packet(inner) {
            Some(EtherType::IPV4) => Some(Self::IPIP),
            Some(_) => Some(Self::IPV6),
            None => None,
        }
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HOP_BY_HOP => f.write_str("hop-by-hop"),
            Self::ICMP => f.write_str("icmp"),
            Self::IPIP => f.write_str("ipip"),
            Self::TCP => f.write_str("tcp"),
            Self::UDP => f.write_str("udp"),
            Self::IPV6 => f.write_str("ipv6"),
            Self::ROUTING => f.write_str("routing"),
            Self::FRAGMENT => f.write_str("fragment"),
            Self::GRE => f.write_str("gre"),
            Self::ESP => f.write_str("esp"),
            Self::AH => f.write_str("ah"),
            Self::ICMPV6 => f.write_str("icmpv6"),
            Self::NO_NEXT_HEADER => f.write_str("nothing"),
            Self::DEST_OPTS => f.write_str("dest-opts"),
            Self::SCTP => f.write_str("sctp"),
            Self(other) => write!(f, "protocol {other}"),
        }
    }
}

/// TCP control bits (RFC 9293 section 3.1; CWR and ECE: RFC 3168), combined with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u8);

#[expect(missing_docs, reason = "the names are the RFC's")]
impl TcpFlags {
    pub const NONE: Self = Self(0);
    pub const FIN: Self = Self(0x01);
    pub const SYN: Self = Self(0x02);
    pub const RST: Self = Self(0x04);
    pub const PSH: Self = Self(0x08);
    pub const ACK: Self = Self(0x10);
    pub const URG: Self = Self(0x20);
    pub const ECE: Self = Self(0x40);
    pub const CWR: Self = Self(0x80);

    /// Returns whether all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any bit of `other` is set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for TcpFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(TcpFlags, &str); 8] = [
            (TcpFlags::SYN, "SYN"),
            (TcpFlags::FIN, "FIN"),
            (TcpFlags::RST, "RST"),
            (TcpFlags::PSH, "PSH"),
            (TcpFlags::ACK, "ACK"),
            (TcpFlags::URG, "URG"),
            (TcpFlags::ECE, "ECE"),
            (TcpFlags::CWR, "CWR"),
        ];
        let mut separator = "";
        for (flag, name) in NAMES {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        if separator.is_empty() {
            f.write_str("no flags")
        } else {
            Ok(())
        }
    }
}
