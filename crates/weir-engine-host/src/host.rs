//! Executes requests on the engine, with a copy of the server states.

use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use weir_engine::snapshot::Layer4Snapshot;
use weir_engine::{Engine, Opening, Packet, Paths};
use weir_netlink::Event;
use weir_state::{SavedServers, ServerStates, StateCopy};
use weir_sys::SteadyClock;

use crate::flow_sync::FlowSynchronizer;
use crate::message::{
    ActiveState, AddedServer, Counters, ProbeId, Query, Reply, Request, SyncStatus, read_content,
};
use crate::permits::Permits;
use crate::policy::{AcceptedConfiguration, Policy};
use crate::probe::{self, ArpClaim};

/// Time between steps of flow synchronization while no engine is active.
const SYNC_PAUSE: Duration = Duration::from_millis(50);

/// Minimum number of servers in a part of a snapshot, except in the last part. All servers of a service are in the
/// same part.
const PART_SERVERS: usize = 8_192;

/// The engine, and the copy of the server states that it uses.
#[derive(Debug)]
pub(crate) struct Host {
    paths: Paths,
    policy: Policy,
    engine: Option<Engine>,
    states: ServerStates,
    sync: FlowSynchronizer,
    permits: Permits,
    /// See [`Request::Pause`].
    is_paused: bool,
}

fn failure_reply(error: &impl Display) -> Reply {
    Reply::Failed {
        reason: error.to_string(),
    }
}

/// Logs the reason and returns a refusal.
fn refuse(reason: String) -> Reply {
    tracing::error!(reason, "refused a request from the daemon");
    Reply::Refused { reason }
}

fn active_state(engine: &Engine) -> ActiveState {
    ActiveState {
        revision: engine.revision(),
        added_vips: engine.added_vips().to_vec(),
        is_attached: engine.is_attached(),
        smallest_mtu: engine.smallest_mtu(),
        origin: engine.origin().clone(),
    }
}

/// The exchange with the daemon between the two phases of opening the engine.
pub(crate) trait OpenHandshake {
    /// Replies to [`Request::Begin`], and waits for the server states; `None` = the daemon has canceled or exited, or
    /// sent an invalid request.
    fn receive_states(&mut self, saved: SavedServers) -> impl Future<Output = Option<StateCopy>>;
}

impl Host {
    pub(crate) fn new(paths: Paths, policy: Policy) -> Self {
        Self {
            permits: Permits::new(&paths.runtime_dir),
            paths,
            policy,
            engine: None,
            states: ServerStates::default(),
            sync: FlowSynchronizer::default(),
            is_paused: false,
        }
    }

    /// Opens the engine. A previous engine of this process is dropped first: the new engine adopts its pinned data
    /// plane.
    pub(crate) async fn open(
        &mut self,
        added: Vec<AddedServer>,
        address_digest: Option<u64>,
        files: Vec<OwnedFd>,
        handshake: &mut impl OpenHandshake,
    ) -> Reply {
        let accepted = match self.accept(files, address_digest) {
            Ok(accepted) => accepted,
            Err(reason) => return refuse(reason),
        };
        let desired = match accepted.with_list_servers(added) {
            Ok(desired) => desired,
            Err(reason) => return refuse(reason),
        };
        let sync = match accepted.sync() {
            Ok(sync) => sync,
            Err(reason) => return failure_reply(&reason),
        };
        weir_runtime_dir::share(&self.paths.runtime_dir);
        self.engine = None;
        let (opening, saved) = match Opening::begin(&self.paths, &desired).await {
            Ok(begun) => begun,
            Err(error) => return failure_reply(&error),
        };
        let Some(states) = handshake.receive_states(saved).await else {
            opening.cancel().await;
            return Reply::Done;
        };
        self.states.adopt_copy(states);
        let engine = match opening.finish(&self.states).await {
            Ok(engine) => engine,
            Err(error) => return failure_reply(&error),
        };
        self.states
            .handle_configuration(engine.desired().pools.iter());
        let reply = Reply::Active(active_state(&engine));
        self.permits.serve(&engine.desired().node);
        self.engine = Some(engine);
        self.is_paused = false;
        self.sync.configure(sync.as_ref());
        self.sync.set_listeners(accepted.proxy_listeners());
        self.policy.set_active(accepted);
        reply
    }

    fn accept(
        &mut self,
        files: Vec<OwnedFd>,
        address_digest: Option<u64>,
    ) -> Result<Arc<AcceptedConfiguration>, String> {
        let Some(file) = files.into_iter().next() else {
            let active = self.policy.active();
            return active.ok_or_else(|| "the configuration is missing".to_owned());
        };
        let text = read_content(file).map_err(|error| error.to_string())?;
        let accepted = self.policy.accept(text)?;
        accepted.check_addresses(address_digest)?;
        Ok(accepted)
    }

    /// Executes any request except those that open the engine and [`Request::ClaimsVip`] for an existing probe. `send`
    /// sends all parts of the reply but the last.
    pub(crate) async fn execute(
        &mut self,
        request: Request,
        files: Vec<OwnedFd>,
        send: &mut impl FnMut(&Reply),
    ) -> Reply {
        if self.engine.is_none() {
            return Reply::NotOpen;
        }
        let reply = match request {
            Request::Begin { .. } | Request::Finish { .. } | Request::Cancel => {
                failure_reply(&"this request is out of sequence")
            }
            Request::Apply {
                added,
                states,
                address_digest,
            } => self.apply(added, states, files, address_digest).await,
            Request::Edit { edits } => self.edit(&edits).await,
            Request::Weights { pools, states } => self.apply_weights(&pools, states),
            Request::CopyOverride { record } => {
                self.with_engine(|engine, _| engine.copy_override(&record).map(|()| Reply::Done))
            }
            Request::Read(query) => self.read(&query, send),
            Request::AddProbe { id, forwarding } => {
                self.with_engine(|engine, _| Ok(probe::add(engine, id, forwarding)))
            }
            Request::RemoveProbe(id) => self.with_engine(|engine, _| Ok(probe::remove(engine, id))),
            // For an existing probe, the caller handles this request in a separate thread, because it waits for the
            // server.
            Request::ClaimsVip(_) => failure_reply(&"the probe does not exist"),
            Request::Prepare => {
                self.policy.prepare();
                Reply::Done
            }
            Request::Pause => {
                self.is_paused = true;
                Reply::Done
            }
            Request::Resume => {
                self.is_paused = false;
                self.serve_permits();
                // Network events were discarded during the pause.
                self.network_event(&Event::Lost).await;
                Reply::Done
            }
            Request::Close => {
                self.engine = None;
                self.permits.close();
                self.sync.configure(None);
                Reply::Done
            }
            Request::IsCurrent => {
                self.with_engine(|engine, _| Ok(Reply::Current(engine.is_current())))
            }
            Request::TransferCounts => self.with_engine(|engine, _| {
                engine.transfer_counts();
                Ok(Reply::Done)
            }),
            Request::DetachTc => self.with_engine(|engine, _| {
                engine.detach_tc();
                Ok(Reply::Done)
            }),
        };
        // The daemon logs these changes.
        drop(self.states.take_pool_changes());
        reply
    }

    fn with_engine(
        &mut self,
        operation: impl FnOnce(&mut Engine, &ServerStates) -> weir_engine::Result<Reply>,
    ) -> Reply {
        match &mut self.engine {
            Some(engine) => {
                operation(engine, &self.states).unwrap_or_else(|error| failure_reply(&error))
            }
            None => Reply::NotOpen,
        }
    }

    /// Returns the parameters of the ARP request to a probe's server; `None` = the probe does not exist.
    pub(crate) fn claim_request(&self, id: ProbeId) -> Option<ArpClaim> {
        ArpClaim::for_probe(self.engine.as_ref()?, id)
    }

    async fn apply(
        &mut self,
        added: Vec<AddedServer>,
        states: StateCopy,
        files: Vec<OwnedFd>,
        address_digest: Option<u64>,
    ) -> Reply {
        let has_text = !files.is_empty();
        let accepted = match self.accept(files, address_digest) {
            Ok(accepted) => accepted,
            Err(reason) => return refuse(reason),
        };
        let desired = match accepted.with_list_servers(added) {
            Ok(desired) => desired,
            Err(reason) => return refuse(reason),
        };
        // Do not read the key file of `[sync]` again if only server lists have changed.
        let sync = match has_text.then(|| accepted.sync()).transpose() {
            Ok(sync) => sync,
            Err(reason) => return failure_reply(&reason),
        };
        let Some(engine) = &mut self.engine else {
            return Reply::NotOpen;
        };
        self.states.adopt_copy(states);
        if let Err(error) = engine.apply(&desired, &self.states).await {
            return failure_reply(&error);
        }
        self.states
            .handle_configuration(engine.desired().pools.iter());
        let reply = Reply::Active(active_state(engine));
        self.permits.serve(&engine.desired().node);
        if let Some(sync) = sync {
            self.sync.configure(sync.as_ref());
            self.sync.set_listeners(accepted.proxy_listeners());
        }
        self.policy.set_active(accepted);
        reply
    }

    async fn edit(&mut self, edits: &[weir_ipvsadm::Edit]) -> Reply {
        let Some(engine) = &mut self.engine else {
            return Reply::NotOpen;
        };
        match self.permits.take_permit(edits) {
            Ok(user) => tracing::debug!(user, edits = edits.len(), "accepted edits from ipvsadm"),
            Err(reason) => return refuse(reason),
        }
        if let Some(result) = self.sync.switch_daemon(edits) {
            return Reply::Edited {
                results: vec![result],
                active_state: active_state(engine),
            };
        }
        let before = engine.revision();
        let results = engine.edit_table(edits, &self.states).await;
        if engine.revision() != before {
            self.states
                .handle_configuration(engine.desired().pools.iter());
        }
        let active_state = active_state(engine);
        Reply::Edited {
            results,
            active_state,
        }
    }

    fn apply_weights(&mut self, pools: &[String], states: StateCopy) -> Reply {
        let Some(engine) = &mut self.engine else {
            return Reply::NotOpen;
        };
        let records = self.states.adopt_copy(states);
        let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
        for pool in pools.iter().filter_map(|pool| engine.desired().pool(pool)) {
            self.states.update_pool(pool);
        }
        let record_result = engine.record_health(records);
        match engine
            .apply_weights(&pools, &self.states)
            .and(record_result)
        {
            Ok(()) => Reply::Done,
            Err(error) => failure_reply(&error),
        }
    }

    /// Executes a query. `send` sends all parts of the reply but the last.
    fn read(&mut self, query: &Query, send: &mut impl FnMut(&Reply)) -> Reply {
        match query {
            Query::Active => self.with_engine(|engine, _| Ok(Reply::Active(active_state(engine)))),
            Query::Snapshot => self.with_engine(|engine, states| {
                let send_part = |services| send(&Reply::Services(services));
                let snapshot = engine.snapshot_in_parts(states, PART_SERVERS, send_part)?;
                Ok(Reply::Snapshot(Box::new(snapshot)))
            }),
            Query::Services => self.with_engine(|engine, states| {
                let snapshot = Layer4Snapshot {
                    services: engine.services(states)?,
                    ..Layer4Snapshot::default()
                };
                Ok(Reply::Snapshot(Box::new(snapshot)))
            }),
            Query::Listing => self.with_engine(|engine, _| Ok(Reply::Listing(engine.listing()?))),
            Query::Connections => {
                self.with_engine(|engine, _| Ok(Reply::Connections(engine.connections()?)))
            }
            Query::Timeouts => self.with_engine(|engine, _| Ok(Reply::Timeouts(engine.timeouts()))),
            Query::Explain { packet } => match packet.parse::<Packet>() {
                Ok(packet) => self.with_engine(|engine, states| {
                    let explained = engine.explain_packet(&packet, states)?;
                    Ok(Reply::Explained(explained))
                }),
                Err(error) => failure_reply(&error),
            },
            Query::LiveFlows { service, server } => self.with_engine(|engine, _| {
                let flows = engine.live_flows(service, server.as_deref());
                Ok(Reply::Numbers(flows, 0))
            }),
            Query::ConnectionsOf { pool, server } => self.with_engine(|engine, _| {
                let (open, closed) = engine.connections_of(pool, server)?;
                Ok(Reply::Numbers(open, closed))
            }),
            Query::Handshakes => self.with_engine(|engine, states| {
                let handshakes = engine.read_handshakes(states)?.into_iter();
                let now = SteadyClock::of_process().now();
                let counters = handshakes.map(|handshakes| {
                    let (pool_samples, silent) = handshakes.into_parts();
                    let silent = silent.into_iter();
                    let silent_for =
                        silent.map(|(index, since)| (index, now.saturating_sub(since)));
                    Counters {
                        silent_for: silent_for.collect(),
                        ..counters(pool_samples)
                    }
                });
                Ok(Reply::Handshakes(counters.collect()))
            }),
            Query::Sync => {
                let engine = self.engine.as_ref();
                let (moving, joining) = (self.sync.is_moving(engine), self.sync.is_joining(engine));
                Reply::Sync(self.sync.status().map(|status| SyncStatus {
                    moving,
                    joining,
                    ..status
                }))
            }
            Query::Probe(id) => self.with_engine(|engine, _| Ok(probe::read(engine, *id))),
            Query::Latencies => self.with_engine(|engine, _| {
                let adjusted = engine.adjust_weights();
                let pool_samples = engine.read_latency_counts().into_iter();
                Ok(Reply::Latencies {
                    counters: pool_samples.map(counters).collect(),
                    adjusted,
                })
            }),
        }
    }

    /// Serves the socket for ipvsadm's edits, unless another process's engine may be active.
    fn serve_permits(&mut self) {
        if let Some(engine) = self.engine.as_ref().filter(|_| !self.is_paused) {
            self.permits.serve(&engine.desired().node);
        }
    }

    /// Returns the engine, unless another process's engine may be active.
    fn active_engine(&mut self) -> Option<(&mut Engine, &ServerStates)> {
        let engine = self.engine.as_mut().filter(|_| !self.is_paused)?;
        Some((engine, &self.states))
    }

    /// Handles a change to links, addresses, routes or neighbors.
    pub(crate) async fn network_event(&mut self, event: &Event) {
        self.sync.network_event(event);
        if let Some((engine, _)) = self.active_engine()
            && let Err(error) = engine.network_event(event).await
        {
            tracing::warn!(%error, "failed to handle a netlink event");
        }
    }

    /// Runs the engine's periodic maintenance. Called once per second.
    pub(crate) async fn tick(&mut self) {
        self.serve_permits();
        if let Some((engine, states)) = self.active_engine()
            && let Err(error) = engine.tick(states).await
        {
            tracing::warn!(%error, "periodic maintenance failed");
        }
    }

    /// Checks for drift and repairs it. Called twice per second.
    pub(crate) async fn repair_drift(&mut self) {
        if let Some((engine, _)) = self.active_engine() {
            engine.repair_drift().await;
        }
    }

    /// Exchanges flows with other directors, even while a successor starts. Returns the time until the next call.
    pub(crate) fn synchronize(&mut self) -> Duration {
        match &mut self.engine {
            None => SYNC_PAUSE,
            Some(engine) if self.is_paused => self.sync.step_until_replaced(Some(engine)),
            Some(engine) => self.sync.step(Some(engine)),
        }
    }

    /// Publishes the costs that `least-time` uses. Returns the time until the next call; `None` = no engine is active,
    /// or publishing failed.
    pub(crate) fn publish_latency(&mut self) -> Option<Duration> {
        match self.active_engine()?.0.publish_latency() {
            Ok(pause) => Some(pause),
            Err(error) => {
                tracing::warn!(%error, "failed to publish latencies");
                None
            }
        }
    }
}

fn counters(pool_samples: weir_state::PoolSamples<'_>) -> Counters {
    Counters {
        service: pool_samples.service.unwrap_or_default().to_owned(),
        samples: pool_samples.samples,
        silent_for: Vec::new(),
    }
}
