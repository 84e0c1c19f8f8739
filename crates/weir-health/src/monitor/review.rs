//! Derives a server's health, and the reason for it, from the results of its checks.

use std::time::Duration;

use weir_model::Require;

use super::timer::Event;
use super::{Monitor, Output, PoolWatch, ServerKey, ServerProbe, Slot};
use crate::machine::{Machine, State};
use crate::server_health::{ServerHealth, combine, find_deciding, requires_removal};

/// The inputs of a review.
struct ReviewContext<'a> {
    pool: &'a PoolWatch,
    now: Duration,
    is_new: bool,
}

impl Monitor {
    /// Recomputes a server's health, and reports it if it changed or the server is new. Returns whether the health was
    /// reported.
    pub(super) fn review(
        &mut self,
        pool_index: usize,
        key: ServerKey,
        now: Duration,
        is_new: bool,
    ) -> bool {
        let Some(pool) = self.pools.get(pool_index) else {
            return false;
        };
        let server = pool.servers.get(&key);
        let Some(server) = server.filter(|server| !server.probes.is_empty()) else {
            return false;
        };
        let context = ReviewContext { pool, now, is_new };
        let before = &server.server_health;
        let mut next = before.clone();
        let mut paths = Vec::new();
        for (index, service) in pool.services.iter().enumerate() {
            if let Some(path) = next.paths.get_mut(service) {
                let probes = server.probes_in(index);
                let state = self.combined_state(pool.require, &probes);
                self.set_state(&context, path, state, &probes);
                paths.push((state, probes));
            }
        }
        let (state, probes) = if paths.is_empty() {
            (
                self.combined_state(pool.require, &server.probes),
                server.probes.clone(),
            )
        } else {
            let best = combine(Require::Any, paths.iter().map(|(state, _)| *state));
            let deciding_path = paths.into_iter().find(|(state, _)| *state == best);
            (
                best,
                deciding_path.map_or_else(Vec::new, |(_, probes)| probes),
            )
        };
        let from = self.set_state(&context, &mut next, state, &probes);
        let changed_paths = if is_new {
            Vec::new()
        } else {
            next.changed_paths(before)
        };
        let has_changed = next != *before;
        if next.is_in_slow_start() && !before.is_in_slow_start() {
            self.timers
                .set(now, Event::Ramp(pool_index, key, self.generation));
        }
        if let Some(server) = self.pools[pool_index].servers.get_mut(&key) {
            server.server_health = next;
        }
        if has_changed || is_new {
            self.report(pool_index, key, from, changed_paths);
        }
        has_changed || is_new
    }

    /// Sets the state of a server, or of its path in one service. Returns the previous state if the state changed.
    fn set_state(
        &self,
        context: &ReviewContext<'_>,
        server_health: &mut ServerHealth,
        state: State,
        probes: &[ServerProbe],
    ) -> Option<State> {
        let machines = || {
            let probes = probes.iter();
            probes.filter_map(|probe| Some((&self.slot(probe)?.machine, probe.on_failure)))
        };
        server_health.weights = machines()
            .filter_map(|(machine, _)| machine.weight())
            .collect();
        server_health.remove = state == State::Down && requires_removal(machines());
        // The initial state of a new server is not a change: it may come from another pool.
        let before = if context.is_new {
            state
        } else {
            server_health.state
        };
        server_health.state = state;
        let slow_start = context.pool.slow_start;
        if state != before {
            server_health.since = context.now;
            server_health.reason =
                self.explain(state, probes, &|machine| machine.note().to_owned());
            let starts_slowly =
                before == State::Down && state == State::Up && !slow_start.is_zero();
            server_health.ramp = if starts_slowly { 1 } else { 1000 };
        }
        if slow_start.is_zero() {
            server_health.ramp = 1000;
        }
        (state != before).then_some(before)
    }

    /// Adds a report of a server's health to the outputs.
    pub(super) fn report(
        &mut self,
        pool_index: usize,
        key: ServerKey,
        from: Option<State>,
        paths: Vec<(String, State)>,
    ) {
        let pool = &self.pools[pool_index];
        if let Some(server) = pool.servers.get(&key) {
            self.outputs.push_back(Output::HealthChanged {
                pool: pool.name.clone(),
                server: server.name.clone(),
                server_health: Some(server.server_health.clone()),
                from,
                paths,
            });
        }
    }

    pub(super) fn slot(&self, used: &ServerProbe) -> Option<&Slot> {
        self.slots.get(used.slot)?.as_ref()
    }

    /// Returns the combined state of a server's checks; all probes of one check must pass.
    pub(super) fn combined_state(&self, require: Require, probes: &[ServerProbe]) -> State {
        let state_of_check = |probes: &[ServerProbe]| {
            let slots = probes.iter().filter_map(|it| self.slot(it));
            combine(Require::All, slots.map(|slot| slot.machine.state()))
        };
        let checks = probes.chunk_by(|a, b| a.check == b.check);
        combine(require, checks.map(state_of_check))
    }

    /// Returns the reason for a state: the result of `describe` for the probe that determines the state. If a direct
    /// probe passes but the probe along the path fails, the reason includes both.
    pub(super) fn explain(
        &self,
        state: State,
        probes: &[ServerProbe],
        describe: &dyn Fn(&Machine) -> String,
    ) -> String {
        let slots = || probes.iter().filter_map(|it| self.slot(it));
        let deciding = find_deciding(state, slots(), |slot| slot.machine.state());
        let Some(slot) = deciding else {
            return String::new();
        };
        let text = describe(&slot.machine);
        let is_same_probe =
            |other: &Slot| other.target.path.is_none() && other.target.probe == slot.target.probe;
        let is_up = |other: &Slot| other.machine.state() == State::Up;
        let has_direct_pass = slots().any(|other| is_same_probe(other) && is_up(other));
        if state == State::Down && slot.target.path.is_some() && has_direct_pass {
            format!("{}{text}", weir_model::PATH_BROKEN_PREFIX)
        } else {
            text
        }
    }
}
