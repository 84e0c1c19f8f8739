//! Schedules the probes for all active checks, and applies their results to servers.
//!
//! Each [`Target`] and each server in a pool has a state. A server is identified by address and port, never by its
//! position, so it keeps its state if the order in the configuration changes. A target that several servers share is
//! probed only once. A new target of a server that is up or down starts in that state, so a reload neither enables a
//! dead server nor disables a live one. Late and repeated results are ignored.

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
use crate::server_health::ServerHealth;
use crate::target::Target;

use timer::{Event, Timers};

pub use checkpoint::Checkpoint;
pub use timer::Lateness;
pub use view::{CheckView, ServerView};

/// Identifies one run of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeId {
    slot: usize,
    number: u64,
}

/// A request to run a probe now.
#[derive(Clone, Debug)]
pub struct ProbeRequest {
    /// Identifies the probe in its result.
    pub id: ProbeId,
    /// What to probe.
    pub target: Arc<Target>,
    /// When the probe fails if no response has arrived.
    pub deadline: Duration,
}

/// An output for the driver to process.
#[derive(Clone, Debug)]
pub enum Output {
    /// Run a probe.
    Probe(ProbeRequest),
    /// A server's health changed.
    HealthChanged {
        /// The server's pool.
        pool: String,
        /// The server's address, as in the configuration file.
        server: String,
        /// The new health; `None` = the server no longer has a check.
        server_health: Option<ServerHealth>,
        /// The previous state, if the state changed.
        from: Option<State>,
        /// Services whose path to the server failed or recovered, each with the server's previous state in the service.
        paths: Vec<(String, State)>,
    },
}

/// A server's state, saved by an earlier run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedState {
    /// The state.
    pub state: State,
    /// When the state began.
    pub since: Duration,
    /// The reason for the state; shown until a check has a result.
    pub reason: String,
    /// The server's states in services with separate paths, by service name.
    pub paths: BTreeMap<String, SavedState>,
}

impl From<&ServerHealth> for SavedState {
    fn from(server_health: &ServerHealth) -> Self {
        Self {
            state: server_health.state,
            since: server_health.since,
            reason: server_health.reason.clone(),
            paths: server_health
                .paths
                .iter()
                .map(|(service, path)| (service.clone(), Self::from(path)))
                .collect(),
        }
    }
}

impl From<SavedState> for ServerHealth {
    fn from(saved: SavedState) -> Self {
        let paths = saved.paths.into_iter();
        Self {
            reason: saved.reason,
            paths: paths
                .map(|(service, path)| (service, Self::from(path)))
                .collect(),
            ..Self::new(saved.state, saved.since)
        }
    }
}

/// Servers that are not probed: pairs of the pool's name and the server's address in the configuration file.
pub type SuspendedServers = HashSet<(String, String)>;

type ServerKey = (IpAddr, Option<u16>);

/// A probe that contributes to a server's state.
#[derive(Clone, Copy, Debug)]
struct ServerProbe {
    slot: usize,
    on_failure: OnFailure,
    /// Index of the check in the server's list: all probes of one check must pass.
    check: usize,
    /// Index of the service whose path the probe takes; `None` = the probe is sent directly to the server.
    path: Option<usize>,
}

#[derive(Clone, Debug)]
struct ServerWatch {
    name: String,
    probes: Vec<ServerProbe>,
    server_health: ServerHealth,
}

impl ServerWatch {
    /// Returns the probes that apply to one of several services: probes on its path, and direct probes of the server.
    fn probes_in(&self, path: usize) -> Vec<ServerProbe> {
        let probes = self.probes.iter().copied();
        probes
            .filter(|probe| probe.path.is_none_or(|other| other == path))
            .collect()
    }
}

#[derive(Clone, Debug)]
struct PoolWatch {
    name: String,
    /// Layer 4 services that use the pool, in file order.
    services: Vec<String>,
    require: Require,
    slow_start: Duration,
    servers: BTreeMap<ServerKey, ServerWatch>,
    keys_by_name: HashMap<String, ServerKey>,
}

#[derive(Clone, Debug)]
struct Slot {
    target: Arc<Target>,
    machine: Machine,
    users: Vec<(usize, ServerKey)>,
    /// Whether the configuration that is being applied added the slot, and no server with a saved state uses it.
    is_state_assumed: bool,
    /// When the next probe is due, or when the running probe was due.
    due: Duration,
    /// Number of the next or running probe.
    number: u64,
    is_running: bool,
    /// Whether to probe again immediately after the running probe, because the checked object changed after the probe
    /// started.
    must_rerun: bool,
    /// When a probe last passed.
    last_pass: Option<Duration>,
    /// When the running probe began.
    started_at: Duration,
    counts: ProbeCounts,
}

/// Statistics about a check's probes since the check was configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Number of probes with a result.
    pub probes: u64,
    /// Number of failed probes.
    pub failures: u64,
    /// Total duration of the probes.
    pub total_duration: Duration,
    /// Duration of the last probe.
    pub last_duration: Duration,
    /// Number of times the check went down.
    pub downs: u64,
    /// Total time that the check was down, excluding the current downtime.
    pub downtime: Duration,
    /// When the check went down, on the driver's clock; `None` = the check is not down.
    pub down_since: Option<Duration>,
    /// The configured numbers of consecutive results after which the state changes to up and to down.
    pub thresholds: (u32, u32),
}

impl ProbeCounts {
    /// Records the state after a result.
    fn record_state(&mut self, state: State, now: Duration) {
        match (state, self.down_since) {
            (State::Down, None) => {
                self.downs += 1;
                self.down_since = Some(now);
            }
            (State::Up | State::Starting, Some(since)) => {
                self.downtime += now.saturating_sub(since);
                self.down_since = None;
            }
            (State::Down, Some(_)) | (State::Up | State::Starting, None) => {}
        }
    }
}

/// Schedules all active checks, and tracks the states of their targets and servers.
#[derive(Clone, Debug)]
pub struct Monitor {
    random: Random,
    pools: Vec<PoolWatch>,
    by_name: HashMap<String, usize>,
    slots: Vec<Option<Slot>>,
    by_target: HashMap<Arc<Target>, usize>,
    timers: Timers,
    last_number: u64,
    /// Number of the current configuration; timers of earlier configurations are ignored.
    generation: u64,
    outputs: VecDeque<Output>,
    probes: u64,
    lateness: Lateness,
}

impl Monitor {
    /// Creates a monitor without checks. `seed` is for jitter.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            pools: Vec::new(),
            by_name: HashMap::new(),
            slots: Vec::new(),
            by_target: HashMap::new(),
            timers: Timers::default(),
            last_number: 0,
            generation: 0,
            outputs: VecDeque::new(),
            probes: 0,
            lateness: Lateness::default(),
        }
    }

    /// Applies the result of a probe.
    pub fn handle_result(&mut self, id: ProbeId, outcome: Outcome, now: Duration) {
        let Some(Some(slot)) = self.slots.get_mut(id.slot) else {
            return;
        };
        if !slot.is_running || slot.number != id.number {
            return;
        }
        slot.is_running = false;
        if outcome.verdict == Verdict::Passed {
            slot.last_pass = Some(now);
        }
        if outcome.verdict != Verdict::Unknown {
            slot.counts.probes += 1;
            slot.counts.failures += u64::from(outcome.verdict == Verdict::Failed);
            slot.counts.last_duration = now.saturating_sub(slot.started_at);
            slot.counts.total_duration += slot.counts.last_duration;
        }
        let changed = slot.machine.handle(outcome);
        slot.counts.record_state(slot.machine.state(), now);
        self.last_number += 1;
        slot.number = self.last_number;
        slot.due = if std::mem::take(&mut slot.must_rerun) {
            now
        } else {
            (slot.due + self.random.jittered(slot.machine.pause())).max(now)
        };
        self.timers
            .set(slot.due, Event::Probe(id.slot, slot.number));
        if changed {
            for (pool, key) in slot.users.clone() {
                self.review(pool, key, now, false);
            }
        }
    }

    /// Makes the affected probes due now, for example after a watched file has changed. Their intervals restart at
    /// `now`.
    pub fn probe_now(&mut self, is_affected: impl Fn(&Probe) -> bool, now: Duration) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot.as_mut().filter(|slot| is_affected(&slot.target.probe)) else {
                continue;
            };
            if slot.is_running {
                slot.must_rerun = true;
            } else {
                // The timer that was set before has the same number. When it is due, the probe runs or has a result,
                // which changes the number.
                slot.due = now;
                self.timers.set(now, Event::Probe(index, slot.number));
            }
        }
    }

    /// Processes all due timers.
    pub fn advance(&mut self, now: Duration) {
        while let Some((due, event)) = self.timers.pop_due(now) {
            match event {
                Event::Probe(slot, number) => self.start_probe(slot, number, now),
                Event::Ramp(pool, key, generation) if generation == self.generation => {
                    self.step_slow_start(pool, key, due, now);
                }
                Event::Ramp(..) => {}
            }
        }
    }

    /// Requests a probe that is due, unless it was rescheduled.
    fn start_probe(&mut self, index: usize, number: u64, now: Duration) {
        let Some(Some(slot)) = self.slots.get_mut(index) else {
            return;
        };
        if slot.is_running || slot.number != number {
            return;
        }
        slot.is_running = true;
        slot.started_at = now;
        self.probes += 1;
        self.lateness.record(now.saturating_sub(slot.due));
        self.outputs.push_back(Output::Probe(ProbeRequest {
            id: ProbeId {
                slot: index,
                number,
            },
            target: Arc::clone(&slot.target),
            deadline: now + slot.target.timing.timeout,
        }));
    }

    /// Runs one step of slow start.
    fn step_slow_start(&mut self, pool_index: usize, key: ServerKey, due: Duration, now: Duration) {
        const STEPS: u32 = 20;
        const MIN_STEP: Duration = Duration::from_millis(100);
        let Some(pool) = self.pools.get_mut(pool_index) else {
            return;
        };
        let slow_start = pool.slow_start;
        let Some(server) = pool.servers.get_mut(&key) else {
            return;
        };
        let before = server.server_health.clone();
        server.server_health.update_ramp(slow_start, now);
        if server.server_health.is_in_slow_start() {
            let next = due + (slow_start / STEPS).max(MIN_STEP);
            self.timers
                .set(next, Event::Ramp(pool_index, key, self.generation));
        }
        if server.server_health != before {
            self.report(pool_index, key, None, Vec::new());
        }
    }

    /// Returns the next output for the driver, or `None` if there are no more.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Self::advance`] must be called next. Earlier calls do nothing.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.timers.next_due()
    }
}
