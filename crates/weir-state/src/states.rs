//! Defines [`ServerStates`], which owns the state of all servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_health::{
    Candidate, ComputedWeight, Ejection, PoolMode, SavedState, ServerHealth, State,
    SuspendedServers, weigh,
};
use weir_model::{Adapt, MAX_WEIGHT, Pool, SchedulerKind, Server};

use crate::ejection::{EjectedServer, EjectionEvent, Ejections, PoolSamples, Source};
use crate::overrides::{Override, Overrides};
use crate::pool::{self, PoolChange, PoolState, Pools};
use crate::record::{HealthRecord, SavedHealth, SavedServerHealth, SavedServers};
use crate::server_health::{
    HealthEvent, HealthStates, initial_health, is_checked, state_before_first_result,
};
use crate::weight::{PoolWeights, ServerWeight};

/// The state of all servers: overrides, check results, ejections, and the pool states that result from them.
#[derive(Clone, Debug, Default)]
pub struct ServerStates {
    overrides: Overrides,
    health_states: HealthStates,
    ejections: Ejections,
    /// Percentage of its weight that each server uses because of its latency, by layer 4 service and server.
    adjusted: BTreeMap<String, BTreeMap<String, u32>>,
    pools: Pools,
    /// When each server of a proxy service was added or entered the state of its override, as the time since the Unix
    /// epoch.
    since: BTreeMap<String, BTreeMap<String, Duration>>,
    /// When drain or maintenance of a server last began or ended in this process, as the time since the Unix epoch, by
    /// pool and server.
    withdrawal_changes: BTreeMap<String, BTreeMap<String, Duration>>,
}

/// Saving and restoring the state.
impl ServerStates {
    /// Restores the state from the overrides file and from the state that an earlier daemon's proxy saved.
    pub fn restore(
        overrides: Overrides,
        health_states: SavedHealth,
        since: BTreeMap<String, BTreeMap<String, Duration>>,
    ) -> Self {
        let mut states = Self {
            overrides,
            since,
            ..Self::default()
        };
        states.restore_health(health_states);
        states
    }

    /// Applies the server state from the layer 4 plane's state file. The file's health records take precedence. The
    /// file's overrides are used only if the file is not a copy of the overrides file, or if there is no overrides
    /// file. In these cases the state file's overrides take precedence, because 0.1.0 writes the state file first, and
    /// records weights set by ipvsadm only there. Returns whether any override changed. If so, the overrides file must
    /// be written before the state file.
    pub fn adopt(&mut self, saved: SavedServers, has_override_file: bool) -> bool {
        let mut has_changed = false;
        if !saved.is_copy || !has_override_file {
            for (pool, server, active) in saved.overrides.iter() {
                has_changed |= self.overrides.set(pool, server, Some(active));
            }
        }
        self.restore_health(saved.health_states);
        has_changed
    }

    fn restore_health(&mut self, saved: SavedHealth) {
        let events = saved.servers.into_iter().flat_map(|(pool, servers)| {
            servers.into_iter().map(move |(server, saved)| HealthEvent {
                pool: pool.clone(),
                server,
                server_health: Some(ServerHealth::from(saved)),
            })
        });
        self.health_states.apply(events.collect());
        let below = saved.below_quorum.into_iter();
        let pool_modes = below.map(|pool| (pool, PoolMode::BelowQuorum));
        self.pools.pool_modes.extend(pool_modes);
    }

    /// Returns the check results to persist.
    pub fn saved_health(&self) -> SavedHealth {
        let servers = self.health_states.0.iter().map(|(pool, servers)| {
            let servers = servers.iter();
            let saved_states = servers.map(|(name, server_health)| {
                (name.clone(), SavedServerHealth::from(server_health))
            });
            (pool.clone(), saved_states.collect())
        });
        SavedHealth {
            servers: servers.collect(),
            below_quorum: self.below_quorum(),
        }
    }

    /// Returns the pools that are below their quorum, sorted by name. They are persisted, because the quorum has
    /// hysteresis.
    pub fn below_quorum(&self) -> Vec<String> {
        let pool_modes = self.pools.pool_modes.iter();
        let below = pool_modes.filter(|(_, mode)| **mode == PoolMode::BelowQuorum);
        below.map(|(pool, _)| pool.clone()).collect()
    }

    /// Returns the server state for the layer 4 plane's state file.
    pub fn saved_servers(&self) -> SavedServers {
        SavedServers {
            overrides: self.overrides.clone(),
            health_states: self.saved_health(),
            is_copy: true,
        }
    }

    /// Returns the times to persist: when each server of a proxy service was added or entered the state of its
    /// override.
    pub const fn since_times(&self) -> &BTreeMap<String, BTreeMap<String, Duration>> {
        &self.since
    }
}

/// Event handlers.
impl ServerStates {
    /// Applies changed check results. Returns the records to persist; the caller must call [`Self::update_pool`] for
    /// the pools that the events name.
    pub fn handle_health(&mut self, events: Vec<HealthEvent>) -> Vec<HealthRecord> {
        self.health_states.apply(events)
    }

    /// Applies new samples of client traffic for all pools of one source. `explain` can replace the reason for an
    /// ejection. Returns events to log, and the pools whose weights may have changed.
    pub fn handle_samples(
        &mut self,
        source: Source,
        pools: &[PoolSamples<'_>],
        explain: &dyn Fn(&str, &str, &mut Ejection),
        now: Duration,
    ) -> (Vec<EjectionEvent>, BTreeSet<String>) {
        let health_states = &self.health_states;
        let is_down = |pool: &str, server: &str, service: Option<&str>| {
            is_down(health_states, pool, server, service)
        };
        self.ejections
            .observe(source, pools, &is_down, explain, now)
    }

    /// Sets the percentage of its weight that each server of a layer 4 service uses because of its latency. A server
    /// that is not listed keeps its full weight.
    pub fn handle_latency(&mut self, service: String, percent: BTreeMap<String, u32>) {
        if percent.is_empty() {
            self.adjusted.remove(&service);
        } else {
            self.adjusted.insert(service, percent);
        }
    }

    /// Ends all ejections except those of `servers`. Returns the pools whose weights may have changed.
    pub fn end_ejections_except(&mut self, servers: &BTreeSet<EjectedServer>) -> BTreeSet<String> {
        self.ejections.end_all_except(servers)
    }

    /// Removes the state of servers that are in no pool of the applied configuration, except their overrides. Updates
    /// the states of the pools.
    pub fn handle_configuration<'a>(&mut self, pools: impl Iterator<Item = &'a Pool>) {
        let pools: BTreeMap<&str, &Pool> = pools.map(|pool| (pool.name.as_str(), pool)).collect();
        self.health_states.retain(&pools);
        self.pools.retain(|pool| pools.contains_key(pool));
        self.withdrawal_changes.retain(|pool, servers| {
            let pool = pools.get(pool.as_str());
            let configured = || {
                pool.iter()
                    .flat_map(|pool| pool.servers.iter().chain(&pool.sorry))
            };
            servers.retain(|name, _| configured().any(|server| server.name == *name));
            !servers.is_empty()
        });
        pools.values().for_each(|pool| self.update_pool(pool));
    }

    /// Sets the servers that proxy services use, given by pool and name.
    pub fn handle_proxy_servers<'a>(
        &mut self,
        servers: impl Iterator<Item = (&'a str, &'a str)>,
        now: Duration,
    ) {
        let previous = std::mem::take(&mut self.since);
        for (pool, server) in servers {
            let since = previous.get(pool).and_then(|servers| servers.get(server));
            let servers = self.since.entry(pool.to_owned()).or_default();
            servers.insert(server.to_owned(), since.copied().unwrap_or(now));
        }
    }

    /// Updates a pool's state.
    pub fn update_pool(&mut self, pool: &Pool) {
        let (computed_weights, mode) = self.weigh(pool, None);
        let has_weight = computed_weights
            .iter()
            .any(|computed_weight| computed_weight.effective > 0);
        let has_sorry = self.is_sorry_usable(pool, None);
        self.pools.set(&pool.name, mode, has_weight, has_sorry);
    }

    /// Removes and returns the recorded changes to pools.
    pub fn take_pool_changes(&mut self) -> Vec<PoolChange> {
        self.pools.take_changes()
    }

    /// Returns the health of all servers, for [`StateCopy`](crate::StateCopy).
    pub(crate) fn all_health(&self) -> impl Iterator<Item = (&str, &str, &ServerHealth)> {
        let pools = self.health_states.0.iter();
        pools.flat_map(|(pool, servers)| {
            let servers = servers.iter();
            servers
                .map(move |(server, server_health)| (pool.as_str(), server.as_str(), server_health))
        })
    }

    pub(crate) fn all_ejections(&self) -> impl Iterator<Item = (EjectedServer, Ejection)> {
        self.ejections.all_with_reasons()
    }

    pub(crate) const fn adjusted(&self) -> &BTreeMap<String, BTreeMap<String, u32>> {
        &self.adjusted
    }

    pub(crate) const fn withdrawal_changes(&self) -> &BTreeMap<String, BTreeMap<String, Duration>> {
        &self.withdrawal_changes
    }

    pub(crate) const fn pool_modes(&self) -> &BTreeMap<String, PoolMode> {
        &self.pools.pool_modes
    }

    pub(crate) fn set_pool_modes(&mut self, pool_modes: BTreeMap<String, PoolMode>) {
        self.pools.pool_modes = pool_modes;
    }

    pub(crate) fn replace(
        &mut self,
        overrides: Overrides,
        ejections: Vec<(EjectedServer, Ejection)>,
        adjusted: BTreeMap<String, BTreeMap<String, u32>>,
        withdrawal_changes: BTreeMap<String, BTreeMap<String, Duration>>,
    ) {
        self.withdrawal_changes = withdrawal_changes;
        self.overrides = overrides;
        self.ejections = Ejections::from_copy(ejections);
        self.adjusted = adjusted;
    }

    pub(crate) fn set_override(
        &mut self,
        pool: &str,
        server: &str,
        new_override: Option<Override>,
    ) {
        self.overrides.set(pool, server, new_override);
    }

    /// Sets the time at which a server of a proxy service entered its state.
    pub(crate) fn set_since(&mut self, pool: &str, server: &str, now: Duration) {
        let servers = self.since.get_mut(pool);
        if let Some(since) = servers.and_then(|servers| servers.get_mut(server)) {
            *since = now;
        }
    }

    /// Records that drain or maintenance of a server began or ended; `None` = it has not changed in this process.
    pub(crate) fn set_withdrawal_change(
        &mut self,
        pool: &str,
        server: &str,
        time: Option<Duration>,
    ) {
        let servers = self.withdrawal_changes.entry(pool.to_owned()).or_default();
        match time {
            Some(time) => drop(servers.insert(server.to_owned(), time)),
            None => drop(servers.remove(server)),
        }
    }

    fn withdrawal_change(&self, pool: &str, server: &str) -> Option<Duration> {
        self.withdrawal_changes.get(pool)?.get(server).copied()
    }

    pub(crate) fn checkpoint(&self, pool: &str, server: &str) -> Checkpoint {
        Checkpoint {
            active_override: self.overrides.get(pool, server),
            since: self.since(pool, server),
            withdrawal_change: self.withdrawal_change(pool, server),
            pool: self.pools.checkpoint(pool),
        }
    }

    pub(crate) fn revert(&mut self, pool: &str, server: &str, checkpoint: &Checkpoint) {
        self.set_override(pool, server, checkpoint.active_override);
        if let Some(since) = checkpoint.since {
            self.set_since(pool, server, since);
        }
        self.set_withdrawal_change(pool, server, checkpoint.withdrawal_change);
        self.pools.revert(pool, &checkpoint.pool);
    }
}

/// The state before an override changes, for a rollback.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) active_override: Option<Override>,
    since: Option<Duration>,
    withdrawal_change: Option<Duration>,
    pool: pool::Checkpoint,
}

/// Queries.
impl ServerStates {
    /// Returns all overrides.
    pub const fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Returns the servers in maintenance, which are not checked.
    pub fn suspended_servers(&self) -> SuspendedServers {
        self.overrides.servers_in_maintenance()
    }

    /// Returns the combined result of a server's checks; `None` = it has no checks, or they have no result yet.
    pub fn server_health(&self, pool: &str, server: &str) -> Option<&ServerHealth> {
        self.health_states.get(pool, server)
    }

    /// Like [`Self::server_health`], but for one layer 4 service.
    pub fn health_in(&self, pool: &str, server: &str, service: &str) -> Option<&ServerHealth> {
        Some(self.server_health(pool, server)?.in_service(service))
    }

    /// Returns the state in which new checks of a server start.
    pub fn saved_state(&self, pool: &str, server: &str) -> Option<SavedState> {
        self.server_health(pool, server).map(SavedState::from)
    }

    /// Returns the ejection of a server from a layer 4 service, or from all proxy services.
    pub fn ejection(&self, pool: &str, server: &str, service: Option<&str>) -> Option<&Ejection> {
        self.ejections.get(pool, server, service)
    }

    /// Returns all ejected servers.
    pub fn ejected(&self) -> BTreeSet<EjectedServer> {
        self.ejections.all().cloned().collect()
    }

    /// Returns when a server of a proxy service was added or entered the state of its override, as the time since the
    /// Unix epoch.
    pub fn since(&self, pool: &str, server: &str) -> Option<Duration> {
        self.since.get(pool)?.get(server).copied()
    }

    /// Returns when the state of a server last changed, as the time since the Unix epoch: the time at which it entered
    /// its state according to its checks, or a later time at which drain or maintenance began or ended.
    pub fn last_change(&self, pool: &str, server: &str, from_checks: Duration) -> Duration {
        let withdrawal_change = self.withdrawal_change(pool, server);
        withdrawal_change.map_or(from_checks, |time| time.max(from_checks))
    }

    /// Returns whether any server of the pool is `starting`, except servers in drain or maintenance.
    pub fn is_settling(&self, pool: &Pool) -> bool {
        pool.servers.iter().any(|server| {
            let active = self.overrides.get(&pool.name, &server.name);
            let server_health = self.server_health(&pool.name, &server.name);
            let state = server_health.map(|server_health| server_health.state);
            let state = state.or_else(|| state_before_first_result(pool, server));
            state == Some(State::Starting) && !active.is_some_and(Override::hides_checks)
        })
    }

    /// Returns whether a pool serves clients with its servers or its sorry server; true if the pool's state has not
    /// been determined yet.
    pub fn serves(&self, pool: &str) -> bool {
        self.pools.serves(pool).unwrap_or(true)
    }

    /// Returns the state of a pool that does not use its servers according to their states; `None` = it uses them
    /// normally.
    pub fn exceptional_state(&self, pool: &str) -> Option<PoolState> {
        match self.pools.mode(pool) {
            PoolMode::Normal => None,
            PoolMode::Panic => Some(PoolState::Panic),
            PoolMode::BelowQuorum => Some(PoolState::BelowQuorum),
        }
    }

    /// Returns the effective weights of a pool's servers, in a layer 4 service or in all proxy services.
    pub fn weights(&self, pool: &Pool, service: Option<&str>) -> PoolWeights {
        let (mut computed_weights, _) = self.weigh(pool, service);
        if let Some(percent) = service.and_then(|service| self.adjusted.get(service)) {
            adjust(pool, &mut computed_weights, percent);
        }
        let base = self.overrides.base_weight(pool);
        let weight = |server: &Server, computed_weight: ComputedWeight| ServerWeight {
            effective: computed_weight.effective,
            base: base(server),
            removed: computed_weight.remove,
            quiesced: match self.overrides.get(&pool.name, &server.name) {
                None | Some(Override::Weight(_)) => base(server) == 0,
                Some(Override::Drain | Override::Maint) => false,
            },
            down: computed_weight.effective == 0
                && is_down(&self.health_states, &pool.name, &server.name, service),
        };
        let servers = pool.servers.iter().zip(computed_weights);
        // A sorry server is the last resort, so neither an override nor a weight of 0 excludes it.
        let sorry = pool.sorry.as_ref().map(|server| {
            let serves = self.is_sorry_usable(pool, service);
            let effective = if serves { base(server).max(1) } else { 0 };
            let computed_weight = ComputedWeight {
                effective,
                remove: false,
            };
            weight(server, computed_weight)
        });
        PoolWeights {
            servers: servers
                .map(|(server, computed_weight)| weight(server, computed_weight))
                .collect(),
            sorry,
        }
    }

    fn weigh(&self, pool: &Pool, service: Option<&str>) -> (Vec<ComputedWeight>, PoolMode) {
        let base = self.overrides.base_weight(pool);
        let initial_health: Vec<Option<ServerHealth>> = pool
            .servers
            .iter()
            .map(
                |server| match self.health_states.get(&pool.name, &server.name) {
                    Some(_) => None,
                    None => initial_health(pool, server),
                },
            )
            .collect();
        let servers = pool.servers.iter().zip(&initial_health);
        let candidates: Vec<Candidate<'_>> = servers
            .map(|(server, initial)| Candidate {
                base: base(server),
                server_health: self
                    .health_from_checks(pool, server, service)
                    .or(initial.as_ref()),
                ejected: self
                    .ejections
                    .get(&pool.name, &server.name, service)
                    .is_some(),
            })
            .collect();
        let before = self.pools.mode(&pool.name);
        let has_sorry = self.is_sorry_usable(pool, service);
        weigh(&pool.health, has_sorry, &candidates, before)
    }

    /// Returns the result of a server's checks; `None` = it has no checks, or they have no result yet.
    fn health_from_checks(
        &self,
        pool: &Pool,
        server: &Server,
        service: Option<&str>,
    ) -> Option<&ServerHealth> {
        let server_health = self.health_states.get(&pool.name, &server.name)?;
        is_checked(pool, server)
            .then(|| service.map_or(server_health, |service| server_health.in_service(service)))
    }

    /// Returns whether a pool has a sorry server that its checks do not exclude.
    fn is_sorry_usable(&self, pool: &Pool, service: Option<&str>) -> bool {
        pool.sorry.as_ref().is_some_and(|server| {
            let initial_health = initial_health(pool, server);
            let server_health = self.health_from_checks(pool, server, service);
            let server_health = server_health.or(initial_health.as_ref());
            server_health.is_none_or(|server_health| server_health.state != State::Down)
        })
    }
}

/// Maximum total weight of the servers with source hashing: the number of slots in its table (`ip_vs_sh.c`).
const SH_SLOTS: u32 = 256;
/// Maximum factor by which adjusted weights are scaled. Scaling turns percentages of small weights into integers.
const MAX_FACTOR: u32 = 100;

/// Multiplies all weights by the same factor, then reduces each to its percentage.
fn adjust(pool: &Pool, computed_weights: &mut [ComputedWeight], percent: &BTreeMap<String, u32>) {
    if pool.adapt == Adapt::None {
        return;
    }
    let weights = || {
        computed_weights
            .iter()
            .map(|computed_weight| computed_weight.effective)
    };
    let factor_max = if pool.l4_scheduler().kind == SchedulerKind::Sh {
        SH_SLOTS / weights().fold(0, u32::saturating_add).max(1)
    } else {
        MAX_WEIGHT / weights().max().unwrap_or(1).max(1)
    };
    let factor = u64::from(factor_max.clamp(1, MAX_FACTOR));
    let servers = pool.servers.iter().zip(computed_weights);
    for (server, computed_weight) in
        servers.filter(|(_, computed_weight)| computed_weight.effective > 0)
    {
        let percent = percent.get(&server.name).copied().unwrap_or(100).min(100);
        let weight = u64::from(computed_weight.effective) * factor * u64::from(percent) / 100;
        computed_weight.effective = u32::try_from(weight.max(1)).unwrap_or(MAX_WEIGHT);
    }
}

fn is_down(health_states: &HealthStates, pool: &str, server: &str, service: Option<&str>) -> bool {
    health_states
        .get(pool, server)
        .is_some_and(|server_health| {
            let server_health =
                service.map_or(server_health, |service| server_health.in_service(service));
            server_health.state == State::Down
        })
}

#[cfg(test)]
mod tests;
