//! Defines listeners: protocol, address and ports.
//!
//! A listener of a layer 4 service matches packets; Weir does not bind a socket for it. [`Ports::specificity`]
//! determines which of two overlapping listeners gets a packet; the configuration guarantees that no two listeners are
//! equal.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;

/// Address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address; an IPv4-mapped IPv6 address is IPv6.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A listener's transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP, the default.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Returns the number in the IP header (IANA protocol numbers).
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// Returns the name as written in `listen`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A listener's ports, in host byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ports {
    /// One port, 1 to 65535.
    One(u16),
    /// First and last port, inclusive; first < last.
    Range(u16, u16),
    /// Every port, written `*`.
    Any,
}

impl Ports {
    /// Returns whether `port` is one of these ports.
    pub const fn contains(self, port: u16) -> bool {
        match self {
            Self::One(one) => one == port,
            Self::Range(first, last) => first <= port && port <= last,
            Self::Any => true,
        }
    }

    /// Returns the first and the last port, inclusive. `Any` includes port 0, which clients cannot use but packets can
    /// contain.
    pub const fn bounds(self) -> (u16, u16) {
        match self {
            Self::One(one) => (one, one),
            Self::Range(first, last) => (first, last),
            Self::Any => (0, u16::MAX),
        }
    }

    /// Returns the precedence among listeners on the same address and port: 2 = exact, 1 = range, 0 = any. The highest
    /// wins.
    pub const fn specificity(self) -> u8 {
        match self {
            Self::One(_) => 2,
            Self::Range(..) => 1,
            Self::Any => 0,
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(port) => write!(f, "{port}"),
            Self::Range(first, last) => write!(f, "{first}-{last}"),
            Self::Any => f.write_str("*"),
        }
    }
}

/// One entry of `listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// Transport protocol.
    pub protocol: Protocol,
    /// The VIP.
    pub address: IpAddr,
    /// The ports.
    pub ports: Ports,
}

impl Listener {
    /// Returns the address family of the VIP.
    pub const fn family(&self) -> Family {
        Family::of(self.address)
    }
}

/// Formats the listener as `weir status` shows it: `tcp/192.0.2.10:80`, `tcp/[2001:db8::1]:80-90`, `udp/192.0.2.1:*`.
impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(v4) => write!(f, "{}/{v4}:{}", self.protocol, self.ports),
            IpAddr::V6(v6) => write!(f, "{}/[{v6}]:{}", self.protocol, self.ports),
        }
    }
}

/// A firewall mark in `listen`: matches packets with this mark, regardless of their protocol, address and port
/// (ipvsadm's `-f`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The mark that nftables sets.
    pub mark: NonZeroU32,
    /// Packet family.
    pub family: Family,
}

/// Formats the mark as in the configuration: `fwmark/7`, `fwmark6/7`.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            Family::V4 => write!(f, "fwmark/{}", self.mark),
            Family::V6 => write!(f, "fwmark6/{}", self.mark),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_display_matches_configuration() {
        let listener = |address: &str, ports| Listener {
            protocol: Protocol::Tcp,
            address: address.parse().unwrap(),
            ports,
        };
        assert_eq!(
            listener("192.0.2.10", Ports::One(80)).to_string(),
            "tcp/192.0.2.10:80"
        );
        assert_eq!(
            listener("2001:db8::1", Ports::Range(80, 90)).to_string(),
            "tcp/[2001:db8::1]:80-90"
        );
        assert_eq!(
            listener("192.0.2.1", Ports::Any).to_string(),
            "tcp/192.0.2.1:*"
        );
    }

    #[test]
    fn mark_display_matches_configuration() {
        let mark = |family| Mark {
            mark: NonZeroU32::new(7).unwrap(),
            family,
        };
        assert_eq!(mark(Family::V4).to_string(), "fwmark/7");
        assert_eq!(mark(Family::V6).to_string(), "fwmark6/7");
    }

    #[test]
    fn bounds_match_contained_ports() {
        for ports in [Ports::One(80), Ports::Range(8000, 8999), Ports::Any] {
            let (first, last) = ports.bounds();
            for port in [0, 1, 79, 80, 81, 7999, 8000, 8999, 9000, 65535] {
                assert_eq!(
                    ports.contains(port),
                    (first..=last).contains(&port),
                    "{ports} {port}"
                );
            }
        }
    }

    #[test]
    fn exact_port_is_more_specific_than_range_and_any() {
        assert!(Ports::One(1).specificity() > Ports::Range(1, 2).specificity());
        assert!(Ports::Range(1, 2).specificity() > Ports::Any.specificity());
    }
}
