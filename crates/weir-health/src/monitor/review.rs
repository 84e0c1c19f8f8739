//! What the results of its checks make of a server, and in which words.

use std::time::Duration;

use weir_model::Require;

use super::timer::Event;
use super::{Monitor, Output, ServerKey, Slot, Use};
use crate::machine::{Machine, State};
use crate::standing::{combine, deciding, removes};

impl Monitor {
    /// Works a server's standing out again and tells of it where it differs, or when it is new.
    pub(super) fn review(&mut self, at: usize, key: ServerKey, now: Duration, is_new: bool) {
        let Some(pool) = self.pools.get(at) else {
            return;
        };
        let Some(server) = pool.servers.get(&key) else {
            return;
        };
        if server.uses.is_empty() {
            return;
        }
        let known = server.standing.state;
        let state = self.combined(pool.require, &server.uses);
        let machines = || {
            let uses = server.uses.iter();
            uses.filter_map(|it| Some((&self.slot(it)?.machine, it.on_failure)))
        };
        let mut next = server.standing.clone();
        next.said = machines()
            .filter_map(|(machine, _)| machine.said())
            .collect();
        next.remove = state == State::Down && removes(machines());
        let mut ramping = server.ramping;
        // A new server was never in the state that it began with here: another pool may know better.
        let before = if is_new { state } else { known };
        next.state = state;
        if state != before {
            next.since = now;
            next.reason = self.why(state, &server.uses, &|machine| machine.note().to_owned());
            let climbs = before == State::Down && state == State::Up && !pool.slow_start.is_zero();
            ramping = climbs.then_some(now);
            next.ramp = if climbs { 1 } else { 1000 };
        }
        if pool.slow_start.is_zero() {
            ramping = None;
            next.ramp = 1000;
        }
        let differs = next != server.standing;
        if ramping.is_some() && ramping != server.ramping {
            self.timers.set(now, Event::Ramp(at, key, self.configured));
        }
        if let Some(server) = self.pools[at].servers.get_mut(&key) {
            server.standing = next;
            server.ramping = ramping;
        }
        if differs || is_new {
            self.tell(at, key, (state != before).then_some(before));
        }
    }

    pub(super) fn tell(&mut self, at: usize, key: ServerKey, from: Option<State>) {
        let pool = &self.pools[at];
        if let Some(server) = pool.servers.get(&key) {
            self.outputs.push_back(Output::Server {
                pool: pool.name.clone(),
                server: server.name.clone(),
                standing: Some(server.standing.clone()),
                from,
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
