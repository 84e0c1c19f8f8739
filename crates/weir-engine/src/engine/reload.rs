//! Replaces the active configuration: plans it, then writes it, and rolls back if writing fails.
//!
//! The cost depends only on the changes. A service with an unchanged configuration, pool and servers is not replanned:
//! its rows are not compared, and routes to its servers are not looked up.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_dataplane::Dataplane;
use weir_model::{Desired, Indexed};
use weir_planner::row_set::{Changes, RowSet, rows};
use weir_state::ServerStates;

use super::open::{open_plane, sizes};
use super::{ApplyOutcome, Engine, server_addresses};
use crate::allocate::allocate;
use crate::error::{Error, Result};
use crate::write::Writer;

/// A data plane with different map sizes, and its writer.
struct ReplacementPlane {
    plane: Dataplane,
    writer: Writer,
}

impl Engine {
    /// Applies a configuration.
    ///
    /// # Errors
    /// Fails if the configuration cannot be applied, or the kernel rejects a change. The previous configuration is then
    /// active again, but a server that the rejected configuration removed is now the last in its pool. After
    /// [`Error::RollbackFailed`], each service has one of the two configurations, and applying either of them again
    /// completes the change.
    pub async fn apply(
        &mut self,
        desired: &Desired,
        states: &ServerStates,
    ) -> Result<ApplyOutcome> {
        if let Some(conflict) = self.listener_conflict(desired) {
            return Err(Error::ListenerConflict(conflict));
        }
        let merged = self.state.origin.merged_with(desired.clone())?;
        let applied = self.apply_merged(merged, states).await?;
        self.file_timeouts = desired.timeouts;
        Ok(applied)
    }

    /// Returns the number of configurations that have been applied.
    pub const fn revision(&self) -> u64 {
        self.state.revision
    }

    /// Applies the merged configuration of the file and ipvsadm.
    pub(super) async fn apply_merged(
        &mut self,
        desired: Desired,
        states: &ServerStates,
    ) -> Result<ApplyOutcome> {
        let desired = Indexed::from(desired);
        let new_sizes = sizes(&desired.node, Some(self.plane.sizes()));
        let replacement = if new_sizes == *self.plane.sizes() {
            None
        } else {
            let (plane, _) = open_plane(self.pin_dir.clone(), new_sizes)?;
            Some(ReplacementPlane {
                writer: Writer::adopt_maps(plane.maps())?,
                plane,
            })
        };
        let touched = match replacement {
            Some(_) => self.state.allocation.service_names(&desired),
            None => to_owned_names(desired.changed_since(&self.desired)),
        };
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        let plane = replacement.as_ref().map_or(&self.plane, |it| &it.plane);
        let dest_rows = plane.sizes().dests;
        let previous = allocate(&mut self.state, &desired, plane, &touched, states)?;
        let new_dest_rows = replacement.is_some().then_some(dest_rows);
        match self.plan(&desired, &touched, new_dest_rows).await {
            Ok(None) => {}
            Ok(Some((rows, changes))) => (self.rows, self.pending) = (rows, changes),
            Err(error) => {
                self.state.allocation.restore(previous);
                return Err(error);
            }
        }
        if let Some(replacement) = replacement {
            self.writer = replacement.writer;
            self.plane = replacement.plane;
            self.local_clients.mark_programs_outdated();
            self.must_check_hops = true;
        }
        let previous_desired = std::mem::replace(&mut self.desired, desired);
        let previous_numbers = (self.state.revision, self.state.fingerprint);
        self.state.revision += 1;
        self.state.fingerprint = self.desired.fingerprint();
        let committed = match self.persist_changes(&previous) {
            Ok(()) => self.commit().await,
            Err(error) => Err(error),
        };
        if let Err(cause) = committed {
            (self.state.revision, self.state.fingerprint) = previous_numbers;
            return Err(match self.roll_back(previous_desired, states).await {
                Ok(()) => cause,
                Err(rollback) => Error::RollbackFailed {
                    cause: Box::new(cause),
                    rollback: Box::new(rollback),
                },
            });
        }
        // Freeing the names of a hundred thousand servers takes as long as the rest of the reload, so it runs in the
        // background.
        tokio::task::spawn_blocking(move || drop(previous_desired));
        Ok(ApplyOutcome {
            revision: self.state.revision,
        })
    }

    /// Looks up routes to new servers and plans rows. With `new_dest_rows`, plans all rows for a new data plane with
    /// this number of server rows; otherwise updates the rows of the touched services in place. On error, nothing
    /// changes.
    async fn plan(
        &mut self,
        desired: &Indexed,
        touched: &[&str],
        new_dest_rows: Option<u32>,
    ) -> Result<Option<(RowSet, Changes)>> {
        let moved_services = self.add_servers(touched).await?;
        self.network.interfaces(desired)?;
        self.network.vip_interface(desired)?;
        if let Some(dest_rows) = new_dest_rows {
            let allocation = &self.state.allocation;
            let network_state = self.network.network_state(allocation.addresses());
            return Ok(Some(rows(desired, allocation, &network_state, dest_rows)?));
        }
        let touched: Vec<&str> = touched
            .iter()
            .copied()
            .chain(moved_services.iter().map(String::as_str))
            .collect();
        let network_state = self
            .network
            .network_state(server_addresses(&self.state, &touched));
        let changes = self.rows.replan(
            desired,
            &self.state.allocation,
            &network_state,
            self.plane.sizes().dests,
            touched,
        )?;
        self.pending.extend(changes);
        Ok(None)
    }

    /// Looks up routes to the servers of some services. Returns the other services whose routes changed.
    async fn add_servers(&mut self, touched: &[&str]) -> Result<Vec<String>> {
        let servers = server_addresses(&self.state, touched);
        let update = self.network.update(servers).await?;
        if !update.is_full_refresh {
            return Ok(Vec::new());
        }
        self.must_check_hops = true;
        let already_planned: BTreeSet<&str> = touched.iter().copied().collect();
        let moved = self.services_at(&update.servers);
        Ok(moved
            .into_iter()
            .filter(|name| !already_planned.contains(name.as_str()))
            .collect())
    }

    /// Returns the names of the services that have a server at one of these addresses.
    pub(super) fn services_at(&self, addresses: &BTreeSet<IpAddr>) -> Vec<String> {
        if addresses.is_empty() {
            return Vec::new();
        }
        let services = self.state.allocation.services.iter();
        let affected = services.filter(|(_, slot)| {
            let mut dests = slot.dests.iter();
            dests.any(|dest| addresses.contains(&dest.address))
        });
        affected.map(|(name, _)| name.clone()).collect()
    }

    /// Restores the previous configuration after a new one has failed. Rows that the failed configuration allocated are
    /// removed like any other rows, because a packet may have bound a flow to them.
    async fn roll_back(&mut self, previous: Indexed, states: &ServerStates) -> Result<()> {
        let touched = to_owned_names(previous.changed_since(&self.desired));
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        self.desired = previous;
        let rejected = allocate(
            &mut self.state,
            &self.desired,
            &self.plane,
            &touched,
            states,
        )?;
        let moved = self.add_servers(&touched).await?;
        self.replan(&touched)?;
        self.replan(&moved.iter().map(String::as_str).collect::<Vec<_>>())?;
        self.persist_changes_if_possible(&rejected);
        self.commit().await
    }
}

fn to_owned_names(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}
