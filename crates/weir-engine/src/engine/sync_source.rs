//! Looks up the source address toward a synchronized flow's client, to find the device toward the client.
//!
//! Connecting a UDP socket makes the kernel select the address without sending a packet. The caller derives the device
//! from the address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use foldhash::fast::RandomState;
use weir_abi::ticks_from;

/// The discard port (RFC 863).
const DISCARD_PORT: u16 = 9;
/// How long a cached address is used; after that, the route may have changed.
const CACHE_DURATION: Duration = Duration::from_secs(1);
/// Maximum number of cached addresses; for further clients, the kernel is queried each time.
const MAX_CACHED_ADDRESSES: usize = 1 << 16;

/// A cache of source addresses toward the clients of synchronized flows.
#[derive(Debug, Default)]
pub(super) struct SourceAddresses {
    cached: HashMap<IpAddr, Option<IpAddr>, RandomState>,
    /// Tick at which `cached` was last emptied.
    emptied_at: u32,
}

impl SourceAddresses {
    /// Returns the source address toward `client`; `None` = there is no route. `now` is in ticks.
    pub(super) fn source_toward(&mut self, client: IpAddr, now: u32) -> Option<IpAddr> {
        if now.wrapping_sub(self.emptied_at) >= ticks_from(CACHE_DURATION) {
            self.cached.clear();
            self.emptied_at = now;
        }
        if let Some(cached) = self.cached.get(&client) {
            return *cached;
        }
        let found = lookup(client);
        if self.cached.len() < MAX_CACHED_ADDRESSES {
            self.cached.insert(client, found);
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
    fn cached_address_is_used_for_one_second() {
        let mut addresses = SourceAddresses::default();
        let second = ticks_from(CACHE_DURATION);
        assert_eq!(
            addresses.source_toward(LOOPBACK, 5 * second),
            Some(LOOPBACK)
        );
        let wrong = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        addresses.cached.insert(LOOPBACK, wrong);
        assert_eq!(addresses.source_toward(LOOPBACK, 6 * second - 1), wrong);
        assert_eq!(
            addresses.source_toward(LOOPBACK, 6 * second),
            Some(LOOPBACK)
        );
        assert!(weir_abi::ticks_to_duration(second) >= CACHE_DURATION);
    }
}
