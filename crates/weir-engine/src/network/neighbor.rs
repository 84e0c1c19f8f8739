//! Makes the kernel keep next-hop neighbors on the routes to servers resolved.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_netlink::{Event, ManageOutcome, Neighbor, resolve};

use super::Network;
use super::last_mac::NextHopChange;
use crate::error::Result;

impl Network {
    /// Returns the servers that are reached through a neighbor.
    pub(crate) fn servers_behind(&self, device: u32, neighbor: IpAddr) -> Vec<IpAddr> {
        self.routes.servers_behind(device, neighbor).collect()
    }

    /// Returns the change that an event reports for a next hop of servers. Must be called before the event is applied.
    pub(crate) fn next_hop_change(&mut self, event: &Event) -> Option<NextHopChange> {
        let Event::Neighbor { neighbor, removed } = event else {
            return None;
        };
        let key = (neighbor.ifindex, neighbor.ip);
        self.routes.servers_behind(key.0, key.1).next()?;
        if let Some(previous) = self.state.neighbors.get(&key) {
            self.last_macs.add_unknown(previous);
        }
        self.last_macs.handle(neighbor, *removed)
    }

    /// Returns whether the routes to a server have a next hop other than this neighbor.
    pub(crate) fn has_other_next_hop(&self, server: IpAddr, neighbor: &Neighbor) -> bool {
        let paths = resolve(server, &self.state);
        let mut next_hops = paths
            .iter()
            .map(|path| (path.device, path.gateway.unwrap_or(server)));
        next_hops.any(|next_hop| next_hop != (neighbor.ifindex, neighbor.ip))
    }

    /// Makes the kernel keep new next-hop neighbors resolved. Returns the neighbors that the kernel did not keep
    /// resolved before, and whether there were new neighbors.
    pub(crate) async fn manage_neighbors(&mut self) -> (Vec<(u32, IpAddr)>, bool) {
        let next_hops: BTreeSet<(u32, IpAddr)> = self.routes.neighbors().collect();
        let mut added = Vec::new();
        let new: Vec<(u32, IpAddr)> = next_hops.difference(&self.managed).copied().collect();
        for (device, neighbor) in &new {
            match self.netlink.ensure_managed(*device, *neighbor).await {
                Ok(ManageOutcome::Added) => added.push((*device, *neighbor)),
                Ok(_) => {}
                // The kernel still resolves the neighbor when it sends the first packet.
                Err(error) => {
                    tracing::warn!(%error, "failed to keep a server's neighbor entry resolved")
                }
            }
        }
        self.managed = next_hops;
        (added, !new.is_empty())
    }

    /// Reads the neighbor table. Returns whether all next hops are resolved.
    ///
    /// # Errors
    /// Fails if the table cannot be read.
    pub(crate) async fn refresh_neighbors(&mut self) -> Result<bool> {
        let neighbors = self.netlink.neighbors().await?;
        self.state.neighbors = neighbors
            .into_iter()
            .map(|entry| ((entry.ifindex, entry.ip), entry))
            .collect();
        let is_resolved = |neighbor| {
            let neighbor_entry = self.state.neighbors.get(&neighbor);
            neighbor_entry.is_some_and(|neighbor_entry| neighbor_entry.usable_mac().is_some())
        };
        Ok(self.routes.neighbors().all(is_resolved))
    }
}
