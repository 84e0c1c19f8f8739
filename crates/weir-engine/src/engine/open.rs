//! Opens the engine: adopts the pinned data plane, or creates it.
//!
//! Program verification takes as long as all other steps combined, so it runs on its own thread.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use weir_abi::SETTINGS_SYNC;
use weir_dataplane::{Dataplane, OpenOptions, OpenOutcome, PinDir, Sizes, pinned_sizes};
use weir_defense::Defense;
use weir_model::{Desired, Indexed, Node};
use weir_planner::allocation::Allocation;
use weir_planner::row_set::{Changes, RowSet, rows};
use weir_state::{SavedServers, ServerStates};

use super::Engine;
use super::attach::{RESOLVE_TIMEOUT, attached};
use super::latency::LatencyMonitor;
use super::local_client::LocalClients;
use super::sync_index::Synchronizer;
use crate::adopt;
use crate::allocate::{allocate, now_ms};
use crate::clean::{clean_pinned, is_pinned};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::origin::Origin;
use crate::paths::Paths;
use crate::rate_estimate::RateEstimates;
use crate::reply_monitor::ReplyMonitor;
use crate::snapshot::Drift;
use crate::state::StateFile;
use crate::stored_state::{EngineState, StoredState};
use crate::vip::{Announcements, read_record, remove_record};
use crate::write::Writer;

/// State that can be read without the data plane.
#[derive(Debug)]
struct SavedState {
    file: StateFile,
    state: EngineState,
    servers: SavedServers,
    /// Whether there was no state file.
    is_file_missing: bool,
    /// The configuration with ipvsadm's services, or the error if they conflict.
    desired: Result<Indexed>,
    network: Network,
}

impl SavedState {
    async fn read(paths: &Paths, configured: &Desired) -> Result<Self> {
        let file = StateFile::new(&paths.runtime_dir);
        let content = file.read()?;
        let is_file_missing = content.is_none();
        let StoredState {
            engine: mut state,
            servers,
        } = content.unwrap_or_default();
        // Addresses that were added for proxy services before there was an engine.
        for entry in read_record(&paths.runtime_dir) {
            if !state.undo.addresses.contains(&entry) {
                state.undo.addresses.push(entry);
            }
        }
        let desired = merged(&state.origin, configured);
        let mut network = Network::open()?;
        network.refresh(addresses_of(&state, &desired)).await?;
        Ok(Self {
            file,
            state,
            servers,
            is_file_missing,
            desired,
            network,
        })
    }

    /// Reconciles the state with the data plane. Returns the configuration to activate, with its rows allocated.
    async fn reconcile(
        &mut self,
        plane: &Dataplane,
        opened: OpenOutcome,
        configured: &Desired,
        states: &ServerStates,
    ) -> Result<Indexed> {
        let state = &mut self.state;
        if opened == OpenOutcome::Fresh {
            state.allocation = Allocation::default();
            if state.origin != Origin::default() {
                state.origin = Origin::default();
                self.desired = merged(&state.origin, configured);
            }
        }
        let desired = std::mem::replace(&mut self.desired, Ok(Indexed::default()))?;
        if opened != OpenOutcome::Fresh && self.is_file_missing {
            tracing::warn!("the state file is missing: recovering rows from the pinned maps");
            state.allocation =
                adopt::recover_allocation(plane.maps(), &desired, plane.sizes().dests, now_ms())?;
        }
        let fingerprint = desired.fingerprint();
        if state.fingerprint != fingerprint {
            state.revision += 1;
            state.fingerprint = fingerprint;
        }
        let names = state.allocation.service_names(&desired);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        allocate(state, &desired, plane, &names, states)?;
        let network = &mut self.network;
        network
            .retain_servers(state.allocation.addresses().collect())
            .await?;
        network.adopt_marks(state.undo.marks.as_ref());
        network.set_attached(attached(plane)?);
        Ok(desired)
    }

    /// Plans all rows and persists the allocation.
    fn plan(
        &mut self,
        desired: &Indexed,
        dest_rows: u32,
        states: &ServerStates,
    ) -> Result<(RowSet, Changes)> {
        let (file, state) = (&self.file, &self.state);
        let (planned, text) = std::thread::scope(|scope| {
            let writing = scope.spawn(|| file.serialize(state, &states.saved_servers()));
            let network_state = self.network.network_state(state.allocation.addresses());
            let planned = rows(desired, &state.allocation, &network_state, dest_rows);
            (planned, writing.join())
        });
        let planned = planned?;
        let text = text.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.file.write_serialized(text?)?;
        Ok(planned)
    }
}

/// An engine that is being opened: the data plane is open, but the configuration is not applied yet.
#[derive(Debug)]
pub struct Opening<'a> {
    paths: &'a Paths,
    configured: &'a Desired,
    saved: SavedState,
    plane: Dataplane,
    opened: OpenOutcome,
    /// Reverts the startup if it fails.
    undo: StartupRollback,
}

/// Removes the data plane of a failed startup, unless it was pinned before.
#[derive(Debug)]
struct StartupRollback {
    /// Whether nothing was pinned before this startup.
    was_unpinned: bool,
    /// Addresses that were added before this startup.
    added: BTreeSet<(String, IpAddr)>,
}

impl StartupRollback {
    async fn revert(&self, paths: &Paths) {
        if self.was_unpinned
            && let Err(error) = clean_pinned(paths, &self.added).await
        {
            tracing::error!(%error, "the failed startup left a data plane behind: run `weir clean`");
        }
    }
}

impl<'a> Opening<'a> {
    /// Opens the pinned data plane, or creates it, and reads the state file. Returns the server states in the file: the
    /// caller must persist those that it needs before [`Self::finish`], which replaces the file. Must be called inside
    /// a tokio runtime, in the director's network namespace.
    ///
    /// # Errors
    /// Fails if another daemon uses the pin directory, the data plane cannot be opened, the network cannot be read, or
    /// a newer version wrote the state file. If no data plane was pinned before, none is pinned afterwards.
    pub async fn begin(paths: &'a Paths, configured: &'a Desired) -> Result<(Self, SavedServers)> {
        let pins = PinDir::new(&paths.pin_dir);
        // Without the claim, a rollback could remove the pins of another daemon that is starting.
        pins.claim(&paths.lock())?;
        let undo = StartupRollback {
            was_unpinned: !is_pinned(paths),
            added: read_record(&paths.runtime_dir),
        };
        // If the record is invalid, opening the data plane reports it.
        let pinned = pinned_sizes(&pins).ok().flatten();
        let required_sizes = sizes(&configured.node, pinned.as_ref());
        let pin_dir = paths.pin_dir.clone();
        // A thread inherits the namespaces of its creator.
        let opening = std::thread::spawn(move || open_plane(pin_dir, required_sizes));
        let saved = SavedState::read(paths, configured).await;
        let opened = opening.join();
        let opened = opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let both = saved.and_then(|saved| Ok((saved, opened?)));
        let (mut saved, (plane, opened)) = match both {
            Ok(both) => both,
            Err(error) => {
                undo.revert(paths).await;
                return Err(error);
            }
        };
        let servers = std::mem::take(&mut saved.servers);
        let opening = Self {
            paths,
            configured,
            saved,
            plane,
            opened,
            undo,
        };
        Ok((opening, servers))
    }

    /// Activates the configuration with the weights of `states`.
    ///
    /// # Errors
    /// Fails if the configuration cannot be applied, or the kernel rejects a change. A running data plane continues; if
    /// no data plane was pinned before, none is pinned afterwards.
    pub async fn finish(self, states: &ServerStates) -> Result<Engine> {
        // A fresh data plane has no services created with ipvsadm.
        let origin = (self.opened != OpenOutcome::Fresh).then_some(&self.saved.state.origin);
        if let Some(conflict) = origin.and_then(|it| it.listener_conflict(self.configured)) {
            self.cancel().await;
            return Err(Error::ListenerConflict(conflict));
        }
        self.finish_for_edits(states).await
    }

    /// Like [`Self::finish`], but for ipvsadm's edits without a daemon. Does not reject a stored ipvsadm service that
    /// conflicts with a proxy service: an earlier version may have stored it, and ipvsadm must be able to delete it.
    ///
    /// # Errors
    /// See [`Self::finish`].
    pub async fn finish_for_edits(self, states: &ServerStates) -> Result<Engine> {
        let Self {
            paths,
            configured,
            mut saved,
            plane,
            opened,
            undo,
        } = self;
        let activation = async {
            let desired = saved.reconcile(&plane, opened, configured, states).await?;
            let writer = Writer::adopt_maps(plane.maps())?;
            let (mut rows, pending) = saved.plan(&desired, plane.sizes().dests, states)?;
            // During an upgrade, the previous process sends changed flows until the handover.
            rows.settings.flags |= plane.maps().settings()?.flags & SETTINGS_SYNC;
            // The state file contains these addresses now.
            remove_record(&paths.runtime_dir)?;
            let mut engine = Engine {
                file: saved.file,
                pin_dir: paths.pin_dir.clone(),
                state: saved.state,
                desired,
                file_timeouts: configured.timeouts,
                network: saved.network,
                plane,
                writer,
                rows,
                local_clients: LocalClients::default(),
                pending,
                must_check_hops: true,
                is_network_stale: false,
                refreshed_at: Instant::now(),
                refresh_duration: Duration::ZERO,
                count_differences: BTreeMap::new(),
                announcements: Announcements::default(),
                defense: Defense::default(),
                last_withdrawal: Instant::now(),
                rate_estimates: RateEstimates::new(),
                reply_monitor: ReplyMonitor::default(),
                drain_watches: Mutex::default(),
                latency: LatencyMonitor::default(),
                sync: Synchronizer::default(),
                drift: Drift::default(),
                repair_failed: false,
                resolve_timeout: RESOLVE_TIMEOUT,
            };
            engine.deprecate_present_vips().await;
            engine.announce_present_vips()?;
            engine.commit().await?;
            Ok(engine)
        };
        let result = activation.await;
        if result.is_err() {
            undo.revert(paths).await;
        }
        result
    }

    /// Removes the data plane again if none was pinned before.
    pub async fn cancel(self) {
        let Self {
            paths,
            undo,
            plane,
            saved,
            ..
        } = self;
        drop((plane, saved));
        undo.revert(paths).await;
    }
}

impl Engine {
    /// Returns whether the pinned maps and the state file still belong to this engine. If not, another Weir process has
    /// begun to take over, and the engine must be reopened.
    pub fn is_current(&self) -> bool {
        self.file.is_own() && self.has_current_plane()
    }

    /// Returns whether no other Weir process has replaced the pinned maps and programs. Unlike [`Self::is_current`],
    /// this remains true if the other process has adopted them.
    pub fn has_current_plane(&self) -> bool {
        self.plane.is_current().unwrap_or(false)
    }

    /// Transfers counters to a Weir process that has replaced this engine's maps and could not copy the counters.
    pub fn transfer_counts(&self) {
        match self.plane.transfer_counts() {
            Ok(true) => tracing::info!("transferred the counters to the other process"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "failed to transfer the counters to the other process")
            }
        }
    }

    /// Detaches the tc programs from interfaces where the successor runs XDP but does not detach them.
    pub fn detach_tc(&self) {
        if let Err(error) = self.plane.detach_tc() {
            tracing::warn!(%error, "failed to detach a program from tc: `weir clean` removes it");
        }
    }
}

fn merged(origin: &Origin, configured: &Desired) -> Result<Indexed> {
    origin.merged_with(configured.clone()).map(Indexed::from)
}

/// Returns the addresses of the servers that have rows or will be assigned rows.
fn addresses_of(state: &EngineState, desired: &Result<Indexed>) -> BTreeSet<IpAddr> {
    let allocated = state.allocation.dests().map(|(_, dest)| dest.address);
    let desired = desired.as_ref().ok();
    let configured_servers = desired.into_iter().flat_map(|desired| {
        let pools = desired.services.iter();
        let pools = pools.filter_map(|service| desired.pool(&service.pool));
        pools.flat_map(|pool| pool.servers.iter().chain(&pool.sorry))
    });
    allocated
        .chain(configured_servers.map(|server| server.address))
        .collect()
}

pub(super) fn open_plane(pin_dir: PathBuf, sizes: Sizes) -> Result<(Dataplane, OpenOutcome)> {
    // Kernels before 5.11 charge maps to RLIMIT_MEMLOCK. Later kernels ignore it; a failure is detected in the next
    // step.
    let _ = weir_sys::raise_memlock();
    let dataplane = Dataplane::open(&OpenOptions {
        sizes,
        ..OpenOptions::new(pin_dir)
    })?;
    // Loading parses megabytes of kernel BTF, which are not needed afterwards.
    weir_sys::trim_heap();
    Ok(dataplane)
}

/// Returns the map sizes for the limits in the configuration, but at least the current sizes, because all current rows
/// may be in use. The header and spread table of a service need 67 elements, and each server up to ten more. During a
/// replacement, old and new elements exist at the same time.
pub(super) fn sizes(node: &Node, current: Option<&Sizes>) -> Sizes {
    let defaults = Sizes::default();
    let (min_services, min_dests) =
        current.map_or((0, 0), |current| (current.services, current.dests));
    let services = node.max_services.saturating_add(1).max(min_services);
    let dests = node.max_servers.saturating_add(1).min(weir_abi::DESTS_MAX);
    let dests = dests.max(min_dests);
    Sizes {
        services,
        dests,
        pool_rows: dests,
        elements: 8_192u32
            .saturating_add(services.saturating_mul(68))
            .saturating_add(dests.saturating_mul(10)),
        flows: node.max_flows,
        vips: defaults.vips.max(services),
        listeners: defaults.listeners.max(services.saturating_mul(4)),
        ..defaults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_an_empty_configuration_are_the_defaults() {
        assert_eq!(sizes(&Node::default(), None), Sizes::default());
    }

    #[test]
    fn data_plane_accepts_the_largest_limits_of_a_configuration() {
        let node = Node {
            max_flows: Node::MAX_FLOWS_RANGE.1,
            max_servers: Node::MAX_SERVERS_RANGE.1,
            max_services: Node::MAX_SERVICES_RANGE.1,
            ..Node::default()
        };
        sizes(&node, None).check().expect("sizes are out of range");
    }
}
