//! What the results of its checks make of a server, and in which words.

use std::time::Duration;

use weir_model::Require;

use super::timer::Event;
use super::{Monitor, Output, PoolWatch, ServerKey, Slot, Use};
use crate::machine::{Machine, State};
use crate::standing::{Standing, combine, deciding, removes};

/// What a review of a server is made under.
struct Judge<'a> {
    pool: &'a PoolWatch,
    now: Duration,
    is_new: bool,
}

impl Monitor {
    /// Works a server's standing out again and reports it where it differs, or when it is new; returns whether it did.
    pub(super) fn review(
        &mut self,
        at: usize,
        key: ServerKey,
        now: Duration,
        is_new: bool,
    ) -> bool {
        let Some(pool) = self.pools.get(at) else {
            return false;
        };
        let server = pool.servers.get(&key);
        let Some(server) = server.filter(|server| !server.uses.is_empty()) else {
            return false;
        };
        let judge = Judge { pool, now, is_new };
        let known = &server.standing;
        let mut next = known.clone();
        let mut paths = Vec::new();
        for (number, service) in pool.services.iter().enumerate() {
            if let Some(path) = next.paths.get_mut(service) {
                let uses = server.uses_in(number);
                let state = self.combined(pool.require, &uses);
                self.enter(&judge, path, state, &uses);
                paths.push((state, uses));
            }
        }
        let (state, uses) = if paths.is_empty() {
            (
                self.combined(pool.require, &server.uses),
                server.uses.clone(),
            )
        } else {
            let best = combine(Require::Any, paths.iter().map(|(state, _)| *state));
            let decides = paths.into_iter().find(|(state, _)| *state == best);
            (best, decides.map_or_else(Vec::new, |(_, uses)| uses))
        };
        let from = self.enter(&judge, &mut next, state, &uses);
        let changed_paths = if is_new {
            Vec::new()
        } else {
            next.changed_paths(known)
        };
        let differs = next != *known;
        if next.is_climbing() && !known.is_climbing() {
            self.timers.set(now, Event::Ramp(at, key, self.configured));
        }
        if let Some(server) = self.pools[at].servers.get_mut(&key) {
            server.standing = next;
        }
        if differs || is_new {
            self.tell(at, key, from, changed_paths);
        }
        differs || is_new
    }

    /// Puts a server, or its path in one service, into a state; returns the former one if it was another.
    fn enter(
        &self,
        judge: &Judge<'_>,
        standing: &mut Standing,
        state: State,
        uses: &[Use],
    ) -> Option<State> {
        let machines = || {
            let uses = uses.iter();
            uses.filter_map(|it| Some((&self.slot(it)?.machine, it.on_failure)))
        };
        standing.said = machines()
            .filter_map(|(machine, _)| machine.said())
            .collect();
        standing.remove = state == State::Down && removes(machines());
        // A new server was never in the state that it began with here: another pool may know better.
        let before = if judge.is_new { state } else { standing.state };
        standing.state = state;
        let slow_start = judge.pool.slow_start;
        if state != before {
            standing.since = judge.now;
            standing.reason = self.why(state, uses, &|machine| machine.note().to_owned());
            let climbs = before == State::Down && state == State::Up && !slow_start.is_zero();
            standing.ramp = if climbs { 1 } else { 1000 };
        }
        if slow_start.is_zero() {
            standing.ramp = 1000;
        }
        (state != before).then_some(before)
    }

    pub(super) fn tell(
        &mut self,
        at: usize,
        key: ServerKey,
        from: Option<State>,
        paths: Vec<(String, State)>,
    ) {
        let pool = &self.pools[at];
        if let Some(server) = pool.servers.get(&key) {
            self.outputs.push_back(Output::Server {
                pool: pool.name.clone(),
                server: server.name.clone(),
                standing: Some(server.standing.clone()),
                from,
                paths,
            });
        }
    }

    pub(super) fn slot(&self, used: &Use) -> Option<&Slot> {
        self.slots.get(used.slot)?.as_ref()
    }

    pub(super) fn combined(&self, require: Require, uses: &[Use]) -> State {
        let of_one = |uses: &[Use]| {
            let slots = uses.iter().filter_map(|it| self.slot(it));
            combine(Require::All, slots.map(|slot| slot.machine.state()))
        };
        let checks = uses.chunk_by(|a, b| a.check == b.check);
        combine(require, checks.map(of_one))
    }

    /// What a state is explained by. Where probes to the server itself pass and those through the forward fail, both are said.
    pub(super) fn why(
        &self,
        state: State,
        uses: &[Use],
        word: &dyn Fn(&Machine) -> String,
    ) -> String {
        let slots = || uses.iter().filter_map(|it| self.slot(it));
        let deciding = deciding(state, slots(), |slot| slot.machine.state());
        let Some(slot) = deciding else {
            return String::new();
        };
        let text = word(&slot.machine);
        let same =
            |other: &Slot| other.target.way.is_none() && other.target.probe == slot.target.probe;
        let passes = |other: &Slot| other.machine.state() == State::Up;
        let is_up = slots().any(|other| same(other) && passes(other));
        if state == State::Down && slot.target.way.is_some() && is_up {
            format!("server up, path broken: {text}")
        } else {
            text
        }
    }
}
