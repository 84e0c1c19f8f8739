//! The source address that this director would use towards a client of a peer, and with it the device.
//!
//! The kernel's routing is asked by connecting a datagram socket, which sends nothing.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use foldhash::fast::RandomState;
use weir_abi::ticks_from;

/// RFC 863.
const DISCARD_PORT: u16 = 9;
/// Routes may change: how long an answer is used.
const KEPT: Duration = Duration::from_secs(1);
/// Maximum number of cached answers; for further clients the kernel is queried each time.
const KEPT_MAX: usize = 1 << 16;

/// The source addresses towards clients of peers, cached.
#[derive(Debug, Default)]
pub(super) struct SourceAddresses {
    known: HashMap<IpAddr, Option<IpAddr>, RandomState>,
    /// When `known` was last emptied, in ticks.
    since: u32,
}

impl SourceAddresses {
    /// The address; `None` = there is no route. `now` is in ticks.
    pub(super) fn towards(&mut self, client: IpAddr, now: u32) -> Option<IpAddr> {
        if now.wrapping_sub(self.since) >= ticks_from(KEPT) {
            self.known.clear();
            self.since = now;
        }
        if let Some(known) = self.known.get(&client) {
            return *known;
        }
        let found = lookup(client);
        if self.known.len() < KEPT_MAX {
            self.known.insert(client, found);
        }
        found
    }
}

fn lookup(client: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match client {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((client, DISCARD_PORT)).ok()?;
    socket
        .local_addr()
        .ok()
        .map(|address: SocketAddr| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn answer_is_used_for_a_second() {
        let mut addresses = SourceAddresses::default();
        let second = ticks_from(KEPT);
        assert_eq!(addresses.towards(LOOPBACK, 5 * second), Some(LOOPBACK));
        let wrong = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        addresses.known.insert(LOOPBACK, wrong);
        assert_eq!(addresses.towards(LOOPBACK, 6 * second - 1), wrong);
        assert_eq!(addresses.towards(LOOPBACK, 6 * second), Some(LOOPBACK));
        assert!(weir_abi::ticks_to_duration(second) >= KEPT);
    }
}
