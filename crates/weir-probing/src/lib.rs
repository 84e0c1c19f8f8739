//! Runs health checks: the driver of [`weir_health::Monitor`], and the probes.
//!
//! One task waits for the next deadline and starts each probe as a task of its own; a probe reports its result and
//! ends. Changes of servers are collected as [`HealthEvent`] until the caller takes them. The engine, weights and the
//! kernel's tables are not known here.

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

pub use path::ProbeTable;

/// Counters of the probing itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probing {
    /// Targets that are probed.
    pub targets: usize,
    /// Probes that were started since the daemon began.
    pub probes: u64,
    /// How late they were started.
    pub lateness: Lateness,
}

/// The active checks. Dropping it ends them and all probes.
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
    /// Programs to notify of changes, by pool.
    notify_commands: Mutex<HashMap<String, Vec<String>>>,
    /// The data plane's table of probes through a service's forward.
    probe_table: Mutex<Option<ProbeTable>>,
    /// Addresses of services: never the source of a probe by accident.
    vips: Mutex<Arc<HashSet<IpAddr>>>,
    /// TLS configurations of probes.
    tls_clients: tls::Clients,
    /// Watched files of `file` checks.
    files: watch::Watch,
    /// A deadline may be earlier than the one that the driver waits for.
    deadline_moved: Notify,
    /// There are news.
    has_news: Notify,
}

/// Unix time that never goes backwards.
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

    /// The instant of a time of this clock.
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
            notify_commands: Mutex::default(),
            probe_table: Mutex::default(),
            vips: Mutex::default(),
            tls_clients: tls::Clients::default(),
            files: watch::Watch::default(),
            deadline_moved: Notify::new(),
            has_news: Notify::new(),
        });
        let driver = tokio::spawn(driver::drive(Arc::clone(&shared)));
        Self { shared, driver }
    }

    /// Applies the checks of a configuration; `known` returns the saved state of a server that is new.
    pub fn configure(
        &self,
        desired: &Desired,
        suspended: &Suspended,
        known: &dyn Fn(&str, &str) -> Option<SavedState>,
        probe_table: Option<ProbeTable>,
    ) {
        self.set_probe_context(desired, probe_table);
        self.change(|monitor, now| monitor.configure(desired, suspended, known, now));
    }

    /// The present states of servers, for [`Self::restore`].
    pub fn checkpoint(&self) -> Checkpoint {
        self.shared.monitor().checkpoint()
    }

    /// Like [`Self::configure`], for a configuration that is rolled back to, with the states of the checkpoint.
    pub fn restore(
        &self,
        checkpoint: Checkpoint,
        desired: &Desired,
        suspended: &Suspended,
        known: &dyn Fn(&str, &str) -> Option<SavedState>,
        probe_table: Option<ProbeTable>,
    ) {
        self.set_probe_context(desired, probe_table);
        self.change(|monitor, now| monitor.restore(checkpoint, desired, suspended, known, now));
    }

    /// Stores what probes need from a configuration in addition to the checks.
    fn set_probe_context(&self, desired: &Desired, probe_table: Option<ProbeTable>) {
        *locked(&self.shared.probe_table) = probe_table;
        self.shared.tls_clients.clear();
        let listeners = desired.services.iter().flat_map(|service| &service.listen);
        *locked(&self.shared.vips) = Arc::new(listeners.map(|it| it.address).collect());
        let notifying = desired
            .pools
            .iter()
            .filter(|pool| !pool.health.notify.is_empty());
        *locked(&self.shared.notify_commands) = notifying
            .map(|pool| (pool.name.clone(), pool.health.notify.clone()))
            .collect();
    }

    fn change(&self, change: impl FnOnce(&mut Monitor, Duration)) {
        {
            let mut monitor = self.shared.monitor();
            change(&mut monitor, self.shared.clock.now());
            self.shared.drain_outputs(&mut monitor);
        }
        self.shared.deadline_moved.notify_one();
    }

    /// Waits until there may be news. Dropping the future loses nothing.
    pub async fn changed(&self) {
        self.shared.has_news.notified().await;
    }

    /// Takes what was collected since the last call.
    pub fn take_news(&self) -> Vec<HealthEvent> {
        let collected = std::mem::take(&mut *locked(&self.shared.news));
        let news = collected.into_iter();
        news.map(|((pool, server), standing)| HealthEvent {
            pool,
            server,
            standing,
        })
        .collect()
    }

    /// Logs a pool's change. Notifies programs of it and of the services that stop or resume serving clients.
    pub fn notify_pool_change(&self, turn: &PoolChange, desired: &Desired) {
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
            self.shared.notify(change(notify::What::Pool, from, to));
        }
        let (before, now) = turn.serves;
        if before == now {
            return;
        }
        let state = |serves| if serves { "up" } else { "down" };
        let layer_4 = desired.services.iter().filter(|it| it.pool == turn.pool);
        let proxied = desired.proxies.iter().filter(|it| it.pool == turn.pool);
        let names = layer_4.map(|it| &it.name).chain(proxied.map(|it| &it.name));
        for name in names {
            let what = notify::What::Service(name.clone());
            self.shared.notify(change(what, state(before), state(now)));
        }
    }

    /// When a direct probe of a server passed last, since the Unix epoch.
    pub fn passed(&self, pool: &str, server: &str) -> Option<Duration> {
        self.shared.monitor().last_pass(pool, server)
    }

    /// The state of a server's checks; for one service, `service`, its checks through that service count too. `None` =
    /// it has no checks.
    pub fn view(&self, pool: &str, server: &str, service: Option<&str>) -> Option<ServerView> {
        self.shared.monitor().view(pool, server, service)
    }

    /// Counters of the probing itself.
    pub fn probing(&self) -> Probing {
        let monitor = self.shared.monitor();
        Probing {
            targets: monitor.targets(),
            probes: monitor.probes(),
            lateness: monitor.lateness(),
        }
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

    fn probe_table(&self) -> Option<ProbeTable> {
        locked(&self.probe_table).clone()
    }

    /// Runs the checks that read a changed file now.
    fn probe_file_now(&self, file: &Path) {
        let reads =
            |probe: &Probe| matches!(probe, Probe::File { path } if Path::new(path) == file);
        self.monitor().probe_now(reads, self.clock.now());
        self.deadline_moved.notify_one();
    }

    /// Runs the pool's notify program, where it has one.
    fn notify(&self, change: notify::Change) {
        if let Some(command) = locked(&self.notify_commands).get(&change.pool) {
            drop(tokio::spawn(notify::run(command.clone(), change)));
        }
    }

    fn vips(&self) -> Arc<HashSet<IpAddr>> {
        Arc::clone(&locked(&self.vips))
    }

    /// Handles the monitor's outputs: starts probes and collects news.
    fn drain_outputs(self: &Arc<Self>, monitor: &mut Monitor) {
        let mut has_news = false;
        while let Some(output) = monitor.poll_output() {
            match output {
                Output::Probe(request) => drop(tokio::spawn(probe::run(Arc::clone(self), request))),
                Output::Server {
                    pool,
                    server,
                    standing,
                    from,
                    paths,
                } => {
                    if let Some((from, standing)) = from.zip(standing.as_ref()) {
                        log(&pool, &server, from, standing);
                        self.notify(notify::Change {
                            pool: pool.clone(),
                            what: notify::What::Server(server.clone()),
                            from: state_name(from),
                            to: state_name(standing.state),
                            reason: standing.reason.clone(),
                        });
                    }
                    for (service, from) in paths {
                        let Some(path) = standing.as_ref().map(|it| it.in_service(&service)) else {
                            continue;
                        };
                        log_path((&pool, &server, &service), from, path);
                        self.notify(notify::Change {
                            pool: pool.clone(),
                            what: notify::What::Path(server.clone(), service),
                            from: state_name(from),
                            to: state_name(path.state),
                            reason: path.reason.clone(),
                        });
                    }
                    locked(&self.news).insert((pool, server), standing);
                    has_news = true;
                }
            }
        }
        if has_news {
            self.has_news.notify_one();
        }
    }
}

/// A poisoned lock is still valid: the monitor calls no code of ours while it is locked.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn log(pool: &str, server: &str, from: State, standing: &Standing) {
    let (from, to) = (state_name(from), state_name(standing.state));
    let cause = standing.reason.as_str();
    if standing.state == State::Down {
        tracing::warn!(pool, server, from, to, cause, "a server went down");
    } else {
        tracing::info!(pool, server, from, to, cause, "a server changed");
    }
}

/// A change in one service only.
fn log_path((pool, server, service): (&str, &str, &str), from: State, path: &Standing) {
    let (from, to, cause) = (
        state_name(from),
        state_name(path.state),
        path.reason.as_str(),
    );
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

const fn state_name(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Up => "up",
        State::Down => "down",
    }
}
