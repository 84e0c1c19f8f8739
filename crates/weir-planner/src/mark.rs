//! Firewall marks as listeners of services.
//!
//! Pure: rules and devices that lead marked packets to the data plane are weir-control's.

use std::net::Ipv6Addr;

use weir_model::{Family, Mark};

use crate::rows::ListenerKey;

/// IPv6 or not, and the mark.
pub type Key = (bool, u32);

/// The key of a mark.
#[must_use]
pub fn key(mark: &Mark) -> Key {
    (mark.family == Family::V6, mark.mark.get())
}

/// A mark as a listener: what it is in the place of the address, 4 or 6 in that of the port.
#[must_use]
pub fn listener(mark: &Mark) -> ListenerKey {
    let (ipv6, number) = key(mark);
    let number = Ipv6Addr::from(u128::from(number));
    (number.into(), if ipv6 { 6 } else { 4 }, 0)
}

/// The numbers of both devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Where marked packets go in.
    pub entry: u32,
    /// Where they come out.
    pub exit: u32,
}
