//! Indexes the devices and neighbors on the routes to servers.
//!
//! The index is updated as servers are added and removed: rebuilding it after each change would take time proportional
//! to the number of servers. It is derived from the kernel's route lookups and the links, not from the neighbor table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_netlink::{NetState, resolve};

/// The devices and neighbors on the routes to servers, with the number of servers that use each.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteIndex {
    /// Number of routes through each port.
    ports: BTreeMap<u32, usize>,
    /// Servers behind each neighbor, by device and address.
    servers_behind: BTreeMap<(u32, IpAddr), BTreeSet<IpAddr>>,
}

impl RouteIndex {
    /// Creates the index for these servers.
    pub(crate) fn new<'a>(servers: impl Iterator<Item = &'a IpAddr>, state: &NetState) -> Self {
        let mut index = Self::default();
        for server in servers {
            index.add(*server, state);
        }
        index
    }

    /// Adds a server.
    pub(crate) fn add(&mut self, server: IpAddr, state: &NetState) {
        for route in resolve(server, state) {
            *self.ports.entry(route.ifindex).or_default() += 1;
            if !route.local && route.smac.is_some() {
                let neighbor = (route.device, route.gateway.unwrap_or(server));
                self.servers_behind
                    .entry(neighbor)
                    .or_default()
                    .insert(server);
            }
        }
    }

    /// Removes a server. `state` must be the state that was passed when the server was added. Returns the neighbors
    /// that no server uses any more.
    pub(crate) fn remove(&mut self, server: IpAddr, state: &NetState) -> Vec<(u32, IpAddr)> {
        let mut unused = Vec::new();
        for route in resolve(server, state) {
            if let Some(count) = self.ports.get_mut(&route.ifindex) {
                *count -= 1;
                if *count == 0 {
                    self.ports.remove(&route.ifindex);
                }
            }
            let neighbor = (route.device, route.gateway.unwrap_or(server));
            if let Some(servers) = self.servers_behind.get_mut(&neighbor) {
                servers.remove(&server);
                if servers.is_empty() {
                    self.servers_behind.remove(&neighbor);
                    unused.push(neighbor);
                }
            }
        }
        unused
    }

    /// Returns the ports that send frames to servers.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u32> {
        self.ports.keys().copied()
    }

    /// Returns the next-hop neighbors on the routes to servers: device and address.
    pub(crate) fn neighbors(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.servers_behind.keys().copied()
    }

    /// Returns the servers behind a neighbor.
    pub(crate) fn servers_behind(
        &self,
        device: u32,
        neighbor: IpAddr,
    ) -> impl Iterator<Item = IpAddr> {
        let servers = self.servers_behind.get(&(device, neighbor));
        servers.into_iter().flatten().copied()
    }
}
