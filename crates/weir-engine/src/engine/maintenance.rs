//! Updates rows after network events, and runs tasks such as releasing unused rows once per second.

use std::time::{Duration, Instant};

use weir_netlink::Event;
use weir_planner::allocation::DestSlot;
use weir_state::ServerStates;

use super::Engine;
use super::sync_removed::RemovedServers;
use crate::error::Result;
use crate::journal::Record;
use crate::totals::totals;

/// Minimum interval between refreshes in a burst of route changes: a refresh looks up the route to every server.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);

impl Engine {
    /// Handles a change to links, addresses, routes or neighbors.
    ///
    /// # Errors
    /// Fails if the network cannot be read or rows cannot be written; the next tick retries.
    pub async fn network_event(&mut self, event: &Event) -> Result<()> {
        let next_hop_change = self.network.next_hop_change(event);
        let routes_changed = self.network.handle_event(event);
        if let Event::Link { .. } = event {
            // Do not wait for the refresh: a macvlan with VRRP's virtual MAC address receives packets once it has its
            // IP address. Until the refresh, the stack would reset balanced connections.
            let addresses = self.network.frame_addresses();
            self.plane.maps().set_frame_addresses(&addresses)?;
        }
        if routes_changed {
            self.is_network_stale = true;
            if self.refreshed_at.elapsed() >= REFRESH_INTERVAL.max(self.refresh_duration * 4) {
                return self.refresh().await;
            }
            return Ok(());
        }
        match event {
            Event::Neighbor { neighbor, .. } => {
                let servers = self.network.servers_behind(neighbor.ifindex, neighbor.ip);
                for server in servers {
                    self.write_hops_at(server)?;
                    if let Some(change) = next_hop_change {
                        self.report_next_hop(server, neighbor, change);
                    }
                }
            }
            Event::Link { .. } => {
                self.write_devices(self.plane.maps())?;
                self.write_all_hops()?;
            }
            Event::Address { .. } | Event::Route { .. } | Event::Lost => {}
        }
        Ok(())
    }

    /// Refreshes the view of the network and applies the result.
    async fn refresh(&mut self) -> Result<()> {
        self.refresh_network().await?;
        self.manage_server_neighbors().await?;
        self.write_pending()
    }

    /// Refreshes the view of the network and plans the rows that depend on it.
    pub(super) async fn refresh_network(&mut self) -> Result<()> {
        let started = Instant::now();
        let servers = self.state.allocation.addresses().collect();
        let changed_servers = self.network.refresh(servers).await?;
        self.refreshed_at = Instant::now();
        self.refresh_duration = started.elapsed();
        self.is_network_stale = false;
        self.must_check_hops = true;
        let services = self.services_at(&changed_servers);
        self.replan(&services.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Releases the rows of removed servers whose flows have ended, and checks for changes that cause no event. The
    /// caller runs it once per second.
    ///
    /// # Errors
    /// Fails if a map or the network cannot be read; the next tick retries.
    pub async fn tick(&mut self, states: &ServerStates) -> Result<()> {
        if self.is_network_stale {
            self.refresh().await?;
        }
        self.estimate_rates()?;
        self.add_unknown_servers(states).await?;
        self.release_rows()?;
        self.remove_stale_latencies();
        self.update_marks().await?;
        self.check_memory_pressure()?;
        self.withdraw_vips_if_due().await?;
        self.defend_vips()?;
        self.announce()?;
        self.writer.repair_shared_counts(
            self.plane.maps(),
            &self.rows,
            &mut self.count_differences,
        )?;
        self.writer.refresh_trees(self.plane.maps())?;
        self.release_local_clients()?;
        self.destroy_sockets()?;
        if self.network.refresh_drivers().await? {
            self.must_check_hops = true;
        }
        if self.must_check_hops || !self.pending.is_empty() {
            self.write_pending()?;
        }
        // A reload or an edit of the table may also have changed the pools.
        self.file.record_below_quorum(states.below_quorum());
        if self.file.must_be_rewritten() {
            self.file.rewrite(&self.state, &states.saved_servers());
        }
        Ok(())
    }

    /// Implements `drop_entry` modes 1 and 2.
    fn check_memory_pressure(&mut self) -> Result<()> {
        let ipvs = &self.desired.ipvs;
        let is_enabled = matches!(ipvs.drop_entry, 1 | 2);
        let is_short =
            is_enabled && free_pages().is_some_and(|pages| pages < ipvs.amemthresh.into());
        if is_short == self.network.memory_is_low {
            return Ok(());
        }
        self.network.memory_is_low = is_short;
        self.rewrite(&[])
    }

    fn release_rows(&mut self) -> Result<()> {
        let (maps, now) = (self.plane.maps(), Instant::now());
        let removed = &mut self.sync.removed;
        match self.desired.sync {
            Some(_) => removed.update(self.state.allocation.removed_dests(), now),
            None => *removed = RemovedServers::default(),
        }
        let removed = &self.sync.removed;
        let final_totals = |dest: &DestSlot| {
            if removed.must_keep(dest, now) {
                return None;
            }
            let live = maps.live(dest.id).ok()?;
            // A persistence entry that refers to this row becomes usable again if the server returns.
            (live.active == 0 && live.inactive == 0 && live.persistent == 0)
                .then(|| totals(maps, dest.id).ok())?
        };
        let allocation = &mut self.state.allocation;
        let released = allocation.release(&final_totals);
        if released.changed_services.is_empty() {
            return Ok(());
        }
        let unused_addresses = released.addresses.iter().copied();
        let unused_addresses =
            unused_addresses.filter(|address| allocation.rows_at(*address).is_empty());
        self.network.remove_servers(unused_addresses);
        // Peers' records must not refer to the freed rows.
        self.sync.index_version = None;
        // Clear the rows before the state file allows their reuse.
        self.writer.clear_dests(maps, &released.dests)?;
        let service_names: Vec<&str> = released
            .changed_services
            .iter()
            .map(String::as_str)
            .collect();
        let names = service_names.iter().copied();
        let record = Record::for_changes(&self.state, names, released.sharing_changed);
        self.file.append_if_possible(&record);
        self.rewrite(&service_names)
    }
}

/// Returns the amount of free memory, including buffers, in pages.
fn free_pages() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((kib("MemFree:")? + kib("Buffers:")?) * 1024 / rustix::param::page_size() as u64)
}
