//! Applies a configuration: updates the set of targets, keeps existing states, and reports differences.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use weir_model::{Check, Desired, Pool, Server, Service, Start, Via};

use super::timer::Event;
use super::{
    Monitor, Output, PoolWatch, SavedState, ServerKey, ServerProbe, ServerWatch, Slot,
    SuspendedServers,
};
use crate::machine::{Machine, State};
use crate::server_health::ServerHealth;
use crate::target::Target;

/// The inputs for one pool.
struct PoolInput<'a> {
    pool: &'a Pool,
    /// The pool in the previous configuration.
    previous_pool: Option<&'a PoolWatch>,
    /// The port of checks that do not specify one.
    default_port: Option<u16>,
    /// The services that forward to the pool.
    services: &'a [&'a Service],
    suspended: &'a SuspendedServers,
    saved: &'a dyn Fn(&str, &str) -> Option<SavedState>,
    now: Duration,
}

/// Returns the targets of a server's check, each with the index of the service that provides its path (`None` =
/// direct).
fn check_targets(
    input: &PoolInput<'_>,
    check: &Check,
    server: &Server,
) -> Vec<(Option<usize>, Target)> {
    let direct = Target::new(check, server, check.port(server, input.default_port));
    let mut targets = Vec::new();
    if check.target.via.uses_forwarding_path() {
        for (index, service) in input.services.iter().enumerate() {
            if let Some(path) = check.probe_path(service, server) {
                targets.push((Some(index), direct.clone().through(path)));
            }
        }
    }
    if check.target.via != Via::Path || targets.is_empty() {
        targets.insert(0, (None, direct));
    }
    targets
}

/// Returns the state machine of a new target, initialized with the saved state of a server that uses it.
fn resume_machine(target: &Target, saved: Option<State>) -> Machine {
    match saved {
        Some(state @ (State::Up | State::Down)) => Machine::in_known_state(target.timing, state),
        Some(State::Starting) => Machine::new(target.timing, Start::Checking),
        None => Machine::new(target.timing, target.start),
    }
}

/// Returns the services that provide paths for the server's probes.
fn services_with_paths<'a>(services: &'a [String], probes: &[ServerProbe]) -> Vec<&'a str> {
    let services = services.iter().enumerate();
    let used = services.filter(|(index, _)| probes.iter().any(|probe| probe.path == Some(*index)));
    used.map(|(_, service)| service.as_str()).collect()
}

impl Monitor {
    /// Activates the checks of a configuration. `saved` returns the saved state of a server that was not in the
    /// previous configuration of this monitor.
    pub fn configure(
        &mut self,
        desired: &Desired,
        suspended: &SuspendedServers,
        saved: &dyn Fn(&str, &str) -> Option<SavedState>,
        now: Duration,
    ) {
        self.generation += 1;
        let previous_pools = std::mem::take(&mut self.pools);
        let previous_pools: HashMap<String, PoolWatch> = previous_pools
            .into_iter()
            .map(|pool| (pool.name.clone(), pool))
            .collect();
        for slot in self.slots.iter_mut().flatten() {
            slot.users.clear();
        }
        self.by_name.clear();
        let mut added = Vec::new();
        let (ports, services) = (desired.check_ports(), desired.services_by_pool());
        for pool in &desired.pools {
            let input = PoolInput {
                pool,
                previous_pool: previous_pools.get(&pool.name),
                default_port: ports.get(pool.name.as_str()).copied(),
                services: services.get(pool.name.as_str()).map_or(&[], Vec::as_slice),
                suspended,
                saved,
                now,
            };
            self.add_pool(&input, &mut added);
        }
        self.remove_unused_slots();
        self.schedule_first_probes(&added, now);
        self.report_differences(&previous_pools, now);
    }

    fn add_pool(&mut self, input: &PoolInput<'_>, added: &mut Vec<usize>) {
        let PoolInput { pool, now, .. } = *input;
        let pool_index = self.pools.len();
        let mut watch = PoolWatch {
            name: pool.name.clone(),
            services: input.services.iter().map(|it| it.name.clone()).collect(),
            require: pool.health.require,
            slow_start: pool.health.slow_start,
            servers: BTreeMap::new(),
            keys_by_name: HashMap::new(),
        };
        for server in pool.servers.iter().chain(&pool.sorry) {
            let key = (server.address, server.port);
            let previous_server = input.previous_pool.and_then(|pool| pool.servers.get(&key));
            let previous = match previous_server {
                Some(previous_server) => Some(SavedState::from(&previous_server.server_health)),
                None => (input.saved)(&pool.name, &server.name),
            };
            let name = (pool.name.clone(), server.name.clone());
            let is_suspended = input.suspended.contains(&name);
            let probes = if is_suspended {
                Vec::new()
            } else {
                self.probes_of_server(input, server, (pool_index, key), previous.as_ref(), added)
            };
            if probes.is_empty() && !(is_suspended && previous.is_some()) {
                continue;
            }
            let server_health = previous_server
                .map(|previous_server| previous_server.server_health.clone())
                .or_else(|| previous.map(ServerHealth::from))
                .unwrap_or_else(|| {
                    ServerHealth::new(self.combined_state(watch.require, &probes), now)
                });
            let server_health = if is_suspended {
                server_health
            } else {
                server_health.with_services(&services_with_paths(&watch.services, &probes))
            };
            watch.keys_by_name.insert(server.name.clone(), key);
            watch.servers.insert(
                key,
                ServerWatch {
                    name: server.name.clone(),
                    probes,
                    server_health,
                },
            );
        }
        self.by_name.insert(pool.name.clone(), pool_index);
        self.pools.push(watch);
    }

    /// Returns the probes of a server's checks. The indices of new slots are appended to `added`.
    fn probes_of_server(
        &mut self,
        input: &PoolInput<'_>,
        server: &Server,
        user: (usize, ServerKey),
        previous: Option<&SavedState>,
        added: &mut Vec<usize>,
    ) -> Vec<ServerProbe> {
        let mut probes = Vec::new();
        for (check_index, check) in input.pool.checks_of(server).iter().enumerate() {
            for (path, target) in check_targets(input, check, server) {
                let service = path.map(|path| input.services[path].name.as_str());
                let state = previous.map(|saved| {
                    let path = service.and_then(|service| saved.paths.get(service));
                    path.unwrap_or(saved).state
                });
                probes.push(ServerProbe {
                    slot: self.slot_of(target, user, state, added),
                    on_failure: check.on_failure,
                    check: check_index,
                    path,
                });
            }
        }
        probes
    }

    /// Returns the slot for a target, and adds `user` to it.
    fn slot_of(
        &mut self,
        target: Target,
        user: (usize, ServerKey),
        previous: Option<State>,
        added: &mut Vec<usize>,
    ) -> usize {
        let index = match self.by_target.get(&target) {
            Some(index) => *index,
            None => {
                let index = self.add_slot(target, previous);
                added.push(index);
                index
            }
        };
        if let Some(Some(slot)) = self.slots.get_mut(index) {
            if slot.is_state_assumed && previous.is_some() {
                slot.machine = resume_machine(&slot.target, previous);
                slot.is_state_assumed = false;
            }
            if !slot.users.contains(&user) {
                slot.users.push(user);
            }
        }
        index
    }

    fn add_slot(&mut self, target: Target, previous: Option<State>) -> usize {
        let target = Arc::new(target);
        let machine = resume_machine(&target, previous);
        let slot = Slot {
            is_state_assumed: previous.is_none(),
            target: Arc::clone(&target),
            machine,
            users: Vec::new(),
            due: Duration::ZERO,
            number: 0,
            is_running: false,
            must_rerun: false,
            last_pass: None,
            started_at: Duration::ZERO,
            counts: super::ProbeCounts::default(),
        };
        let free_slot = self.slots.iter().position(Option::is_none);
        let index = free_slot.unwrap_or(self.slots.len());
        match self.slots.get_mut(index) {
            Some(entry) => *entry = Some(slot),
            None => self.slots.push(Some(slot)),
        }
        self.by_target.insert(target, index);
        index
    }

    /// Removes the slots without users.
    fn remove_unused_slots(&mut self) {
        for entry in &mut self.slots {
            if let Some(slot) = entry
                && slot.users.is_empty()
            {
                self.by_target.remove(&slot.target);
                *entry = None;
            }
        }
    }

    /// Schedules the first probes at random times, within a period that grows with their number up to each check's
    /// interval, and resumes slow starts.
    fn schedule_first_probes(&mut self, added: &[usize], now: Duration) {
        const MIN_SPREAD: Duration = Duration::from_millis(100);
        const SPREAD_PER_PROBE: Duration = Duration::from_micros(200);
        let count = u32::try_from(added.len()).unwrap_or(u32::MAX);
        let spread = SPREAD_PER_PROBE.saturating_mul(count).max(MIN_SPREAD);
        for index in added {
            if let Some(Some(slot)) = self.slots.get_mut(*index) {
                slot.is_state_assumed = false;
                let window = spread.min(slot.target.timing.interval);
                self.last_number += 1;
                slot.number = self.last_number;
                slot.due = now + self.random.below(window);
                self.timers.set(slot.due, Event::Probe(*index, slot.number));
            }
        }
        for (index, pool) in self.pools.iter().enumerate() {
            for (key, server) in &pool.servers {
                if server.server_health.is_in_slow_start() {
                    self.timers
                        .set(now, Event::Ramp(index, *key, self.generation));
                }
            }
        }
    }

    /// Reports servers whose health differs from that in the previous configuration, and servers that no longer have a
    /// check.
    fn report_differences(&mut self, previous_pools: &HashMap<String, PoolWatch>, now: Duration) {
        for index in 0..self.pools.len() {
            let keys: Vec<ServerKey> = self.pools[index].servers.keys().copied().collect();
            for key in keys {
                let current = self.pools[index].servers.get(&key);
                let name = current.map(|server| &server.name);
                // A server whose address is written differently is reported under its new name.
                let before = previous_pools
                    .get(&self.pools[index].name)
                    .and_then(|pool| pool.servers.get(&key))
                    .filter(|before| Some(&before.name) == name);
                let is_reported = self.review(index, key, now, before.is_none());
                let server_health = self.pools[index]
                    .servers
                    .get(&key)
                    .map(|it| &it.server_health);
                // The set of services with separate paths may have changed.
                if !is_reported && before.is_some_and(|it| Some(&it.server_health) != server_health)
                {
                    self.report(index, key, None, Vec::new());
                }
            }
        }
        for (name, pool) in previous_pools {
            let current = self.by_name.get(name).map(|index| &self.pools[*index]);
            for (key, server) in &pool.servers {
                let is_kept = current
                    .and_then(|current| current.servers.get(key))
                    .is_some_and(|current| current.name == server.name);
                if !is_kept {
                    self.outputs.push_back(Output::HealthChanged {
                        pool: name.clone(),
                        server: server.name.clone(),
                        server_health: None,
                        from: None,
                        paths: Vec::new(),
                    });
                }
            }
        }
    }
}
