//! Provides the layer 4 engine of a daemon: in this process, or in a privileged process if the daemon is unprivileged.
//!
//! Both variants have the same operations. The remote variant keeps a copy of the state that is derived from the active
//! configuration, so only changes and counters are sent through the channel.

use std::cell::RefCell;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use weir_engine::snapshot::Layer4Snapshot;
use weir_engine::{
    AdjustedWeights, Engine, Explanation, Handshakes, ListenerConflict, Packet, WeightChange,
    weight_change,
};
use weir_engine_host::{
    ActiveState, AddedServer, Counters, EngineClient, Failure, Query, Reply, Request, SyncStatus,
};
use weir_ipvsadm::{Connection, Edit, EditError, Listing, Timeouts};
use weir_model::{Desired, Indexed};
use weir_netlink::Event;
use weir_probing::PathTable;
use weir_state::{
    HealthEvent, HealthRecord, OverrideRecord, PoolSamples, SavedServers, ServerStates,
};
use weir_sys::{SteadyClock, sealed_file};

use super::Error;
use super::path::Paths;
use crate::plane::PlaneConfiguration;

/// The layer 4 engine, in this process or in a privileged process.
#[derive(Debug)]
pub(super) enum Layer4 {
    /// The engine is in this process, which is privileged.
    Local(Box<Engine>),
    /// The engine is in a separate privileged process.
    Remote(Box<RemoteEngine>),
}

/// An engine in a separate process.
#[derive(Debug)]
pub(super) struct RemoteEngine {
    client: EngineClient,
    /// The text of the active configuration.
    text: String,
    /// See [`PlaneConfiguration::added_servers`].
    added: Vec<AddedServer>,
    /// See [`address_digest`].
    address_digest: Option<u64>,
    /// The active configuration, without services created with ipvsadm.
    without_ipvsadm: Desired,
    /// The active configuration, with services created with ipvsadm.
    desired: Indexed,
    active_state: ActiveState,
    /// Check results that have not yet been sent to the other process.
    unsent_results: RefCell<Vec<HealthEvent>>,
}

/// Returns the error for a reply of the wrong kind.
fn unexpected<T>() -> Result<T, Error> {
    let reason = "the privileged layer 4 process sent an unexpected reply".to_owned();
    Err(Failure::Engine(reason).into())
}

fn merge(active_state: &ActiveState, configured: &Desired) -> Result<Indexed, Error> {
    Ok(Indexed::from(
        active_state.origin.merged_with(configured.clone())?,
    ))
}

fn text_file(text: &str) -> Result<std::os::fd::OwnedFd, Error> {
    sealed_file("weir-configuration", text.as_bytes()).map_err(|source| Error::File {
        path: "in-memory copy of the configuration".into(),
        source,
    })
}

/// Returns a digest of the addresses, which the engine process compares with its own digest; `None` = the text contains
/// no environment variables.
fn address_digest(text: &str, configured: &Desired) -> Option<u64> {
    text.contains("${")
        .then(|| weir_helper::address_digest(configured))
}

/// An engine that has opened its data plane but has not applied the configuration yet.
pub(super) struct RemoteOpening {
    client: EngineClient,
    text: String,
    added: Vec<AddedServer>,
    address_digest: Option<u64>,
    without_ipvsadm: Desired,
}

impl RemoteOpening {
    /// Begins opening the engine; see [`weir_engine::Opening::begin`].
    pub(super) fn begin(
        client: &EngineClient,
        plane_configuration: PlaneConfiguration<'_>,
    ) -> Result<(Self, SavedServers), Error> {
        let opening = Self {
            client: client.clone(),
            text: plane_configuration.text.to_owned(),
            added: plane_configuration.added_servers(),
            address_digest: address_digest(
                plane_configuration.text,
                plane_configuration.configured,
            ),
            without_ipvsadm: plane_configuration.desired.clone(),
        };
        let saved = opening.send_begin()?;
        Ok((opening, saved))
    }

    fn send_begin(&self) -> Result<SavedServers, Error> {
        let file = text_file(&self.text)?;
        let begin = Request::Begin {
            added: self.added.clone(),
            address_digest: self.address_digest,
        };
        match self.client.request(&begin, &[file.as_fd()])? {
            Reply::Begun { saved } => Ok(saved),
            _ => unexpected(),
        }
    }

    /// Cancels opening the engine; see [`weir_engine::Opening::cancel`].
    pub(super) fn cancel(self) {
        if let Err(error) = self.client.request(&Request::Cancel, &[]) {
            tracing::warn!(%error, "failed to cancel the startup of layer 4");
        }
    }

    /// Completes opening the engine; see [`weir_engine::Opening::finish`].
    pub(super) fn finish(self, states: &ServerStates) -> Result<RemoteEngine, Error> {
        let states = states.to_copy();
        let Reply::Active(active_state) = self.client.request(&Request::Finish { states }, &[])?
        else {
            return unexpected();
        };
        Ok(RemoteEngine {
            client: self.client,
            text: self.text,
            added: self.added,
            address_digest: self.address_digest,
            desired: merge(&active_state, &self.without_ipvsadm)?,
            without_ipvsadm: self.without_ipvsadm,
            active_state,
            unsent_results: RefCell::default(),
        })
    }
}

impl RemoteEngine {
    fn read(&self, query: Query) -> Result<Reply, Error> {
        Ok(self.client.request(&Request::Read(query), &[])?)
    }

    fn update(&mut self, active_state: ActiveState) -> Result<(), Error> {
        if active_state.origin != self.active_state.origin {
            self.desired = merge(&active_state, &self.without_ipvsadm)?;
        }
        self.active_state = active_state;
        Ok(())
    }

    fn apply(
        &mut self,
        plane_configuration: PlaneConfiguration<'_>,
        states: &ServerStates,
    ) -> Result<(), Error> {
        let added = plane_configuration.added_servers();
        let address_digest =
            address_digest(plane_configuration.text, plane_configuration.configured);
        let file =
            (plane_configuration.text != self.text).then(|| text_file(plane_configuration.text));
        let file = file.transpose()?;
        let files: Vec<BorrowedFd<'_>> = file.iter().map(AsFd::as_fd).collect();
        let request = Request::Apply {
            added,
            states: states.changes(self.unsent_results.take()),
            address_digest,
        };
        let pending = self.client.begin(&request, &files)?;
        // Compute the expected result while the other process works.
        let without_ipvsadm = plane_configuration.desired.clone();
        let expected = merge(&self.active_state, plane_configuration.desired);
        let Reply::Active(active_state) = pending.wait()? else {
            return unexpected();
        };
        let Request::Apply { added, .. } = request else {
            return unexpected();
        };
        let desired = if active_state.origin == self.active_state.origin {
            expected?
        } else {
            merge(&active_state, plane_configuration.desired)?
        };
        let previous = (
            std::mem::replace(&mut self.desired, desired),
            std::mem::replace(&mut self.without_ipvsadm, without_ipvsadm),
        );
        // Free the previous state on another thread, as the engine does, because freeing it takes as long as applying a
        // change.
        tokio::task::spawn_blocking(move || drop(previous));
        (self.active_state, self.added, self.address_digest) =
            (active_state, added, address_digest);
        plane_configuration.text.clone_into(&mut self.text);
        Ok(())
    }

    /// Opens the engine in a new privileged process after the previous one has exited.
    fn reopen(&mut self, states: &ServerStates) -> Result<(), Error> {
        let opening = RemoteOpening {
            client: self.client.clone(),
            text: self.text.clone(),
            added: self.added.clone(),
            address_digest: self.address_digest,
            without_ipvsadm: self.without_ipvsadm.clone(),
        };
        opening.send_begin()?;
        *self = opening.finish(states)?;
        tracing::info!("opened the layer 4 engine in a new privileged process");
        Ok(())
    }

    fn tick(&mut self, states: &ServerStates) -> Result<(), Error> {
        if self.client.is_lost() {
            return self.reopen(states);
        }
        match self.read(Query::Active)? {
            Reply::Active(active_state) => self.update(active_state),
            _ => unexpected(),
        }
    }

    fn apply_weights(&self, pools: &[&str], states: &ServerStates) -> Result<(), Error> {
        let request = Request::Weights {
            pools: pools.iter().map(|pool| (*pool).to_owned()).collect(),
            states: states.changes(self.unsent_results.take()),
        };
        match self.client.request(&request, &[])? {
            Reply::Done => Ok(()),
            _ => unexpected(),
        }
    }

    fn edit(&mut self, edits: &[Edit]) -> Result<Vec<Result<(), EditError>>, Error> {
        let edits = edits.to_vec();
        match self.client.request(&Request::Edit { edits }, &[])? {
            Reply::Edited {
                results,
                active_state,
            } => {
                self.update(active_state)?;
                Ok(results)
            }
            _ => unexpected(),
        }
    }

    /// Converts the engine's counters. Omits services that are not in the active configuration.
    fn handshakes_from_counters(&self, counters: Vec<Counters>) -> Vec<Handshakes<'_>> {
        let now = SteadyClock::of_process().now();
        let handshakes = counters.into_iter().filter_map(|service_counters| {
            let service = self.desired.service(&service_counters.service)?;
            let samples = PoolSamples {
                pool: self.desired.pool(&service.pool)?,
                service: Some(&service.name),
                samples: service_counters.samples,
            };
            let silent = service_counters.silent_for.into_iter();
            let silent = silent.map(|(index, duration)| (index, now.saturating_sub(duration)));
            Some(Handshakes::new(samples, silent.collect()))
        });
        handshakes.collect()
    }
}

/// The operations of [`Engine`].
impl Layer4 {
    pub(super) fn desired(&self) -> &Indexed {
        match self {
            Self::Local(engine) => engine.desired(),
            Self::Remote(remote) => &remote.desired,
        }
    }

    /// Returns the engine if it is in this process.
    pub(super) fn as_local(&mut self) -> Option<&mut Engine> {
        match self {
            Self::Local(engine) => Some(engine),
            Self::Remote(_) => None,
        }
    }

    pub(super) fn revision(&self) -> u64 {
        match self {
            Self::Local(engine) => engine.revision(),
            Self::Remote(remote) => remote.active_state.revision,
        }
    }

    pub(super) fn is_attached(&self) -> bool {
        match self {
            Self::Local(engine) => engine.is_attached(),
            Self::Remote(remote) => remote.active_state.is_attached,
        }
    }

    pub(super) fn smallest_mtu(&self) -> Option<u32> {
        match self {
            Self::Local(engine) => engine.smallest_mtu(),
            Self::Remote(remote) => remote.active_state.smallest_mtu,
        }
    }

    pub(super) fn added_vips(&self) -> &[(String, IpAddr)] {
        match self {
            Self::Local(engine) => engine.added_vips(),
            Self::Remote(remote) => &remote.active_state.added_vips,
        }
    }

    pub(super) fn path_table(&self) -> PathTable {
        match self {
            Self::Local(engine) => PathTable::Local(engine.probe_table()),
            Self::Remote(remote) => PathTable::Remote(Arc::new(Paths(remote.client.clone()))),
        }
    }

    /// Returns the status of flow synchronization by the other process.
    pub(super) fn sync_status(&self) -> Result<Option<SyncStatus>, Error> {
        match self {
            Self::Local(_) => Ok(None),
            Self::Remote(remote) => match remote.read(Query::Sync)? {
                Reply::Sync(status) => Ok(status),
                _ => unexpected(),
            },
        }
    }

    pub(super) fn listener_conflict(&self, desired: &Desired) -> Option<ListenerConflict> {
        match self {
            Self::Local(engine) => engine.listener_conflict(desired),
            Self::Remote(remote) => remote.active_state.origin.listener_conflict(desired),
        }
    }

    pub(super) fn weight_change(&self, edit: &Edit) -> Option<Result<WeightChange, EditError>> {
        weight_change(self.desired(), edit)
    }

    pub(super) async fn apply(
        &mut self,
        plane_configuration: PlaneConfiguration<'_>,
        states: &ServerStates,
    ) -> Result<(), Error> {
        match self {
            Self::Local(engine) => Ok(engine
                .apply(plane_configuration.desired, states)
                .await
                .map(drop)?),
            Self::Remote(remote) => remote.apply(plane_configuration, states),
        }
    }

    pub(super) fn apply_weights(
        &mut self,
        pools: &[&str],
        states: &ServerStates,
    ) -> Result<(), Error> {
        match self {
            Self::Local(engine) => Ok(engine.apply_weights(pools, states)?),
            Self::Remote(remote) => remote.apply_weights(pools, states),
        }
    }

    /// Queues check results for the other process; the next [`Self::apply_weights`] sends them.
    pub(super) fn queue_results(&self, events: &[HealthEvent]) {
        if let Self::Remote(remote) = self {
            remote.unsent_results.borrow_mut().extend_from_slice(events);
        }
    }

    /// Records check results. The other process records the results when it receives them.
    pub(super) fn record_health(&mut self, records: Vec<HealthRecord>) -> Result<(), Error> {
        match self {
            Self::Local(engine) => Ok(engine.record_health(records)?),
            Self::Remote(_) => Ok(()),
        }
    }

    pub(super) fn copy_override(&mut self, record: &OverrideRecord) -> Result<(), Error> {
        match self {
            Self::Local(engine) => Ok(engine.copy_override(record)?),
            Self::Remote(remote) => {
                let record = record.clone();
                Ok(remote
                    .client
                    .request(&Request::CopyOverride { record }, &[])
                    .map(drop)?)
            }
        }
    }

    /// Executes edits from ipvsadm.
    pub(super) async fn edit_table(
        &mut self,
        edits: &[Edit],
        states: &ServerStates,
    ) -> Vec<Result<(), EditError>> {
        match self {
            Self::Local(engine) => engine.edit_table(edits, states).await,
            Self::Remote(_) if edits.is_empty() => Vec::new(),
            Self::Remote(remote) => remote.edit(edits).unwrap_or_else(|error| {
                let error = EditError::Message(error.to_string());
                vec![Err(error); edits.len()]
            }),
        }
    }

    pub(super) fn listing(&self) -> Result<Listing, Error> {
        match self {
            Self::Local(engine) => Ok(engine.listing()?),
            Self::Remote(remote) => match remote.read(Query::Listing)? {
                Reply::Listing(listing) => Ok(listing),
                _ => unexpected(),
            },
        }
    }

    pub(super) fn connections(&self) -> Result<Vec<Connection>, Error> {
        match self {
            Self::Local(engine) => Ok(engine.connections()?),
            Self::Remote(remote) => match remote.read(Query::Connections)? {
                Reply::Connections(connections) => Ok(connections),
                _ => unexpected(),
            },
        }
    }

    pub(super) fn timeouts(&self) -> Result<Timeouts, Error> {
        match self {
            Self::Local(engine) => Ok(engine.timeouts()),
            Self::Remote(remote) => match remote.read(Query::Timeouts)? {
                Reply::Timeouts(timeouts) => Ok(timeouts),
                _ => unexpected(),
            },
        }
    }

    pub(super) fn snapshot(&self, states: &ServerStates) -> Result<Layer4Snapshot, Error> {
        match self {
            Self::Local(engine) => Ok(engine.snapshot(states)?),
            Self::Remote(remote) => match remote.read(Query::Snapshot)? {
                Reply::Snapshot(snapshot) => Ok(*snapshot),
                _ => unexpected(),
            },
        }
    }

    /// Returns only the services of [`Self::snapshot`].
    pub(super) fn services(&self, states: &ServerStates) -> Result<Layer4Snapshot, Error> {
        match self {
            Self::Local(engine) => Ok(Layer4Snapshot {
                services: engine.services(states)?,
                ..Layer4Snapshot::default()
            }),
            Self::Remote(remote) => match remote.read(Query::Services)? {
                Reply::Snapshot(snapshot) => Ok(*snapshot),
                _ => unexpected(),
            },
        }
    }

    pub(super) fn explain_packet(
        &self,
        packet: &Packet,
        states: &ServerStates,
    ) -> Result<Explanation, Error> {
        match self {
            Self::Local(engine) => Ok(engine.explain_packet(packet, states)?),
            Self::Remote(remote) => {
                let packet = packet.to_string();
                match remote.read(Query::Explain { packet })? {
                    Reply::Explained(explanation) => Ok(explanation),
                    _ => unexpected(),
                }
            }
        }
    }

    pub(super) fn live_flows(&self, service: &str, server: Option<&str>) -> u64 {
        match self {
            Self::Local(engine) => engine.live_flows(service, server),
            Self::Remote(remote) => {
                let query = Query::LiveFlows {
                    service: service.to_owned(),
                    server: server.map(str::to_owned),
                };
                match remote.read(query) {
                    Ok(Reply::Numbers(flows, _)) => flows,
                    _ => 0,
                }
            }
        }
    }

    pub(super) fn connections_of(&self, pool: &str, server: &str) -> Result<(u64, u64), Error> {
        match self {
            Self::Local(engine) => Ok(engine.connections_of(pool, server)?),
            Self::Remote(remote) => {
                let query = Query::ConnectionsOf {
                    pool: pool.to_owned(),
                    server: server.to_owned(),
                };
                match remote.read(query)? {
                    Reply::Numbers(open, closed) => Ok((open, closed)),
                    _ => unexpected(),
                }
            }
        }
    }

    /// Handles a network event. The other process receives network events itself.
    pub(super) async fn network_event(&mut self, event: &Event) -> Result<(), Error> {
        match self {
            Self::Local(engine) => Ok(engine.network_event(event).await?),
            Self::Remote(_) => Ok(()),
        }
    }

    /// Reverts changes that other programs have made in the kernel. The other process does this itself.
    pub(super) async fn repair_drift(&mut self) {
        if let Self::Local(engine) = self {
            engine.repair_drift().await;
        }
    }

    /// Publishes the costs of `least-time`. The other process does this itself.
    pub(super) fn publish_latency(&mut self) -> Result<Option<Duration>, Error> {
        match self {
            Self::Local(engine) => Ok(Some(engine.publish_latency()?)),
            Self::Remote(_) => Ok(None),
        }
    }

    pub(super) async fn tick(&mut self, states: &ServerStates) -> Result<(), Error> {
        match self {
            Self::Local(engine) => Ok(engine.tick(states).await?),
            Self::Remote(remote) => remote.tick(states),
        }
    }

    pub(super) fn read_handshakes(
        &mut self,
        states: &ServerStates,
    ) -> Result<Vec<Handshakes<'_>>, Error> {
        match self {
            Self::Local(engine) => Ok(engine.read_handshakes(states)?),
            Self::Remote(remote) if remote.client.is_lost() => Ok(Vec::new()),
            Self::Remote(remote) => match remote.read(Query::Handshakes)? {
                Reply::Handshakes(counters) => Ok(remote.handshakes_from_counters(counters)),
                _ => unexpected(),
            },
        }
    }

    /// Returns the weights that were adjusted because of the latency, and the numbers of responses within and above
    /// `max_latency`.
    pub(super) fn read_latency_counts(
        &mut self,
    ) -> Result<(Vec<AdjustedWeights>, Vec<PoolSamples<'_>>), Error> {
        match self {
            Self::Local(engine) => {
                let weights = engine.adjust_weights();
                Ok((weights, engine.read_latency_counts()))
            }
            Self::Remote(remote) => {
                if remote.client.is_lost() || !remote.uses_latencies() {
                    return Ok((Vec::new(), Vec::new()));
                }
                match remote.read(Query::Latencies)? {
                    Reply::Latencies { counters, adjusted } => {
                        let handshakes = remote.handshakes_from_counters(counters).into_iter();
                        Ok((
                            adjusted,
                            handshakes
                                .map(|handshakes| handshakes.into_parts().0)
                                .collect(),
                        ))
                    }
                    _ => unexpected(),
                }
            }
        }
    }

    pub(super) fn is_current(&self) -> bool {
        match self {
            Self::Local(engine) => engine.is_current(),
            Self::Remote(remote) => {
                let current = remote.client.request(&Request::IsCurrent, &[]);
                matches!(current, Ok(Reply::Current(true)))
            }
        }
    }

    pub(super) fn transfer_counts(&self) {
        match self {
            Self::Local(engine) => engine.transfer_counts(),
            Self::Remote(remote) => remote.send(&Request::TransferCounts),
        }
    }

    /// Makes the other process start reading the configuration file while this process also reads it.
    pub(super) fn preload_configuration(&self) {
        if let Self::Remote(remote) = self
            && let Err(error) = remote.client.begin(&Request::Prepare, &[])
        {
            tracing::debug!(%error, "failed to make the engine process preload the configuration file");
        }
    }

    /// Pauses the engine until [`Self::resume`], because a successor opens its own engine. An engine in this process
    /// acts only when called, so it needs no pause.
    pub(super) fn pause(&self) {
        if let Self::Remote(remote) = self {
            remote.send(&Request::Pause);
        }
    }

    /// Resumes the engine after the successor has failed.
    pub(super) fn resume(&self) {
        if let Self::Remote(remote) = self {
            remote.send(&Request::Resume);
        }
    }

    /// Closes the engine after the successor has taken over.
    pub(super) fn close(&self) {
        if let Self::Remote(remote) = self {
            remote.send(&Request::Close);
        }
    }

    pub(super) fn detach_tc(&self) {
        match self {
            Self::Local(engine) => engine.detach_tc(),
            Self::Remote(remote) => remote.send(&Request::DetachTc),
        }
    }
}

impl RemoteEngine {
    fn send(&self, request: &Request) {
        if let Err(error) = self.client.request(request, &[]) {
            tracing::warn!(%error, "failed to send a handover request to the layer 4 process");
        }
    }

    fn uses_latencies(&self) -> bool {
        let mut pools = self.desired.pools.iter();
        pools.any(|pool| pool.health.max_latency.is_some() || pool.adapt != weir_model::Adapt::None)
    }
}
