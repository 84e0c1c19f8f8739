//! Every check in force: which probes are due, and what results do to servers.
//!
//! State belongs to a [`Target`] and to a server of a pool by its address and port, never to a position: whatever order a
//! configuration lists things in, a server keeps what is known of it, and a target that several servers share is probed once.
//! A new target of a server that is already up or down begins in that state, so that no reload lets a dead server in or
//! takes a live one out. Late and repeated results change nothing.

mod checkpoint;
mod configure;
mod review;
mod timer;
mod view;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_model::{OnFailure, Probe, Require};

use crate::machine::{Machine, State};
use crate::outcome::{Outcome, Verdict};
use crate::random::Random;
use crate::standing::Standing;
use crate::target::Target;

use timer::{Event, Timers};

pub use checkpoint::Checkpoint;
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
        /// Services whose path alone broke or works again, with the server's former state in them.
        paths: Vec<(String, State)>,
    },
}

/// What is remembered of a server from a former run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its state.
    pub state: State,
    /// Since when.
    pub since: Duration,
    /// What brought that state; shown until a check has a result of its own.
    pub reason: String,
    /// The same in services with paths of their own.
    pub paths: BTreeMap<String, Known>,
}

impl From<&Standing> for Known {
    fn from(standing: &Standing) -> Self {
        Self {
            state: standing.state,
            since: standing.since,
            reason: standing.reason.clone(),
            paths: standing
                .paths
                .iter()
                .map(|(service, path)| (service.clone(), Self::from(path)))
                .collect(),
        }
    }
}

impl From<Known> for Standing {
    fn from(known: Known) -> Self {
        let paths = known.paths.into_iter();
        Self {
            reason: known.reason,
            paths: paths
                .map(|(service, path)| (service, Self::from(path)))
                .collect(),
            ..Self::new(known.state, known.since)
        }
    }
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
    /// The service whose path it takes, by its place in the pool's; `None` = straight to the server.
    path: Option<usize>,
}

#[derive(Clone, Debug)]
struct ServerWatch {
    name: String,
    uses: Vec<Use>,
    standing: Standing,
}

impl ServerWatch {
    /// What it is judged by in one of several services: its own path, and what goes straight to the server.
    fn uses_in(&self, path: usize) -> Vec<Use> {
        let uses = self.uses.iter().copied();
        uses.filter(|it| it.path.is_none_or(|other| other == path))
            .collect()
    }
}

#[derive(Clone, Debug)]
struct PoolWatch {
    name: String,
    /// Layer 4 services that use it, in file order.
    services: Vec<String>,
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
    /// When a probe passed last.
    passed: Option<Duration>,
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

    /// Takes the result of a probe in.
    pub fn handle_result(&mut self, id: ProbeId, outcome: Outcome, now: Duration) {
        let Some(Some(slot)) = self.slots.get_mut(id.slot) else {
            return;
        };
        if !slot.running || slot.number != id.number {
            return;
        }
        slot.running = false;
        if outcome.verdict == Verdict::Passed {
            slot.passed = Some(now);
        }
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
        let before = server.standing.clone();
        server.standing.climb(slow_start, now);
        if server.standing.is_climbing() {
            let next = due + (slow_start / STEPS).max(SHORTEST);
            self.timers.set(next, Event::Ramp(at, key, self.configured));
        }
        if server.standing != before {
            self.tell(at, key, None, Vec::new());
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
