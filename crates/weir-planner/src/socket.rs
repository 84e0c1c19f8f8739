//! Plans the listeners for clients on this machine.
//!
//! These are the listeners of socket services and, with `balance_own`, of all other services.
//!
//! The BPF map is a longest-prefix-match (LPM) trie, so a lookup finds the most specific listener. A range of ports is
//! split into blocks with a common prefix; the empty prefix matches any port.

use std::collections::{BTreeMap, BTreeSet};

use weir_abi::{Be16, SOCKET_PREFIX_ANY, SOCKET_PREFIX_PORT, SOCKET_SCOPE_LOCAL, SocketListener};
use weir_model::{Desired, Listener, Ports, Service};

/// Number of bits in a port number.
const PORT_BITS: u32 = SOCKET_PREFIX_PORT - SOCKET_PREFIX_ANY;

/// A listener for local clients, as a sortable key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Number assigned to the service's cgroup, or [`SOCKET_SCOPE_LOCAL`] with `balance_own`.
    pub scope: u32,
    /// VIP in canonical form.
    pub addr: (u64, u64),
    /// IP protocol number.
    pub proto: u8,
    /// First port of the block.
    pub port: u16,
    /// Number of leading bits that the ports of the block share.
    pub bits: u32,
}

impl Key {
    /// Converts the listener to its key in the map.
    #[must_use]
    pub fn to_map_key(self) -> SocketListener {
        SocketListener {
            prefix: SOCKET_PREFIX_ANY + self.bits,
            scope: self.scope,
            addr: weir_abi::Addr {
                hi: self.addr.0,
                lo: self.addr.1,
            },
            proto: self.proto,
            port: Be16::new(self.port),
            ..SocketListener::ZERO
        }
    }

    /// Converts a key in the map to a listener.
    #[must_use]
    pub fn from_map_key(key: &SocketListener) -> Self {
        Self {
            scope: key.scope,
            addr: (key.addr.hi, key.addr.lo),
            proto: key.proto,
            port: key.port.get(),
            bits: key.prefix.saturating_sub(SOCKET_PREFIX_ANY),
        }
    }
}

/// Returns the cgroups of the socket services; `None` is the root of cgroup2.
#[must_use]
pub fn cgroups(desired: &Desired) -> BTreeSet<Option<&str>> {
    let sockets = desired.services.iter().filter(|service| is_socket(service));
    sockets.map(|service| service.cgroup.as_deref()).collect()
}

/// Returns whether any connections of local clients are balanced at connect().
#[must_use]
pub fn is_enabled(desired: &Desired) -> bool {
    desired.node.balance_own || desired.services.iter().any(is_socket)
}

/// Returns whether the service balances only connections of local clients, at connect().
#[must_use]
pub const fn is_socket(service: &Service) -> bool {
    !service.forward.handles_packets()
}

/// Maps each listener for local clients to the row of its service. `row` returns the row of a service, and `scope` the
/// number assigned to a cgroup.
pub fn listeners(
    desired: &Desired,
    row: impl Fn(&str) -> Option<u32>,
    scope: impl Fn(Option<&str>) -> Option<u32>,
) -> BTreeMap<Key, u32> {
    let mut rows = BTreeMap::new();
    for service in &desired.services {
        let scope = if is_socket(service) {
            scope(service.cgroup.as_deref())
        } else {
            desired.node.balance_own.then_some(SOCKET_SCOPE_LOCAL)
        };
        let (Some(scope), Some(row)) = (scope, row(&service.name)) else {
            continue;
        };
        let (exact, wide): (Vec<&Listener>, Vec<&Listener>) = service
            .listen
            .iter()
            .partition(|listener| matches!(listener.ports, Ports::One(_)));
        // An exact port takes precedence over a range, even over a block of the range that consists of only that port.
        for listener in wide {
            for (port, bits) in blocks(listener.ports) {
                rows.entry(key(scope, listener, port, bits)).or_insert(row);
            }
        }
        for listener in exact {
            for (port, bits) in blocks(listener.ports) {
                rows.insert(key(scope, listener, port, bits), row);
            }
        }
    }
    rows
}

fn key(scope: u32, listener: &Listener, port: u16, bits: u32) -> Key {
    let addr = weir_abi::Addr::from(listener.address);
    Key {
        scope,
        addr: (addr.hi, addr.lo),
        proto: listener.protocol.number(),
        port,
        bits,
    }
}

/// Divides ports into blocks. Returns the first port of each block, and the number of common leading bits.
fn blocks(ports: Ports) -> Vec<(u16, u32)> {
    let (mut first, last) = match ports {
        Ports::One(port) => (u32::from(port), u32::from(port)),
        Ports::Range(first, last) => (u32::from(first), u32::from(last)),
        Ports::Any => return vec![(0, 0)],
    };
    let mut blocks = Vec::new();
    while first <= last {
        let aligned_bits = first.trailing_zeros().min(PORT_BITS);
        let largest_fit_bits = (last - first + 1).ilog2();
        let block_bits = aligned_bits.min(largest_fit_bits);
        blocks.push((first as u16, PORT_BITS - block_bits));
        first += 1 << block_bits;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use weir_model::{Forward, Protocol};

    use super::*;

    fn contains(blocks: &[(u16, u32)], port: u16) -> bool {
        blocks
            .iter()
            .any(|(first, bits)| *bits == 0 || (first ^ port) >> (16 - bits) == 0)
    }

    #[test]
    fn blocks_cover_exactly_the_ports_of_a_range() {
        for (first, last) in [
            (1, 65_535),
            (8_000, 8_999),
            (80, 80),
            (81, 82),
            (65_535, 65_535),
        ] {
            let range_blocks = blocks(Ports::Range(first, last));
            for port in 0..=u16::MAX {
                assert_eq!(
                    contains(&range_blocks, port),
                    (first..=last).contains(&port),
                    "{port}"
                );
            }
            assert!(range_blocks.len() <= 30);
        }
        assert_eq!(blocks(Ports::Any), [(0, 0)]);
    }

    fn service(name: &str, forward: Forward, ports: Ports) -> Service {
        let mut service = Service::new(name, forward, "pool");
        service.listen.push(Listener {
            protocol: Protocol::Tcp,
            address: "192.0.2.10".parse().unwrap(),
            ports,
        });
        service
    }

    fn planned_listeners(desired: &Desired) -> Vec<(u32, u16, u32, u32)> {
        let row = |name: &str| name.parse().ok();
        let scope = |path: Option<&str>| Some(if path.is_some() { 2 } else { 1 });
        let rows = listeners(desired, row, scope);
        rows.iter()
            .map(|(key, row)| (key.scope, key.port, key.bits, *row))
            .collect()
    }

    #[test]
    fn exact_port_replaces_block_of_one_port() {
        let mut desired = Desired {
            services: vec![
                service("1", Forward::Socket, Ports::One(81)),
                service("2", Forward::Socket, Ports::Range(81, 82)),
            ],
            ..Desired::default()
        };
        assert_eq!(
            planned_listeners(&desired),
            [(1, 81, 16, 1), (1, 82, 16, 2)]
        );
        desired.services.reverse();
        assert_eq!(
            planned_listeners(&desired),
            [(1, 81, 16, 1), (1, 82, 16, 2)]
        );
    }

    #[test]
    fn other_services_are_included_with_balance_own() {
        let mut desired = Desired {
            services: vec![
                service("1", Forward::Nat, Ports::One(80)),
                service("2", Forward::Socket, Ports::One(81)),
            ],
            ..Desired::default()
        };
        desired.services[1].cgroup = Some("/one".to_owned());
        assert_eq!(planned_listeners(&desired), [(2, 81, 16, 2)]);
        assert!(is_enabled(&desired));
        let socket = desired.services.pop();
        assert!(!is_enabled(&desired) && cgroups(&desired).is_empty());
        desired.node.balance_own = true;
        assert!(is_enabled(&desired));
        desired.services.extend(socket);
        assert_eq!(
            planned_listeners(&desired),
            [(0, 80, 16, 1), (2, 81, 16, 2)]
        );
        assert_eq!(cgroups(&desired), BTreeSet::from([Some("/one")]));
    }

    #[test]
    fn key_round_trips_through_map_key() {
        let key = Key {
            scope: 3,
            addr: (1, 2),
            proto: 17,
            port: 53,
            bits: 16,
        };
        assert_eq!(Key::from_map_key(&key.to_map_key()), key);
    }
}
