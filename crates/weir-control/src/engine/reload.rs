//! Another configuration in place of the one in force: planned whole, then written, and taken back where writing fails.
//!
//! Costs what it changes. Services whose configuration, pool and servers are as before are not planned again, no row of
//! theirs is looked at, and no route to their servers is asked for.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_dataplane::Dataplane;
use weir_model::{Desired, Indexed};
use weir_planner::row_set::{Changes, RowSet, rows};
use weir_state::ServerStates;

use super::open::{open_plane, sizes};
use super::write::Writer;
use super::{Applied, Engine, Error, Result, addresses, allocate};

/// A data plane of another size, and what writes it.
struct Replaced {
    plane: Dataplane,
    writer: Writer,
}

impl Engine {
    /// Puts another configuration into force.
    ///
    /// # Errors
    /// The configuration cannot be had, or the kernel refuses a change: what was in force is in force again, except
    /// that a server which the refused configuration left out stands last in its pool's order of adding.
    /// [`Error::Halfway`]: the way back failed too; each service then has either configuration, whole, and applying
    /// again continues.
    pub async fn apply(&mut self, desired: &Desired, states: &ServerStates) -> Result<Applied> {
        let merged = self.memory.origin.merged(desired.clone())?;
        let applied = self.apply_merged(merged, states).await?;
        self.file_timeouts = desired.timeouts;
        Ok(applied)
    }

    /// Configurations that took effect.
    pub const fn revision(&self) -> u64 {
        self.memory.revision
    }

    /// The same of both origins' parts together.
    pub(super) async fn apply_merged(
        &mut self,
        desired: Desired,
        states: &ServerStates,
    ) -> Result<Applied> {
        let desired = Indexed::from(desired);
        let wanted = sizes(&desired.node, Some(self.plane.sizes()));
        let replaced = if wanted == *self.plane.sizes() {
            None
        } else {
            let (plane, _) = open_plane(self.pin_dir.clone(), wanted)?;
            Some(Replaced {
                writer: Writer::adopting(plane.maps())?,
                plane,
            })
        };
        let touched = match replaced {
            Some(_) => self.memory.allocation.service_names(&desired),
            None => owned(desired.changed_since(&self.desired)),
        };
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        let plane = replaced.as_ref().map_or(&self.plane, |it| &it.plane);
        let dest_rows = plane.sizes().dests;
        let former = allocate(&mut self.memory, &desired, plane, &touched, states)?;
        let whole = replaced.is_some().then_some(dest_rows);
        match self.plan(&desired, &touched, whole).await {
            Ok(None) => {}
            Ok(Some((rows, changes))) => (self.rows, self.pending) = (rows, changes),
            Err(error) => {
                self.memory.allocation.restore(former);
                return Err(error);
            }
        }
        if let Some(replaced) = replaced {
            self.writer = replaced.writer;
            self.plane = replaced.plane;
            self.hops_due = true;
        }
        let before = std::mem::replace(&mut self.desired, desired);
        let revision = (self.memory.revision, self.memory.fingerprint);
        self.memory.revision += 1;
        self.memory.fingerprint = self.desired.fingerprint();
        let settled = match self.remember(&former) {
            Ok(()) => self.settle().await,
            Err(error) => Err(error),
        };
        if let Err(cause) = settled {
            (self.memory.revision, self.memory.fingerprint) = revision;
            return Err(match self.put_back(before, states).await {
                Ok(()) => cause,
                Err(back) => Error::Halfway {
                    cause: Box::new(cause),
                    back: Box::new(back),
                },
            });
        }
        // Giving back the names of a hundred thousand servers takes as long as the rest; nobody has to wait for it.
        tokio::task::spawn_blocking(move || drop(before));
        Ok(Applied {
            revision: self.memory.revision,
        })
    }

    /// Asks the network about new servers and plans rows: all of them, for a data plane with that many rows of servers,
    /// or those of the touched services, in place. Nothing has changed after an error.
    async fn plan(
        &mut self,
        desired: &Indexed,
        touched: &[&str],
        whole: Option<u32>,
    ) -> Result<Option<(RowSet, Changes)>> {
        let moved = self.take_up(touched).await?;
        self.network.interfaces(desired)?;
        self.network.vip_interface(desired)?;
        if let Some(dest_rows) = whole {
            let allocation = &self.memory.allocation;
            let around = self.network.surroundings(allocation.addresses());
            return Ok(Some(rows(desired, allocation, &around, dest_rows)?));
        }
        let touched: Vec<&str> = touched
            .iter()
            .copied()
            .chain(moved.iter().map(String::as_str))
            .collect();
        let around = self.network.surroundings(addresses(&self.memory, &touched));
        let changes = self.rows.replan(
            desired,
            &self.memory.allocation,
            &around,
            self.plane.sizes().dests,
            touched,
        )?;
        self.pending.extend(changes);
        Ok(None)
    }

    /// Makes the servers of some services known to the network; answers which others it found on another way.
    async fn take_up(&mut self, touched: &[&str]) -> Result<Vec<String>> {
        let servers = addresses(&self.memory, touched);
        let update = self.network.update(servers).await?;
        if !update.whole {
            return Ok(Vec::new());
        }
        self.hops_due = true;
        let known: BTreeSet<&str> = touched.iter().copied().collect();
        let moved = self.services_at(&update.servers);
        Ok(moved
            .into_iter()
            .filter(|name| !known.contains(name.as_str()))
            .collect())
    }

    /// Services that have a server at one of these addresses.
    pub(super) fn services_at(&self, addresses: &BTreeSet<IpAddr>) -> Vec<String> {
        if addresses.is_empty() {
            return Vec::new();
        }
        let services = self.memory.allocation.services.iter();
        let there = services.filter(|(_, slot)| {
            let mut dests = slot.dests.iter();
            dests.any(|dest| addresses.contains(&dest.address))
        });
        there.map(|(name, _)| name.clone()).collect()
    }

    /// Brings a former configuration back after another one failed midway. Rows that the other one gave out are removed
    /// in the ordinary way: a packet may have bound a flow to them already.
    async fn put_back(&mut self, former: Indexed, states: &ServerStates) -> Result<()> {
        let touched = owned(former.changed_since(&self.desired));
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        self.desired = former;
        let refused = allocate(
            &mut self.memory,
            &self.desired,
            &self.plane,
            &touched,
            states,
        )?;
        let moved = self.take_up(&touched).await?;
        self.replan(&touched)?;
        self.replan(&moved.iter().map(String::as_str).collect::<Vec<_>>())?;
        self.remember(&refused)?;
        self.settle().await
    }
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}
