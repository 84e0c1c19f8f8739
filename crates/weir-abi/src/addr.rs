//! Defines addresses and ports as the data plane stores them.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::mirror::Zero;

/// `struct weir_addr`: an address in canonical 128-bit form, in network byte order; an IPv4 address is stored as
/// `::ffff:a.b.c.d` (RFC 4291 section 2.5.5.2). The words hold the bytes in memory order; their numeric values are
/// meaningless.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Addr {
    /// The first eight bytes.
    pub hi: u64,
    /// The last eight bytes.
    pub lo: u64,
}

impl Addr {
    /// The zero address, which means "none".
    pub const ZERO: Self = Self { hi: 0, lo: 0 };

    /// Creates an address from sixteen bytes in network byte order.
    pub const fn from_octets(bytes: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Self {
            hi: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            lo: u64::from_ne_bytes([i, j, k, l, m, n, o, p]),
        }
    }

    /// Returns the sixteen bytes in network byte order.
    pub const fn octets(self) -> [u8; 16] {
        let [a, b, c, d, e, f, g, h] = self.hi.to_ne_bytes();
        let [i, j, k, l, m, n, o, p] = self.lo.to_ne_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }

    /// Converts to an IP address; an IPv4-mapped address becomes IPv4.
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from(self.octets()).to_canonical()
    }

    /// Returns whether this is the zero address.
    pub const fn is_zero(self) -> bool {
        self.hi == 0 && self.lo == 0
    }
}

impl Zero for Addr {
    const ZERO: Self = Self::ZERO;
}

impl From<IpAddr> for Addr {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<Ipv4Addr> for Addr {
    fn from(address: Ipv4Addr) -> Self {
        Self::from_octets(address.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Addr {
    fn from(address: Ipv6Addr) -> Self {
        Self::from_octets(address.octets())
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            f.write_str("-")
        } else {
            write!(f, "{}", self.to_ip())
        }
    }
}

/// A 16-bit number in network byte order: `__be16`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Be16(u16);

impl Be16 {
    /// Converts a number from host byte order.
    pub const fn new(host: u16) -> Self {
        Self(host.to_be())
    }

    /// Returns the number in host byte order.
    pub const fn get(self) -> u16 {
        u16::from_be(self.0)
    }
}

impl Zero for Be16 {
    const ZERO: Self = Self(0);
}

impl From<u16> for Be16 {
    fn from(host: u16) -> Self {
        Self::new(host)
    }
}

impl fmt::Debug for Be16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_round_trips_in_mapped_form() {
        let addr = Addr::from(IpAddr::from([192, 0, 2, 10]));
        assert_eq!(
            addr.octets(),
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 10]
        );
        assert_eq!(addr.to_ip(), IpAddr::from([192, 0, 2, 10]));
    }

    #[test]
    fn mapped_ipv6_address_equals_ipv4() {
        let mapped: IpAddr = "::ffff:192.0.2.10".parse().unwrap();
        assert_eq!(Addr::from(mapped), Addr::from(Ipv4Addr::new(192, 0, 2, 10)));
    }

    #[test]
    fn ipv6_bytes_are_preserved() {
        let v6: Ipv6Addr = "2001:db8::1".parse().unwrap();
        assert_eq!(Addr::from(v6).octets(), v6.octets());
        assert_eq!(Addr::from(v6).to_ip(), IpAddr::V6(v6));
    }

    #[test]
    fn only_the_zero_address_is_none() {
        for (hi, lo, is_zero) in [(0, 0, true), (1, 0, false), (0, 1, false), (1, 1, false)] {
            assert_eq!(Addr { hi, lo }.is_zero(), is_zero, "{hi} {lo}");
        }
    }

    #[test]
    fn debug_text_is_the_address_or_port() {
        assert_eq!(format!("{:?}", Addr::ZERO), "-");
        let address = Addr::from(IpAddr::from([192, 0, 2, 10]));
        assert_eq!(format!("{address:?}"), "192.0.2.10");
        assert_eq!(format!("{:?}", Be16::from(443)), "443");
    }

    #[test]
    fn ports_are_stored_in_network_order() {
        assert_eq!(Be16::new(0x1234).0.to_ne_bytes(), [0x12, 0x34]);
        assert_eq!(Be16::new(443).get(), 443);
    }
}
