//! Makes the kernel keep next-hop neighbours on the routes to servers resolved.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_netlink::{Event, ManageOutcome, Neighbour, resolve};

use super::Network;
use super::last_mac::NextHopChange;
use crate::error::Result;

impl Network {
    /// Returns the servers that are reached through a neighbour.
    pub(crate) fn servers_behind(&self, device: u32, neighbour: IpAddr) -> Vec<IpAddr> {
        self.routes.servers_behind(device, neighbour).collect()
    }

    /// Returns the change that an event reports for a next hop of servers. Must be called before the event is applied.
    pub(crate) fn next_hop_change(&mut self, event: &Event) -> Option<NextHopChange> {
        let Event::Neighbour { neighbour, removed } = event else {
            return None;
        };
        let key = (neighbour.ifindex, neighbour.ip);
        self.routes.servers_behind(key.0, key.1).next()?;
        if let Some(previous) = self.state.neighbours.get(&key) {
            self.last_macs.add_unknown(previous);
        }
        self.last_macs.handle(neighbour, *removed)
    }

    /// Returns whether the routes to a server have a next hop other than this neighbour.
    pub(crate) fn has_other_next_hop(&self, server: IpAddr, neighbour: &Neighbour) -> bool {
        let paths = resolve(server, &self.state);
        let mut next_hops = paths
            .iter()
            .map(|path| (path.device, path.gateway.unwrap_or(server)));
        next_hops.any(|next_hop| next_hop != (neighbour.ifindex, neighbour.ip))
    }

    /// Makes the kernel keep new next-hop neighbours resolved. Returns the neighbours that the kernel did not keep
    /// resolved before, and whether there were new neighbours.
    pub(crate) async fn manage_neighbours(&mut self) -> (Vec<(u32, IpAddr)>, bool) {
        let wanted: BTreeSet<(u32, IpAddr)> = self.routes.neighbours().collect();
        let mut added = Vec::new();
        let new: Vec<(u32, IpAddr)> = wanted.difference(&self.managed).copied().collect();
        for (device, neighbour) in &new {
            match self.netlink.ensure_managed(*device, *neighbour).await {
                Ok(ManageOutcome::Added) => added.push((*device, *neighbour)),
                Ok(_) => {}
                // The kernel still resolves the neighbour when it sends the first packet.
                Err(error) => {
                    tracing::warn!(%error, "failed to keep a server's neighbour entry resolved")
                }
            }
        }
        self.managed = wanted;
        (added, !new.is_empty())
    }

    /// Reads the neighbour table. Returns whether all next hops are resolved.
    ///
    /// # Errors
    /// Fails if the table cannot be read.
    pub(crate) async fn refresh_neighbours(&mut self) -> Result<bool> {
        let neighbours = self.netlink.neighbours().await?;
        self.state.neighbours = neighbours
            .into_iter()
            .map(|entry| ((entry.ifindex, entry.ip), entry))
            .collect();
        let resolved = |neighbour| {
            let known = self.state.neighbours.get(&neighbour);
            known.is_some_and(|known| known.usable_mac().is_some())
        };
        Ok(self.routes.neighbours().all(resolved))
    }
}
