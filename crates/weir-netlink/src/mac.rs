//! Defines Ethernet addresses of links and neighbors.

use std::fmt;

/// A 48-bit Ethernet address, first byte first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Converts a link-layer address; `None` = the address is not six bytes long, as on tunnels and InfiniBand devices.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns the six bytes.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_six_bytes_are_an_address() {
        assert_eq!(MacAddr::from_slice(&[1; 5]), None);
        assert_eq!(MacAddr::from_slice(&[1; 20]), None);
        let mac = MacAddr::from_slice(&[2, 0, 0, 0, 0xab, 1]).unwrap();
        assert_eq!(mac.to_string(), "02:00:00:00:ab:01");
    }
}
