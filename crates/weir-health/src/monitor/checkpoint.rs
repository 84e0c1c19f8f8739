//! Saves and restores all server states: after a configuration is rolled back, no state from its checks may remain.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use weir_model::Desired;

use super::{Monitor, SavedState, ServerKey, SuspendedServers};
use crate::machine::Machine;
use crate::server_health::ServerHealth;
use crate::target::Target;

/// States of targets and servers, without running probes.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    machines: Vec<(Arc<Target>, Machine)>,
    servers: HashMap<String, HashMap<ServerKey, SavedServer>>,
}

/// State of one server of a pool.
#[derive(Clone, Debug)]
struct SavedServer {
    name: String,
    server_health: ServerHealth,
}

impl Checkpoint {
    /// Returns the health of a server. `server` is its address as in the configuration file.
    pub fn server_health(&self, pool: &str, server: &str) -> Option<&ServerHealth> {
        let mut servers = self.servers.get(pool)?.values();
        let saved = servers.find(|saved| saved.name == server);
        saved.map(|saved| &saved.server_health)
    }
}

impl Monitor {
    /// Returns a checkpoint with the current states.
    pub fn checkpoint(&self) -> Checkpoint {
        let slots = self.slots.iter().flatten();
        let servers = self.pools.iter().map(|pool| {
            let servers_of_pool = pool.servers.iter().map(|(key, server)| {
                let saved = SavedServer {
                    name: server.name.clone(),
                    server_health: server.server_health.clone(),
                };
                (*key, saved)
            });
            (pool.name.clone(), servers_of_pool.collect())
        });
        Checkpoint {
            machines: slots
                .map(|slot| (Arc::clone(&slot.target), slot.machine.clone()))
                .collect(),
            servers: servers.collect(),
        }
    }

    /// Reactivates the configuration that was active at the checkpoint, with the states at that time. Checks that have
    /// remained in use keep their newer results. All servers are reported, including unchanged ones.
    pub fn restore(
        &mut self,
        checkpoint: Checkpoint,
        desired: &Desired,
        suspended: &SuspendedServers,
        previous: &dyn Fn(&str, &str) -> Option<SavedState>,
        now: Duration,
    ) {
        let slots = self.slots.iter().enumerate();
        let targets_before: HashMap<usize, Arc<Target>> = slots
            .filter_map(|(index, slot)| Some((index, Arc::clone(&slot.as_ref()?.target))))
            .collect();
        self.configure(desired, suspended, previous, now);
        let mut restored = HashSet::new();
        for (target, machine) in checkpoint.machines {
            if let Some(index) = self.by_target.get(&target)
                && let Some(Some(slot)) = self.slots.get_mut(*index)
                && !targets_before
                    .get(index)
                    .is_some_and(|before| Arc::ptr_eq(before, &slot.target))
            {
                slot.machine = machine;
                restored.insert(*index);
            }
        }
        for index in 0..self.pools.len() {
            let name = self.pools[index].name.clone();
            let keys: Vec<ServerKey> = self.pools[index].servers.keys().copied().collect();
            for key in keys {
                let saved = checkpoint
                    .servers
                    .get(&name)
                    .and_then(|entry| entry.get(&key));
                let Some(server) = self.pools[index].servers.get_mut(&key) else {
                    continue;
                };
                let before = server.server_health.clone();
                if let Some(saved) = saved
                    && server
                        .probes
                        .iter()
                        .any(|entry| restored.contains(&entry.slot))
                {
                    server.server_health.clone_from(&saved.server_health);
                }
                self.review(index, key, now, false);
                let Some(server) = self.pools[index].servers.get(&key) else {
                    continue;
                };
                let has_state_changed = server.server_health.state != before.state;
                let paths = server.server_health.changed_paths(&before);
                self.report(index, key, has_state_changed.then_some(before.state), paths);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_model::{Check, Desired, Pool, Probe, Server, Timing};

    use super::*;
    use crate::machine::State;
    use crate::monitor::Output;
    use crate::outcome::Outcome;

    /// Returns a configuration of one pool with one server, whose check needs `rise` passes. Each value of `rise`
    /// results in a different target.
    fn desired(rise: u32) -> Desired {
        let mut check = Check::new(Probe::Tcp);
        check.timing = Timing {
            rise,
            fall: 1,
            ..Timing::default()
        };
        let mut pool = Pool::new("p");
        let address = [10, 0, 0, 5].into();
        pool.servers
            .push(Server::new("10.0.0.5", address, Some(80)));
        pool.checks.push(check);
        Desired {
            pools: vec![pool],
            ..Desired::default()
        }
    }

    fn no_saved_state(_: &str, _: &str) -> Option<SavedState> {
        None
    }

    /// Runs all probes of one minute with the same outcome. Returns the last reported state.
    fn run_one_minute(monitor: &mut Monitor, now: &mut Duration, passes: bool) -> Option<State> {
        let (end, mut last) = (*now + Duration::from_secs(60), None);
        while let Some(next) = monitor.next_deadline().filter(|next| *next < end) {
            *now = next.max(*now);
            monitor.advance(*now);
            last = run_requested_probes(monitor, *now, passes).or(last);
        }
        last
    }

    /// Returns the previous and the new state in each report.
    fn reported_changes(monitor: &mut Monitor) -> Vec<(Option<State>, State)> {
        let mut changes = Vec::new();
        while let Some(output) = monitor.poll_output() {
            if let Output::HealthChanged {
                server_health: Some(server_health),
                from,
                ..
            } = output
            {
                changes.push((from, server_health.state));
            }
        }
        changes
    }

    /// Runs all requested probes with the same outcome. Returns the last reported state.
    fn run_requested_probes(monitor: &mut Monitor, now: Duration, passes: bool) -> Option<State> {
        let mut last = None;
        while let Some(output) = monitor.poll_output() {
            match output {
                Output::Probe(request) if passes => {
                    monitor.handle_result(request.id, Outcome::passed("ok"), now);
                }
                Output::Probe(request) => {
                    monitor.handle_result(request.id, Outcome::failed("refused"), now);
                }
                Output::HealthChanged { server_health, .. } => {
                    last = server_health.map(|health| health.state);
                }
            }
        }
        last
    }

    fn state(checkpoint: &Checkpoint) -> State {
        checkpoint.server_health("p", "10.0.0.5").unwrap().state
    }

    #[test]
    fn restore_discards_states_of_a_rejected_configuration() {
        let mut monitor = Monitor::new(1);
        let mut now = Duration::from_secs(1000);
        let no_server = SuspendedServers::default();
        monitor.configure(&desired(2), &no_server, &no_saved_state, now);
        assert_eq!(
            run_one_minute(&mut monitor, &mut now, true),
            Some(State::Up)
        );
        let before = monitor.view("p", "10.0.0.5", None).unwrap();
        let checkpoint = monitor.checkpoint();
        assert_eq!(state(&checkpoint), State::Up);

        monitor.configure(&desired(3), &no_server, &no_saved_state, now);
        assert_eq!(
            run_one_minute(&mut monitor, &mut now, false),
            Some(State::Down)
        );
        assert_eq!(state(&monitor.checkpoint()), State::Down);

        monitor.restore(checkpoint, &desired(2), &no_server, &no_saved_state, now);
        let changes = reported_changes(&mut monitor);
        assert_eq!(changes.last(), Some(&(Some(State::Down), State::Up)));
        let after = monitor.view("p", "10.0.0.5", None).unwrap();
        assert_eq!(
            (after.server_health, after.reason),
            (before.server_health, before.reason)
        );
        // The server's checks continue and detect the failure.
        assert_eq!(
            run_one_minute(&mut monitor, &mut now, false),
            Some(State::Down)
        );
    }

    #[test]
    fn restore_keeps_results_of_checks_that_remained_in_use() {
        let mut monitor = Monitor::new(1);
        let mut now = Duration::from_secs(1000);
        let no_server = SuspendedServers::default();
        monitor.configure(&desired(2), &no_server, &no_saved_state, now);
        run_one_minute(&mut monitor, &mut now, true);
        let checkpoint = monitor.checkpoint();
        assert_eq!(
            run_one_minute(&mut monitor, &mut now, false),
            Some(State::Down)
        );
        monitor.restore(checkpoint, &desired(2), &no_server, &no_saved_state, now);
        assert_eq!(reported_changes(&mut monitor), [(None, State::Down)]);
    }
}
