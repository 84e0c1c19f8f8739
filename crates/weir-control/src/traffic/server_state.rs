//! Applies changes to server states (overrides, check results and ejections) to both planes.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_health::{Ejection, Transition};
use weir_ipvsadm::{Edit, EditError};
use weir_model::{Desired, OnRemove, Pool};
use weir_state::{
    Driver, EjectionEvent, HealthEvent, Override, OverrideError, OverrideRecord, Overrides,
    ServerStates, ServerUpdate, Source,
};
use weir_sys::SteadyClock;

use super::layer4::Layer4;
use super::{Error, Traffic};
use crate::override_file::OverrideStore;

/// The planes and the file to which an override is applied.
pub(super) struct Planes<'a> {
    pub(super) engine: Option<&'a mut Layer4>,
    /// The proxy; `None` = no daemon is running.
    pub(super) proxy: Option<&'a mut weir_proxy::Proxy>,
    pub(super) desired: &'a Desired,
    pub(super) override_store: &'a OverrideStore,
}

impl Driver for Planes<'_> {
    type Error = Error;

    fn record(&mut self, overrides: &Overrides) -> Result<(), Error> {
        let result = self.override_store.write(overrides);
        result.map_err(|source| Error::File {
            path: self.override_store.path().to_owned(),
            source,
        })
    }

    fn apply(&mut self, pool: &str, states: &mut ServerStates) -> Result<(), Error> {
        let engine = self.engine.as_deref_mut();
        let proxy = self.proxy.as_deref_mut();
        apply_weights(engine, proxy, self.desired, states, &[pool])
    }

    fn copy(&mut self, record: &OverrideRecord) {
        if let Some(engine) = &mut self.engine
            && let Err(error) = engine.copy_override(record)
        {
            tracing::warn!(%error, "failed to write an override's copy for older versions to state.json");
        }
    }
}

impl Planes<'_> {
    /// Sets or removes a server's override in both planes.
    pub(super) fn set_override(
        &mut self,
        states: &mut ServerStates,
        (pool, server): (&str, &str),
        update: ServerUpdate,
    ) -> Result<(), Error> {
        self.check_override(pool, server, update)?;
        match states.change_override((pool, server), update.0, now(), self) {
            Ok(_) => Ok(()),
            Err(OverrideError::Record(error) | OverrideError::Apply(error)) => Err(error),
            Err(OverrideError::RollbackFailed { cause, rollback }) => Err(Error::RollbackFailed {
                cause: Box::new(cause),
                rollback: Box::new(rollback),
            }),
        }
    }

    /// Returns an error if the server does not exist or the weight is too large.
    fn check_override(&self, pool: &str, server: &str, update: ServerUpdate) -> Result<(), Error> {
        let exists = pool_of(self.engine.as_deref(), self.desired, pool).is_some_and(|pool| {
            let mut servers = pool.servers.iter().chain(&pool.sorry);
            servers.any(|candidate| candidate.name == server)
        });
        if !exists {
            return Err(Error::Engine(weir_engine::Error::NoServer {
                pool: pool.to_owned(),
                server: server.to_owned(),
            }));
        }
        match update.0 {
            Some(Override::Weight(weight)) if weight > weir_model::MAX_WEIGHT => {
                Err(Error::Engine(weir_engine::Error::Weight {
                    weight,
                    limit: weir_model::MAX_WEIGHT,
                }))
            }
            _ => Ok(()),
        }
    }

    /// Executes edits from ipvsadm. The weights that ipvsadm sets for servers in the file become overrides, as with
    /// `weir server`.
    pub(super) async fn edit_table(
        &mut self,
        states: &mut ServerStates,
        edits: &[Edit],
    ) -> Vec<Result<(), EditError>> {
        let (mut results, mut engine_edits) = (Vec::with_capacity(edits.len()), Vec::new());
        for edit in edits {
            let engine = self.engine.as_deref();
            results.push(match engine.and_then(|engine| engine.weight_change(edit)) {
                Some(Ok(change)) => {
                    let server = (change.pool.as_str(), change.server.as_str());
                    let applied = self.set_override(states, server, ServerUpdate(change.wanted));
                    Some(applied.map_err(|error| EditError::Message(error.to_string())))
                }
                Some(Err(error)) => Some(Err(error)),
                None => {
                    engine_edits.push(edit.clone());
                    None
                }
            });
        }
        let Some(engine) = &mut self.engine else {
            return Vec::new();
        };
        let before = engine.revision();
        let edit_results = engine.edit_table(&engine_edits, states).await;
        let mut edit_results = edit_results.into_iter();
        if engine.revision() != before {
            states.handle_configuration(engine.desired().pools.iter());
        }
        let result = |result: Option<_>| result.or_else(|| edit_results.next()).unwrap_or(Ok(()));
        results.into_iter().map(result).collect()
    }
}

impl Traffic {
    /// Returns the planes and the server states.
    pub(super) const fn planes(&mut self) -> (Planes<'_>, &mut ServerStates) {
        let planes = Planes {
            engine: self.engine.as_mut(),
            proxy: Some(&mut self.proxy),
            desired: &self.desired,
            override_store: &self.override_store,
        };
        (planes, &mut self.states)
    }

    /// Applies check results and persists them.
    pub(super) fn handle_health(&mut self, events: Vec<HealthEvent>) -> Result<(), Error> {
        let pools: BTreeSet<String> = events.iter().map(|event| event.pool.clone()).collect();
        if let Some(engine) = &self.engine {
            engine.queue_results(&events);
        }
        let records = self.states.handle_health(events);
        let recorded = match &mut self.engine {
            Some(engine) => engine.record_health(records),
            None => Ok(()),
        };
        self.apply_weights(&pools)?;
        recorded
    }

    /// Reads the handshake counters of layer 4 services, and ejects servers that do not respond.
    pub(super) fn watch_handshakes(
        &mut self,
        passed: &crate::plane::LastPassedProbe<'_>,
    ) -> Result<(), Error> {
        let Some(engine) = &mut self.engine else {
            return Ok(());
        };
        let services = engine.read_handshakes(&self.states)?.into_iter();
        let pools: Vec<_> = services
            .map(|handshakes| handshakes.exclude_alive(passed))
            .collect();
        let unchanged = |_: &str, _: &str, _: &mut Ejection| {};
        let now = now();
        let (events, changed) =
            self.states
                .handle_samples(Source::Handshakes, &pools, &unchanged, now);
        log_ejections(&events, now);
        self.apply_weights(&changed)
    }

    /// Ejects servers whose responses take longer than `max_latency`, and adjusts the weights of pools with `adapt`.
    pub(super) fn read_latency_counts(&mut self) -> Result<(), Error> {
        let Some(engine) = &mut self.engine else {
            return Ok(());
        };
        let mut changed = BTreeSet::new();
        let (adjusted, pools) = engine.read_latency_counts()?;
        for adjusted in adjusted {
            tracing::debug!(
                service = adjusted.service,
                percent = ?adjusted.percent,
                "adjusted weights according to latency"
            );
            self.states
                .handle_latency(adjusted.service, adjusted.percent);
            changed.insert(adjusted.pool);
        }
        let explain = |pool: &str, _: &str, ejection: &mut Ejection| {
            let limit = pools.iter().find(|watched| watched.pool.name == pool);
            let limit = limit.and_then(|watched| watched.pool.health.max_latency);
            let limit = limit.unwrap_or_default().as_secs_f64() * 1_000.0;
            ejection.reason = format!("all responses took longer than {limit} ms");
        };
        let now = now();
        let (events, ejected) =
            self.states
                .handle_samples(Source::Latencies, &pools, &explain, now);
        log_ejections(&events, now);
        changed.extend(ejected);
        self.apply_weights(&changed)
    }

    /// Applies the weights of `pools` to both planes.
    pub(super) fn apply_weights(&mut self, pools: &BTreeSet<String>) -> Result<(), Error> {
        let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
        apply_weights(
            self.engine.as_mut(),
            Some(&mut self.proxy),
            &self.desired,
            &mut self.states,
            &pools,
        )
    }
}

/// Updates the states of `pools` and applies their weights. The proxy is updated even if the engine fails.
fn apply_weights(
    engine: Option<&mut Layer4>,
    proxy: Option<&mut weir_proxy::Proxy>,
    desired: &Desired,
    states: &mut ServerStates,
    pools: &[&str],
) -> Result<(), Error> {
    if pools.is_empty() {
        return Ok(());
    }
    for name in pools {
        if let Some(pool) = pool_of(engine.as_deref(), desired, name) {
            states.update_pool(pool);
        }
    }
    let applied = match engine {
        Some(engine) => engine.apply_weights(pools, states),
        None => Ok(()),
    };
    if let Some(proxy) = proxy {
        for pool in pools.iter().filter_map(|pool| desired.pool(pool)) {
            apply_to_proxy(proxy, pool, states);
        }
    }
    applied
}

/// Returns a pool by its name. The engine's configuration includes the pools created with ipvsadm.
fn pool_of<'a>(engine: Option<&'a Layer4>, desired: &'a Desired, name: &str) -> Option<&'a Pool> {
    match engine {
        Some(engine) => engine.desired().pool(name),
        None => desired.pool(name),
    }
}

/// Applies a pool's weights to the proxy.
pub(super) fn apply_to_proxy(proxy: &mut weir_proxy::Proxy, pool: &Pool, states: &ServerStates) {
    let weights = states.weights(pool, None);
    let servers = pool.servers.iter().zip(weights.servers);
    for (server, weight) in servers.chain(pool.sorry.iter().zip(weights.sorry)) {
        let changed_weight = Some(weight.effective).filter(|effective| *effective != server.weight);
        let keeps_sticky = weight.quiesced && !weight.down;
        proxy.set_sticky_while_quiesced(&pool.name, &server.name, keeps_sticky);
        if proxy.has_server(&pool.name, &server.name)
            && let Err(error) = proxy.set_weight(&pool.name, &server.name, changed_weight)
        {
            tracing::warn!(%error, "failed to set a server's weight in the proxy");
        }
        let closes_connections = weight.removed && pool.on_remove == OnRemove::Reset;
        proxy.set_close_connections(&pool.name, &server.name, closes_connections);
    }
}

pub(super) fn log_ejections(events: &[EjectionEvent], now: Duration) {
    for event in events {
        let (pool, server) = (event.server.pool.as_str(), event.server.server.as_str());
        let service = event.server.service.as_deref();
        match &event.transition {
            Transition::Ejected(ejection) => tracing::warn!(
                pool,
                service,
                server,
                cause = ejection.reason,
                seconds = ejection.until.saturating_sub(now).as_secs(),
                "a server was ejected"
            ),
            Transition::OnTrial => {
                tracing::info!(pool, service, server, "an ejected server is being retried");
            }
            // The log already contains a line about the check or the reload.
            Transition::Withdrawn => {
                tracing::debug!(pool, service, server, "an ejection ended early")
            }
        }
    }
}

/// Returns the current time since the Unix epoch, on the clock of the checks: a step of the wall clock must neither
/// eject servers nor end ejections.
pub(super) fn now() -> Duration {
    SteadyClock::of_process().now()
}
