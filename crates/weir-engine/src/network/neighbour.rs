//! The neighbours by which servers are reached, kept resolved by the kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_netlink::Managed;

use super::Network;
use crate::error::Result;

impl Network {
    /// Servers that are reached by a neighbour.
    pub(crate) fn servers_behind(&self, device: u32, neighbour: IpAddr) -> Vec<IpAddr> {
        self.routes.behind(device, neighbour).collect()
    }

    /// Asks the kernel to keep new next-hop neighbours resolved. Returns those that were not kept resolved before, and
    /// whether there were new ones.
    pub(crate) async fn manage_neighbours(&mut self) -> (Vec<(u32, IpAddr)>, bool) {
        let wanted: BTreeSet<(u32, IpAddr)> = self.routes.neighbours().collect();
        let mut added = Vec::new();
        let new: Vec<(u32, IpAddr)> = wanted.difference(&self.managed).copied().collect();
        for (device, neighbour) in &new {
            match self.netlink.ensure_managed(*device, *neighbour).await {
                Ok(Managed::Added) => added.push((*device, *neighbour)),
                Ok(_) => {}
                // The kernel still resolves it for the first packet.
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
    /// The table cannot be read.
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
