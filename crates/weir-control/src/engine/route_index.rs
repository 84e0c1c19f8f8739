//! Which devices and neighbours lead to the servers: kept as servers come and go, because asking each of them again
//! would cost a change as much as there are servers.
//!
//! Follows from the kernel's lookups and the links, not from what neighbours answer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_netlink::{NetState, resolve};

/// RouteIndex to servers by what they lead over.
#[derive(Clone, Debug, Default)]
pub(super) struct RouteIndex {
    /// RouteIndex over each port.
    ports: BTreeMap<u32, usize>,
    /// Servers behind each neighbour, by device and address.
    behind: BTreeMap<(u32, IpAddr), BTreeSet<IpAddr>>,
}

impl RouteIndex {
    /// Of these servers.
    pub(super) fn new<'a>(servers: impl Iterator<Item = &'a IpAddr>, state: &NetState) -> Self {
        let mut ways = Self::default();
        for server in servers {
            ways.add(*server, state);
        }
        ways
    }

    /// A server that came.
    pub(super) fn add(&mut self, server: IpAddr, state: &NetState) {
        for way in resolve(server, state) {
            *self.ports.entry(way.ifindex).or_default() += 1;
            if !way.local && way.smac.is_some() {
                let neighbour = (way.device, way.gateway.unwrap_or(server));
                self.behind.entry(neighbour).or_default().insert(server);
            }
        }
    }

    /// A server that goes, by the state that it was added with.
    pub(super) fn remove(&mut self, server: IpAddr, state: &NetState) {
        for way in resolve(server, state) {
            if let Some(count) = self.ports.get_mut(&way.ifindex) {
                *count -= 1;
                if *count == 0 {
                    self.ports.remove(&way.ifindex);
                }
            }
            let neighbour = (way.device, way.gateway.unwrap_or(server));
            if let Some(servers) = self.behind.get_mut(&neighbour) {
                servers.remove(&server);
                if servers.is_empty() {
                    self.behind.remove(&neighbour);
                }
            }
        }
    }

    /// Ports that frames for servers leave by.
    pub(super) fn ports(&self) -> impl Iterator<Item = u32> {
        self.ports.keys().copied()
    }

    /// Neighbours that lead to servers, by device and address.
    pub(super) fn neighbours(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.behind.keys().copied()
    }

    /// Servers behind a neighbour.
    pub(super) fn behind(&self, device: u32, neighbour: IpAddr) -> impl Iterator<Item = IpAddr> {
        let servers = self.behind.get(&(device, neighbour));
        servers.into_iter().flatten().copied()
    }
}
