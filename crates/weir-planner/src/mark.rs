//! Converts firewall marks to listeners of services.
//!
//! weir-engine sets up the rules and devices that send marked packets to the data plane.

use std::net::Ipv6Addr;

use weir_model::{Family, Mark};

use crate::rows::ListenerKey;

/// A mark: whether it applies to IPv6, and its number.
pub type Key = (bool, u32);

/// Returns a mark's key.
#[must_use]
pub fn key(mark: &Mark) -> Key {
    (mark.family == Family::V6, mark.mark.get())
}

/// Returns a mark as a listener: the mark replaces the address, and 4 or 6 replaces the port.
#[must_use]
pub fn listener(mark: &Mark) -> ListenerKey {
    let (ipv6, number) = key(mark);
    let number = Ipv6Addr::from(u128::from(number));
    (number.into(), if ipv6 { 6 } else { 4 }, 0)
}

/// The interface indexes of the veth pair for marked packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The device to which marked packets are routed.
    pub entry: u32,
    /// Its peer, where XDP receives the packets.
    pub exit: u32,
}
