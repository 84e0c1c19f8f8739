//! Health checks at work: the driver of [`weir_health::Monitor`], and the probes themselves.
//!
//! One task waits for what is due next and starts each probe as a task of its own; a probe hands its result in and is
//! gone. What follows for servers is gathered as [`HealthEvent`] until the task that owns the engine takes them.
//! Nothing here knows the engine, weights or the kernel's tables.

mod connect;
mod datagram;
mod driver;
mod local;
mod notify;
mod path;
mod probe;
mod source;
mod tls;
mod watch;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use weir_health::{
    Checkpoint, Lateness, Monitor, Output, SavedState, ServerView, Standing, State, Suspended,
};
use weir_model::{Desired, Probe};
use weir_state::{HealthEvent, PoolChange, PoolState};

pub use self::path::Passages;
use crate::snapshot::{CheckStatus, ServerState, Snapshot};

/// How the probing itself does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probing {
    /// Targets that are probed.
    pub targets: usize,
    /// Probes that went out since the daemon began.
    pub probes: u64,
    /// How late they went out.
    pub lateness: Lateness,
}

/// The checks in force. Ends, with all probes, when it is dropped.
#[derive(Debug)]
pub struct Checks {
    shared: Arc<Shared>,
    driver: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    monitor: Mutex<Monitor>,
    news: Mutex<BTreeMap<(String, String), Option<Standing>>>,
    /// Who is told of changes, by pool.
    notified: Mutex<HashMap<String, Vec<String>>>,
    /// Where probes through the path are entered.
    passages: Mutex<Option<Passages>>,
    /// Addresses of services, which no probe may come from.
    vips: Mutex<Arc<HashSet<IpAddr>>>,
    /// What probes by TLS need.
    clients: tls::Clients,
    /// Files of checks.
    files: watch::Watch,
    /// Something may be due earlier than the driver waits for.
    earlier: Notify,
    /// There are news.
    told: Notify,
}

/// Unix time that never runs backwards.
#[derive(Debug)]
struct Clock {
    started: Instant,
    base: Duration,
}

impl Clock {
    fn new() -> Self {
        let base = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            started: Instant::now(),
            base: base.unwrap_or_default(),
        }
    }

    fn now(&self) -> Duration {
        self.base + self.started.elapsed()
    }

    /// The instant of a time on this clock.
    fn instant(&self, time: Duration) -> Instant {
        self.started + time.saturating_sub(self.base)
    }
}

impl Checks {
    /// Without any check. Must be called inside a tokio runtime.
    pub fn start() -> Self {
        let clock = Clock::new();
        let seed = clock.base.as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
        let shared = Arc::new(Shared {
            clock,
            monitor: Mutex::new(Monitor::new(seed)),
            news: Mutex::default(),
            notified: Mutex::default(),
            passages: Mutex::default(),
            vips: Mutex::default(),
            clients: tls::Clients::default(),
            files: watch::Watch::default(),
            earlier: Notify::new(),
            told: Notify::new(),
        });
        let driver = tokio::spawn(driver::drive(Arc::clone(&shared)));
        Self { shared, driver }
    }

    /// Puts the checks of a configuration into force; `known` is asked about servers that are new to them.
    pub fn configure(
        &self,
        desired: &Desired,
        suspended: &Suspended,
        known: &dyn Fn(&str, &str) -> Option<SavedState>,
        passages: Option<Passages>,
    ) {
        self.surround(desired, passages);
        self.change(|monitor, now| monitor.configure(desired, suspended, known, now));
    }

    /// What is known of servers now.
    pub fn checkpoint(&self) -> Checkpoint {
        self.shared.monitor().checkpoint()
    }

    /// The same as [`Self::configure`] for a configuration that comes back, with the states of the checkpoint.
    pub fn restore(
        &self,
        checkpoint: Checkpoint,
        desired: &Desired,
        suspended: &Suspended,
        known: &dyn Fn(&str, &str) -> Option<SavedState>,
        passages: Option<Passages>,
    ) {
        self.surround(desired, passages);
        self.change(|monitor, now| monitor.restore(checkpoint, desired, suspended, known, now));
    }

    /// What probes need of a configuration besides the checks.
    fn surround(&self, desired: &Desired, passages: Option<Passages>) {
        *locked(&self.shared.passages) = passages;
        self.shared.clients.forget();
        let listeners = desired.services.iter().flat_map(|service| &service.listen);
        *locked(&self.shared.vips) = Arc::new(listeners.map(|it| it.address).collect());
        let told = desired
            .pools
            .iter()
            .filter(|pool| !pool.health.notify.is_empty());
        *locked(&self.shared.notified) = told
            .map(|pool| (pool.name.clone(), pool.health.notify.clone()))
            .collect();
    }

    fn change(&self, change: impl FnOnce(&mut Monitor, Duration)) {
        {
            let mut monitor = self.shared.monitor();
            change(&mut monitor, self.shared.clock.now());
            self.shared.gather(&mut monitor);
        }
        self.shared.earlier.notify_one();
    }

    /// Waits until there may be news. Dropping the future loses nothing.
    pub async fn changed(&self) {
        self.shared.told.notified().await;
    }

    /// Takes what was gathered since the last time.
    pub fn take_news(&self) -> Vec<HealthEvent> {
        let gathered = std::mem::take(&mut *locked(&self.shared.news));
        let news = gathered.into_iter();
        news.map(|((pool, server), standing)| HealthEvent {
            pool,
            server,
            standing,
        })
        .collect()
    }

    /// Logs a pool's change, and has programs told of it and of the services whose clients get an answer no more, or
    /// again.
    pub fn tell_turn(&self, turn: &PoolChange, desired: &Desired) {
        let change = |what, from, to| notify::Change {
            pool: turn.pool.clone(),
            what,
            from,
            to,
            reason: turn.to.cause().to_owned(),
        };
        if turn.from != turn.to {
            let (from, to) = (turn.from.as_str(), turn.to.as_str());
            let (pool, cause) = (&turn.pool, turn.to.cause());
            if turn.to == PoolState::Up {
                tracing::info!(pool, from, to, cause, "a pool changed");
            } else {
                tracing::warn!(pool, from, to, cause, "a pool changed");
            }
            self.shared.tell(change(notify::What::Pool, from, to));
        }
        let (before, now) = turn.serves;
        if before == now {
            return;
        }
        let word = |serves| if serves { "up" } else { "down" };
        let layer_4 = desired.services.iter().filter(|it| it.pool == turn.pool);
        let proxied = desired.proxies.iter().filter(|it| it.pool == turn.pool);
        let names = layer_4.map(|it| &it.name).chain(proxied.map(|it| &it.name));
        for name in names {
            let what = notify::What::Service(name.clone());
            self.shared.tell(change(what, word(before), word(now)));
        }
    }

    /// When a probe that went straight to a server passed last, since the Unix epoch.
    pub fn passed(&self, pool: &str, server: &str) -> Option<Duration> {
        self.shared.monitor().last_pass(pool, server)
    }

    /// Adds the present words of checks to a picture of the engine's.
    pub fn annotate(&self, snapshot: &mut Snapshot) {
        let monitor = self.shared.monitor();
        for service in &mut snapshot.services {
            for server in service.servers.iter_mut().filter(|server| !server.removed) {
                let own = Some(service.name.as_str());
                if let Some(view) = monitor.view(&service.pool, &server.name, own) {
                    if is_by_checks(server.state) {
                        server.reason.clone_from(&view.reason);
                    }
                    (server.slow_start, server.checks) = shown(view);
                }
            }
        }
        for service in &mut snapshot.proxies {
            for server in &mut service.servers {
                // Routes lead to pools of their own.
                let (pool, name) = (&server.numbers.pool, &server.numbers.name);
                if let Some(view) = monitor.view(pool, name, None) {
                    if is_by_checks(server.state) {
                        server.reason.clone_from(&view.reason);
                    }
                    (server.slow_start, server.checks) = shown(view);
                }
            }
        }
        snapshot.probing = Probing {
            targets: monitor.targets(),
            probes: monitor.probes(),
            lateness: monitor.lateness(),
        };
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Shared {
    fn monitor(&self) -> MutexGuard<'_, Monitor> {
        locked(&self.monitor)
    }

    fn passages(&self) -> Option<Passages> {
        locked(&self.passages).clone()
    }

    /// Has a file that changed read now.
    fn hurry(&self, file: &Path) {
        let reads =
            |probe: &Probe| matches!(probe, Probe::File { path } if Path::new(path) == file);
        self.monitor().probe_now(reads, self.clock.now());
        self.earlier.notify_one();
    }

    /// Calls the program of a pool that wants to be told.
    fn tell(&self, change: notify::Change) {
        if let Some(command) = locked(&self.notified).get(&change.pool) {
            drop(tokio::spawn(notify::tell(command.clone(), change)));
        }
    }

    fn vips(&self) -> Arc<HashSet<IpAddr>> {
        Arc::clone(&locked(&self.vips))
    }

    /// Sorts the monitor's outputs: probes are started, the rest becomes news.
    fn gather(self: &Arc<Self>, monitor: &mut Monitor) {
        let mut told = false;
        while let Some(output) = monitor.poll_output() {
            match output {
                Output::Probe(order) => drop(tokio::spawn(probe::run(Arc::clone(self), order))),
                Output::Server {
                    pool,
                    server,
                    standing,
                    from,
                    paths,
                } => {
                    if let Some((from, standing)) = from.zip(standing.as_ref()) {
                        log(&pool, &server, from, standing);
                        self.tell(notify::Change {
                            pool: pool.clone(),
                            what: notify::What::Server(server.clone()),
                            from: word(from),
                            to: word(standing.state),
                            reason: standing.reason.clone(),
                        });
                    }
                    for (service, from) in paths {
                        let Some(path) = standing.as_ref().map(|it| it.in_service(&service)) else {
                            continue;
                        };
                        log_path((&pool, &server, &service), from, path);
                        self.tell(notify::Change {
                            pool: pool.clone(),
                            what: notify::What::Path(server.clone(), service),
                            from: word(from),
                            to: word(path.state),
                            reason: path.reason.clone(),
                        });
                    }
                    locked(&self.news).insert((pool, server), standing);
                    told = true;
                }
            }
        }
        if told {
            self.told.notify_one();
        }
    }
}

const fn is_by_checks(state: ServerState) -> bool {
    matches!(
        state,
        ServerState::Up | ServerState::Down | ServerState::Starting
    )
}

/// Slow start, and each check.
fn shown(view: ServerView) -> (Option<u32>, Vec<CheckStatus>) {
    let checks = view.checks.into_iter().map(|check| CheckStatus {
        what: check.what,
        state: word(check.state),
        reason: check.reason,
        results: check.results,
    });
    let ramp = view.standing.ramp;
    ((ramp < 1000).then_some(ramp), checks.collect())
}

/// A probe that panicked left its monitor whole: it is called, and never calls.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn log(pool: &str, server: &str, from: State, standing: &Standing) {
    let (from, to) = (word(from), word(standing.state));
    let cause = standing.reason.as_str();
    if standing.state == State::Down {
        tracing::warn!(pool, server, from, to, cause, "a server went down");
    } else {
        tracing::info!(pool, server, from, to, cause, "a server changed");
    }
}

/// A change in one service alone.
fn log_path((pool, server, service): (&str, &str, &str), from: State, path: &Standing) {
    let (from, to, cause) = (word(from), word(path.state), path.reason.as_str());
    if path.state == State::Down {
        tracing::warn!(
            pool,
            server,
            service,
            from,
            to,
            cause,
            "a server is down for one service"
        );
    } else {
        tracing::info!(
            pool,
            server,
            service,
            from,
            to,
            cause,
            "a server is back for one service"
        );
    }
}

const fn word(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Up => "up",
        State::Down => "down",
    }
}
