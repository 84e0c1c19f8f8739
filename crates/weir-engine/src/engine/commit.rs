//! Commits a plan: writes rows, attaches programs, updates VIPs, neighbors and firewall marks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use weir_abi::{DEVICE_REDIRECT, DEVICE_SEND, HOP_REDIRECT, HOP_SEND};
use weir_dataplane::Maps;
use weir_dataplane::migrate::MigrationResult;
use weir_planner::allocation::PreviousAllocation;
use weir_planner::row_set::Changes;

use super::{Engine, server_addresses};
use crate::error::Result;
use crate::journal::Record;
use crate::network::Hops;

impl Engine {
    /// Persists the undo record. Callers that know a change in advance must persist it before making it.
    pub(super) fn persist_undo(&mut self) -> Result<()> {
        self.file.append(&Record {
            undo: Some(self.state.undo.clone()),
            ..Record::default()
        })
    }

    /// Persists the differences between `previous` and the current allocation.
    pub(super) fn persist_changes(&mut self, previous: &PreviousAllocation) -> Result<()> {
        self.file.append(&self.changes_since(previous))
    }

    /// Persists the differences between `previous` and the current allocation. A failed write is retried later.
    pub(super) fn persist_changes_if_possible(&mut self, previous: &PreviousAllocation) {
        let changes = self.changes_since(previous);
        self.file.append_if_possible(&changes);
    }

    fn changes_since(&self, previous: &PreviousAllocation) -> Record {
        let changed = previous.changed(&self.state.allocation);
        Record::for_changes(&self.state, changed, previous.sharing_changed())
    }

    /// Brings maps, attachments and the network in line with the planned rows.
    pub(super) async fn commit(&mut self) -> Result<()> {
        self.withdraw_vips().await?;
        self.add_vips().await?;
        if self.manage_server_neighbors().await? {
            self.wait_for_neighbors().await?;
        }
        let receives_partial_before = self.network.xdp_receives_partial_checksums();
        let interfaces = self.network.interfaces(&self.desired)?;
        self.network
            .expect_attached(&interfaces, self.desired.node.attach);
        if self.network.xdp_receives_partial_checksums() != receives_partial_before {
            self.replan(&[])?;
        }
        self.prepare_local_clients()?;
        self.write_pending()?;
        self.activate_programs()?;
        self.finish_local_clients()?;
        self.destroy_sockets()?;
        let old = (self.network.attached.clone(), self.network.learns_clients());
        if let Err(error) = self.attach().await {
            return Err(self.explain_attach_error(error).await);
        }
        self.update_marks().await?;
        self.announce()?;
        // Where XDP can send depends on the attached devices and their modes.
        let refreshed = self.network.refresh_drivers().await?;
        let new = (&self.network.attached, self.network.learns_clients());
        if refreshed || (&old.0, old.1) != new {
            self.must_check_hops = true;
            self.rewrite(&[])?;
        }
        Ok(())
    }

    /// Activates the programs. If the size or layout of the flow table changed, migrates the flows.
    pub(super) fn activate_programs(&mut self) -> Result<()> {
        self.plane.activate()?;
        let MigrationResult { moved, lost } = self.plane.migrate_flows()?;
        if moved + lost > 0 {
            tracing::info!(moved, lost, "migrated the flows to a new table");
        }
        Ok(())
    }

    /// Replans the rows of some services and writes the differences.
    pub(super) fn rewrite(&mut self, touched: &[&str]) -> Result<()> {
        self.replan(touched)?;
        self.write_pending()
    }

    pub(super) fn replan(&mut self, touched: &[&str]) -> Result<()> {
        let network_state = self
            .network
            .network_state(server_addresses(&self.state, touched));
        let changes = self.rows.replan(
            &self.desired,
            &self.state.allocation,
            &network_state,
            self.plane.sizes().dests,
            touched.iter().copied(),
        )?;
        self.pending.extend(changes);
        Ok(())
    }

    /// Writes the planned rows. On failure, unwritten rows stay pending.
    pub(super) fn write_pending(&mut self) -> Result<()> {
        let maps = self.plane.maps();
        self.write_devices(maps)?;
        self.writer.write_servers(maps, &self.rows, &self.pending)?;
        if self.must_check_hops {
            self.write_all_hops()?;
        } else {
            for id in &self.pending.dests {
                // The row of a removed server still contains its address.
                let address = maps.dests.get(*id)?.addr.to_ip();
                write_hops(maps, *id, &self.network.hops(address))?;
            }
        }
        self.writer
            .write_services(maps, &self.rows, &self.pending, Instant::now(), &mut || {
                self.local_clients.write_listeners()
            })?;
        let index = &self.sync.index.services;
        let mut services = self.pending.services.iter();
        if services.any(|row| index.get(row).is_some_and(|it| it.is_computed)) {
            self.sync.recheck_buckets = maps.flows.buckets();
        }
        (self.pending, self.must_check_hops) = (Changes::default(), false);
        Ok(())
    }

    /// Writes the device rows that differ, and the MAC addresses of accepted frames.
    pub(super) fn write_devices(&self, maps: &Maps) -> Result<()> {
        maps.set_frame_addresses(&self.network.frame_addresses())?;
        let new_rows = self.network.devices();
        let current_rows: BTreeMap<u32, weir_abi::Device> =
            maps.devices.elements()?.into_iter().collect();
        for (ifindex, row) in new_rows
            .iter()
            .filter(|(ifindex, row)| current_rows.get(ifindex) != Some(row))
        {
            maps.devices.set(ifindex, row)?;
        }
        for ifindex in current_rows
            .keys()
            .filter(|ifindex| !new_rows.contains_key(ifindex))
        {
            maps.devices.remove(ifindex)?;
        }
        Ok(())
    }

    /// Writes the next hops of every server, including removed servers with flows, and the flags of next hops toward
    /// clients.
    pub(super) fn write_all_hops(&self) -> Result<()> {
        let mut hops = self.network.hop_batch();
        for address in self.state.allocation.addresses() {
            let hops = hops.hops_to(address);
            for id in self.state.allocation.rows_at(address) {
                write_hops(self.plane.maps(), *id, &hops)?;
            }
        }
        let devices = self.network.devices();
        let flags = |ifindex| {
            let device = devices.get(&ifindex).filter(|row| row.port == ifindex)?;
            Some(hop_flags(device.flags))
        };
        Ok(self.plane.maps().set_client_flags(flags)?)
    }

    /// Writes the next hops of the servers at an address.
    pub(super) fn write_hops_at(&self, address: IpAddr) -> Result<()> {
        let hops = self.network.hops(address);
        for id in self.state.allocation.rows_at(address) {
            write_hops(self.plane.maps(), *id, &hops)?;
        }
        Ok(())
    }
}

/// Converts device flags to next-hop flags.
const fn hop_flags(device: u32) -> u8 {
    let send = if device & DEVICE_SEND != 0 {
        HOP_SEND
    } else {
        0
    };
    let redirect = device & DEVICE_REDIRECT != 0;
    send | if redirect { HOP_REDIRECT } else { 0 }
}

/// Writes the next hops that differ.
fn write_hops(maps: &Maps, id: u32, hops: &Hops) -> Result<()> {
    for (slot, hop) in (0..).zip(hops) {
        let current = maps.hop(id, slot)?;
        if (current.link, current.dmac, current.smac) != (hop.link, hop.dmac, hop.smac) {
            maps.set_hop(id, slot, hop)?;
        }
    }
    Ok(())
}
