//! Every check in force: which probes are due, and what results do to servers.
//!
//! State belongs to a [`Target`] and to a server of a pool by its address and port, never to a position: whatever order a
//! configuration lists things in, a server keeps what is known of it, and a target that several servers share is probed once.
//! A new target of a server that is already up or down begins in that state, so that no reload lets a dead server in or
//! takes a live one out. Late and repeated results change nothing.

mod timer;
mod view;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_model::{Check, Desired, OnFailure, Pool, Probe, Require, Server, Service, Start, Via};

use crate::machine::{Machine, State};
use crate::outcome::Outcome;
use crate::random::Random;
use crate::standing::{Standing, combine, deciding, ramp, removes};
use crate::target::Target;

use timer::{Event, Timers};

pub use timer::Lateness;
pub use view::{CheckView, ServerView};

/// One run of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeId {
    slot: usize,
    number: u64,
}

/// A probe to run now.
#[derive(Clone, Debug)]
pub struct Order {
    /// Whose result it will be.
    pub id: ProbeId,
    /// What to do.
    pub target: Arc<Target>,
    /// When it has failed.
    pub deadline: Duration,
}

/// What the driver must do.
#[derive(Clone, Debug)]
pub enum Output {
    /// Run a probe.
    Probe(Order),
    /// What checks say of a server is another thing now.
    Server {
        /// Its pool.
        pool: String,
        /// Its address as in the file.
        server: String,
        /// `None` = no check is left.
        standing: Option<Standing>,
        /// The former state, when that is another.
        from: Option<State>,
    },
}

/// What is remembered of a server from a former run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its state.
    pub state: State,
    /// Since when.
    pub since: Duration,
}

/// Servers that no probe goes to, by pool and address as in the file.
pub type Suspended = HashSet<(String, String)>;

type ServerKey = (IpAddr, Option<u16>);

/// What a server is judged by.
#[derive(Clone, Copy, Debug)]
struct Use {
    slot: usize,
    on_failure: OnFailure,
    /// Which check of the server's, by its place: all probes of one check must pass.
    check: usize,
}

#[derive(Clone, Debug)]
struct ServerWatch {
    name: String,
    uses: Vec<Use>,
    standing: Standing,
    ramping: Option<Duration>,
}

#[derive(Clone, Debug)]
struct PoolWatch {
    name: String,
    require: Require,
    slow_start: Duration,
    servers: BTreeMap<ServerKey, ServerWatch>,
    names: HashMap<String, ServerKey>,
}

#[derive(Clone, Debug)]
struct Slot {
    target: Arc<Target>,
    machine: Machine,
    users: Vec<(usize, ServerKey)>,
    /// New in the configuration that is being put into force, and nothing known of the server of its first user.
    assumed: bool,
    /// When the next probe goes out, or the present one did.
    due: Duration,
    /// Of the next or present probe.
    number: u64,
    running: bool,
    /// What is probed changed while the probe ran.
    again: bool,
}

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

/// Where the probes of a check of a server go.
fn targets(asked: &Asked<'_>, check: &Check, server: &Server) -> Vec<Target> {
    let straight = Target::new(check, server, check.port(server, asked.listening));
    let services = asked.services.iter();
    let mut ways: Vec<Target> = Vec::new();
    if check.aim.via.through_path() {
        for way in services.filter_map(|service| check.way(service, server)) {
            let target = straight.clone().through(way);
            if !ways.contains(&target) {
                ways.push(target);
            }
        }
    }
    if check.aim.via != Via::Path || ways.is_empty() {
        ways.insert(0, straight);
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

/// See the module.
#[derive(Clone, Debug)]
pub struct Monitor {
    random: Random,
    pools: Vec<PoolWatch>,
    by_name: HashMap<String, usize>,
    slots: Vec<Option<Slot>>,
    by_target: HashMap<Arc<Target>, usize>,
    timers: Timers,
    last_number: u64,
    /// Counts configurations, so that timers of former ones are told.
    configured: u64,
    outputs: VecDeque<Output>,
    probes: u64,
    lateness: Lateness,
}

impl Monitor {
    /// Without any check; `seed` is for jitter.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            pools: Vec::new(),
            by_name: HashMap::new(),
            slots: Vec::new(),
            by_target: HashMap::new(),
            timers: Timers::default(),
            last_number: 0,
            configured: 0,
            outputs: VecDeque::new(),
            probes: 0,
            lateness: Lateness::default(),
        }
    }

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
            require: pool.health.require,
            slow_start: pool.health.slow_start,
            servers: BTreeMap::new(),
            names: HashMap::new(),
        };
        for server in pool.servers.iter().chain(&pool.sorry) {
            let key = (server.address, server.port);
            let former = asked.before.and_then(|pool| pool.servers.get(&key));
            let remembered = match former {
                Some(former) => Some(Known {
                    state: former.standing.state,
                    since: former.standing.since,
                }),
                None => (asked.known)(&pool.name, &server.name),
            };
            let name = (pool.name.clone(), server.name.clone());
            let is_suspended = asked.suspended.contains(&name);
            let uses = if is_suspended {
                Vec::new()
            } else {
                self.uses(asked, server, (at, key), remembered, fresh)
            };
            if uses.is_empty() && !(is_suspended && remembered.is_some()) {
                continue;
            }
            let mut standing = former.map(|former| former.standing.clone()).or_else(|| {
                let known = remembered?;
                Some(Standing::new(known.state, known.since))
            });
            let standing = standing
                .take()
                .unwrap_or_else(|| Standing::new(self.combined(watch.require, &uses), now));
            watch.names.insert(server.name.clone(), key);
            watch.servers.insert(
                key,
                ServerWatch {
                    name: server.name.clone(),
                    uses,
                    standing,
                    ramping: former.and_then(|former| former.ramping),
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
        remembered: Option<Known>,
        fresh: &mut Vec<usize>,
    ) -> Vec<Use> {
        let mut uses = Vec::new();
        for (number, check) in asked.pool.checks_of(server).iter().enumerate() {
            for target in targets(asked, check, server) {
                let slot = self.slot_of(target, user, remembered, fresh);
                uses.push(Use {
                    slot,
                    on_failure: check.on_failure,
                    check: number,
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
        remembered: Option<Known>,
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
            if slot.assumed
                && let Some(Known { state, .. }) = remembered
            {
                slot.machine = going_on(&slot.target, Some(state));
                slot.assumed = false;
            }
            if !slot.users.contains(&user) {
                slot.users.push(user);
            }
        }
        at
    }

    fn add_slot(&mut self, target: Target, remembered: Option<Known>) -> usize {
        let target = Arc::new(target);
        let machine = going_on(&target, remembered.map(|known| known.state));
        let slot = Slot {
            assumed: remembered.is_none(),
            target: Arc::clone(&target),
            machine,
            users: Vec::new(),
            due: Duration::ZERO,
            number: 0,
            running: false,
            again: false,
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
                if server.ramping.is_some() {
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
                self.review(at, key, now, before.is_none());
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
                    });
                }
            }
        }
    }

    /// Takes the result of a probe in.
    pub fn handle_result(&mut self, id: ProbeId, outcome: Outcome, now: Duration) {
        let Some(Some(slot)) = self.slots.get_mut(id.slot) else {
            return;
        };
        if !slot.running || slot.number != id.number {
            return;
        }
        slot.running = false;
        let changed = slot.machine.handle(outcome);
        self.last_number += 1;
        slot.number = self.last_number;
        slot.due = if std::mem::take(&mut slot.again) {
            now
        } else {
            (slot.due + self.random.around(slot.machine.pause())).max(now)
        };
        self.timers
            .set(slot.due, Event::Probe(id.slot, slot.number));
        if changed {
            for (pool, key) in slot.users.clone() {
                self.review(pool, key, now, false);
            }
        }
    }

    /// Makes probes due now whose answer is known to be another one; further ones follow at the interval from here.
    pub fn hurry(&mut self, which: impl Fn(&Probe) -> bool, now: Duration) {
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot.as_mut().filter(|slot| which(&slot.target.probe)) else {
                continue;
            };
            if slot.running {
                slot.again = true;
            } else {
                self.last_number += 1;
                (slot.due, slot.number) = (now, self.last_number);
                self.timers.set(now, Event::Probe(at, slot.number));
            }
        }
    }

    /// Starts what is due.
    pub fn advance(&mut self, now: Duration) {
        while let Some((due, event)) = self.timers.due(now) {
            match event {
                Event::Probe(at, number) => self.start(at, number, now),
                Event::Ramp(pool, key, configured) if configured == self.configured => {
                    self.climb(pool, key, due, now);
                }
                Event::Ramp(..) => {}
            }
        }
    }

    fn start(&mut self, at: usize, number: u64, now: Duration) {
        let Some(Some(slot)) = self.slots.get_mut(at) else {
            return;
        };
        if slot.running || slot.number != number {
            return;
        }
        slot.running = true;
        self.probes += 1;
        self.lateness.note(now.saturating_sub(slot.due));
        self.outputs.push_back(Output::Probe(Order {
            id: ProbeId { slot: at, number },
            target: Arc::clone(&slot.target),
            deadline: now + slot.target.timing.timeout,
        }));
    }

    /// A step of slow start.
    fn climb(&mut self, at: usize, key: ServerKey, due: Duration, now: Duration) {
        const STEPS: u32 = 20;
        const SHORTEST: Duration = Duration::from_millis(100);
        let Some(pool) = self.pools.get_mut(at) else {
            return;
        };
        let slow_start = pool.slow_start;
        let Some(server) = pool.servers.get_mut(&key) else {
            return;
        };
        let Some(since) = server.ramping else { return };
        let height = ramp(now.saturating_sub(since), slow_start);
        if height < 1000 {
            let next = due.max(since) + (slow_start / STEPS).max(SHORTEST);
            self.timers.set(next, Event::Ramp(at, key, self.configured));
        } else {
            server.ramping = None;
        }
        if server.standing.ramp != height {
            server.standing.ramp = height;
            self.tell(at, key, None);
        }
    }

    /// Works a server's standing out again and tells of it where it differs, or when it is new.
    fn review(&mut self, at: usize, key: ServerKey, now: Duration, is_new: bool) {
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

    fn tell(&mut self, at: usize, key: ServerKey, from: Option<State>) {
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

    fn slot(&self, used: &Use) -> Option<&Slot> {
        self.slots.get(used.slot)?.as_ref()
    }

    fn combined(&self, require: Require, uses: &[Use]) -> State {
        let of_one = |uses: &[Use]| {
            let slots = uses.iter().filter_map(|it| self.slot(it));
            combine(Require::All, slots.map(|slot| slot.machine.state()))
        };
        let checks = uses.chunk_by(|a, b| a.check == b.check);
        combine(require, checks.map(of_one))
    }

    /// What a state is explained by. Where probes to the server itself pass and those through the forward fail, both are said.
    fn why(&self, state: State, uses: &[Use], word: &dyn Fn(&Machine) -> String) -> String {
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

    /// The next thing to do, until there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::advance`] has something to do; earlier calls do nothing.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }
}
