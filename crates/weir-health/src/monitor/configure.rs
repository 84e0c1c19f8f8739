//! A configuration comes into force: which targets there are now, what stays known, what is told anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use weir_model::{Check, Desired, Pool, Server, Service, Start, Via};

use super::timer::Event;
use super::{Known, Monitor, Output, PoolWatch, ServerKey, ServerWatch, Slot, Suspended, Use};
use crate::machine::{Machine, State};
use crate::standing::Standing;
use crate::target::Target;

/// What a pool is watched by.
struct Asked<'a> {
    pool: &'a Pool,
    before: Option<&'a PoolWatch>,
    /// The port of checks that have no other.
    listening: Option<u16>,
    /// Whose forwards lead to the pool.
    services: &'a [&'a Service],
    suspended: &'a Suspended,
    known: &'a dyn Fn(&str, &str) -> Option<Known>,
    now: Duration,
}

/// Where the probes of a check of a server go, each with the service whose path it takes, by its place among the pool's.
fn targets(asked: &Asked<'_>, check: &Check, server: &Server) -> Vec<(Option<usize>, Target)> {
    let straight = Target::new(check, server, check.port(server, asked.listening));
    let mut ways = Vec::new();
    if check.aim.via.through_path() {
        for (number, service) in asked.services.iter().enumerate() {
            if let Some(way) = check.way(service, server) {
                ways.push((Some(number), straight.clone().through(way)));
            }
        }
    }
    if check.aim.via != Via::Path || ways.is_empty() {
        ways.insert(0, (None, straight));
    }
    ways
}

/// The machine of a new target, from what is known of a server that it stands for.
fn going_on(target: &Target, known: Option<State>) -> Machine {
    match known {
        Some(state @ (State::Up | State::Down)) => Machine::resuming(target.timing, state),
        Some(State::Starting) => Machine::new(target.timing, Start::Checking),
        None => Machine::new(target.timing, target.start),
    }
}

/// The services whose paths some of a server's probes take.
fn with_paths<'a>(services: &'a [String], uses: &[Use]) -> Vec<&'a str> {
    let services = services.iter().enumerate();
    let taken = services.filter(|(path, _)| uses.iter().any(|it| it.path == Some(*path)));
    taken.map(|(_, service)| service.as_str()).collect()
}

impl Monitor {
    /// Puts the checks of a configuration into force. `known` is asked about servers that no former configuration of this
    /// monitor had.
    pub fn configure(
        &mut self,
        desired: &Desired,
        suspended: &Suspended,
        known: &dyn Fn(&str, &str) -> Option<Known>,
        now: Duration,
    ) {
        self.configured += 1;
        let former = std::mem::take(&mut self.pools);
        let former: HashMap<String, PoolWatch> = former
            .into_iter()
            .map(|pool| (pool.name.clone(), pool))
            .collect();
        for slot in self.slots.iter_mut().flatten() {
            slot.users.clear();
        }
        self.by_name.clear();
        let mut fresh = Vec::new();
        let (ports, services) = (desired.check_ports(), desired.services_by_pool());
        for pool in &desired.pools {
            let asked = Asked {
                pool,
                before: former.get(&pool.name),
                listening: ports.get(pool.name.as_str()).copied(),
                services: services.get(pool.name.as_str()).map_or(&[], Vec::as_slice),
                suspended,
                known,
                now,
            };
            self.add_pool(&asked, &mut fresh);
        }
        self.drop_unused();
        self.arm(&fresh, now);
        self.tell_differences(&former, now);
    }

    fn add_pool(&mut self, asked: &Asked<'_>, fresh: &mut Vec<usize>) {
        let Asked { pool, now, .. } = *asked;
        let at = self.pools.len();
        let mut watch = PoolWatch {
            name: pool.name.clone(),
            services: asked.services.iter().map(|it| it.name.clone()).collect(),
            require: pool.health.require,
            slow_start: pool.health.slow_start,
            servers: BTreeMap::new(),
            names: HashMap::new(),
        };
        for server in pool.servers.iter().chain(&pool.sorry) {
            let key = (server.address, server.port);
            let former = asked.before.and_then(|pool| pool.servers.get(&key));
            let remembered = match former {
                Some(former) => Some(Known::from(&former.standing)),
                None => (asked.known)(&pool.name, &server.name),
            };
            let name = (pool.name.clone(), server.name.clone());
            let is_suspended = asked.suspended.contains(&name);
            let uses = if is_suspended {
                Vec::new()
            } else {
                self.uses(asked, server, (at, key), remembered.as_ref(), fresh)
            };
            if uses.is_empty() && !(is_suspended && remembered.is_some()) {
                continue;
            }
            let standing = former
                .map(|former| former.standing.clone())
                .or_else(|| remembered.map(Standing::from))
                .unwrap_or_else(|| Standing::new(self.combined(watch.require, &uses), now));
            let standing = if is_suspended {
                standing
            } else {
                standing.among(&with_paths(&watch.services, &uses))
            };
            watch.names.insert(server.name.clone(), key);
            watch.servers.insert(
                key,
                ServerWatch {
                    name: server.name.clone(),
                    uses,
                    standing,
                },
            );
        }
        self.by_name.insert(pool.name.clone(), at);
        self.pools.push(watch);
    }

    /// The slots of a server's checks; new ones are noted in `fresh`.
    fn uses(
        &mut self,
        asked: &Asked<'_>,
        server: &Server,
        user: (usize, ServerKey),
        remembered: Option<&Known>,
        fresh: &mut Vec<usize>,
    ) -> Vec<Use> {
        let mut uses = Vec::new();
        for (number, check) in asked.pool.checks_of(server).iter().enumerate() {
            for (path, target) in targets(asked, check, server) {
                let service = path.map(|path| asked.services[path].name.as_str());
                let state = remembered.map(|known| {
                    let path = service.and_then(|service| known.paths.get(service));
                    path.unwrap_or(known).state
                });
                uses.push(Use {
                    slot: self.slot_of(target, user, state, fresh),
                    on_failure: check.on_failure,
                    check: number,
                    path,
                });
            }
        }
        uses
    }

    /// The slot of a target, with one more user.
    fn slot_of(
        &mut self,
        target: Target,
        user: (usize, ServerKey),
        remembered: Option<State>,
        fresh: &mut Vec<usize>,
    ) -> usize {
        let at = match self.by_target.get(&target) {
            Some(at) => *at,
            None => {
                let at = self.add_slot(target, remembered);
                fresh.push(at);
                at
            }
        };
        if let Some(Some(slot)) = self.slots.get_mut(at) {
            if slot.assumed && remembered.is_some() {
                slot.machine = going_on(&slot.target, remembered);
                slot.assumed = false;
            }
            if !slot.users.contains(&user) {
                slot.users.push(user);
            }
        }
        at
    }

    fn add_slot(&mut self, target: Target, remembered: Option<State>) -> usize {
        let target = Arc::new(target);
        let machine = going_on(&target, remembered);
        let slot = Slot {
            assumed: remembered.is_none(),
            target: Arc::clone(&target),
            machine,
            users: Vec::new(),
            due: Duration::ZERO,
            number: 0,
            running: false,
            again: false,
            passed: None,
        };
        let free = self.slots.iter().position(Option::is_none);
        let at = free.unwrap_or(self.slots.len());
        match self.slots.get_mut(at) {
            Some(place) => *place = Some(slot),
            None => self.slots.push(Some(slot)),
        }
        self.by_target.insert(target, at);
        at
    }

    fn drop_unused(&mut self) {
        for place in &mut self.slots {
            if let Some(slot) = place
                && slot.users.is_empty()
            {
                self.by_target.remove(&slot.target);
                *place = None;
            }
        }
    }

    /// First probes spread over a moment that grows with their number, ramps go on.
    fn arm(&mut self, fresh: &[usize], now: Duration) {
        const AT_LEAST: Duration = Duration::from_millis(100);
        const EACH: Duration = Duration::from_micros(200);
        let count = u32::try_from(fresh.len()).unwrap_or(u32::MAX);
        let spread = EACH.saturating_mul(count).max(AT_LEAST);
        for at in fresh {
            if let Some(Some(slot)) = self.slots.get_mut(*at) {
                slot.assumed = false;
                let within = spread.min(slot.target.timing.interval);
                self.last_number += 1;
                slot.number = self.last_number;
                slot.due = now + self.random.below(within);
                self.timers.set(slot.due, Event::Probe(*at, slot.number));
            }
        }
        for (at, pool) in self.pools.iter().enumerate() {
            for (key, server) in &pool.servers {
                if server.standing.is_climbing() {
                    self.timers.set(now, Event::Ramp(at, *key, self.configured));
                }
            }
        }
    }

    /// Servers whose checks say another thing than under the former configuration, and those that have none any more.
    fn tell_differences(&mut self, former: &HashMap<String, PoolWatch>, now: Duration) {
        for at in 0..self.pools.len() {
            let keys: Vec<ServerKey> = self.pools[at].servers.keys().copied().collect();
            for key in keys {
                let before = former
                    .get(&self.pools[at].name)
                    .and_then(|pool| pool.servers.get(&key));
                let reported = self.review(at, key, now, before.is_none());
                let standing = self.pools[at].servers.get(&key).map(|it| &it.standing);
                // Other services than before may have paths.
                if !reported && before.is_some_and(|it| Some(&it.standing) != standing) {
                    self.tell(at, key, None, Vec::new());
                }
            }
        }
        for (name, pool) in former {
            let now = self.by_name.get(name).map(|at| &self.pools[*at]);
            for (key, server) in &pool.servers {
                let stays = now
                    .and_then(|now| now.servers.get(key))
                    .is_some_and(|now| now.name == server.name);
                if !stays {
                    self.outputs.push_back(Output::Server {
                        pool: name.clone(),
                        server: server.name.clone(),
                        standing: None,
                        from: None,
                        paths: Vec::new(),
                    });
                }
            }
        }
    }
}
