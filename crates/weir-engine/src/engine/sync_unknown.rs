//! Adds servers that another director of the group has removed but that still have flows there.
//!
//! A director that starts after a server was removed has no record of the server. Without a row for the server, it
//! could not insert the server's flows, and they would break if routers moved them to this director. The server gets a
//! row but no new flows: it is added with weight 0 and removed again, so the tables of the group do not change. Only
//! servers that `[cluster.publish]` permits are added, and only to pools that the group has published.

use std::net::IpAddr;

use weir_model::{Desired, OnRemove};
use weir_state::ServerStates;
use weir_sync::Record;

use super::Engine;
use super::unknown_servers::{UnknownServers, server_of};
use crate::error::Result;

impl Engine {
    /// Queues a record for a server that this director does not have, if the server may be added. Returns whether the
    /// record was queued.
    pub(super) fn queue_unknown(&mut self, service_row: u32, record: &Record) -> bool {
        let mut slots = self.state.allocation.services.iter();
        let Some((name, _)) = slots.find(|(_, slot)| slot.row == service_row) else {
            return false;
        };
        let Some(pool) = self.desired.service(name).map(|service| &service.pool) else {
            return false;
        };
        let (address, port) = record.server;
        self.may_add(pool, address)
            && self.sync.unknown.add(
                (pool.clone(), address, Some(port).filter(|it| *it != 0)),
                record,
            )
    }

    /// Returns whether the group may publish a server with this address in this pool.
    fn may_add(&self, pool: &str, address: IpAddr) -> bool {
        let desired: &Desired = &self.desired;
        let publish = desired.cluster.as_ref().and_then(|it| it.publish.as_ref());
        desired.pool(pool).is_some_and(|pool| {
            desired.is_published(pool.source)
                && pool.on_remove == OnRemove::Keep
                && publish.is_some_and(|it| it.permits_server(address))
        })
    }

    /// Returns whether flows are waiting for servers that this director does not have.
    pub fn has_unknown_servers(&self) -> bool {
        !self.sync.unknown.servers.is_empty()
    }

    /// Adds the servers of the queued records and inserts their flows.
    pub(super) async fn add_unknown_servers(&mut self, states: &ServerStates) -> Result<()> {
        let UnknownServers { servers, records } = std::mem::take(&mut self.sync.unknown);
        if servers.is_empty() {
            return Ok(());
        }
        let previous = Desired::clone(&self.desired);
        let mut extended = previous.clone();
        for pool in &mut extended.pools {
            let added = servers.iter().filter(|(name, ..)| *name == pool.name);
            pool.servers.extend(added.map(server_of));
        }
        for (pool, address, _) in &servers {
            tracing::info!(pool, %address, "another director has flows bound to a removed server");
        }
        self.apply_merged(extended, states).await?;
        self.apply_merged(previous, states).await?;
        self.sync_insert(&records)
    }
}
