//! The checks' state: the monitor, its results, and the probes that it starts.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use weir_health::{Monitor, Outcome, Output, ProbeId, ProbeRequest, Standing, State};
use weir_model::Probe;

use crate::context::{Context, locked};
use crate::watch::{Observer, Watch};
use crate::{notify, probe};

/// State of the checks, used by the driver, by running probes and by [`crate::Checks`].
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    monitor: Mutex<Monitor>,
    pub(crate) news: Mutex<BTreeMap<(String, String), Option<Standing>>>,
    /// Programs to notify of changes, by pool.
    pub(crate) notify_commands: Mutex<HashMap<String, Vec<String>>>,
    pub(crate) context: Context,
    /// Watched files of `file` checks.
    files: Watch,
    /// A deadline may be earlier than the one that the driver waits for.
    pub(crate) deadline_moved: Notify,
    /// There are news.
    pub(crate) has_news: Notify,
}

/// Unix time that never goes backwards.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    base: Duration,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let base = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            started: Instant::now(),
            base: base.unwrap_or_default(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.base + self.started.elapsed()
    }

    /// A seed for random numbers.
    fn seed(&self) -> u64 {
        self.base.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
    }

    /// The instant of a time of this clock.
    pub(crate) fn instant(&self, time: Duration) -> Instant {
        self.started + time.saturating_sub(self.base)
    }
}

/// Reports a result even if the task panics: a probe without a result would never be repeated.
struct Report {
    shared: Arc<Shared>,
    id: ProbeId,
    outcome: Option<Outcome>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| Outcome::unknown("the probe was aborted"));
        let mut monitor = self.shared.monitor();
        let before = monitor.next_deadline();
        monitor.handle_result(self.id, outcome, self.shared.clock.now());
        self.shared.drain_outputs(&mut monitor);
        let moved = monitor.next_deadline() < before || before.is_none();
        drop(monitor);
        if moved {
            self.shared.deadline_moved.notify_one();
        }
    }
}

async fn run_probe(shared: Arc<Shared>, request: ProbeRequest) {
    let deadline = shared.clock.instant(request.deadline);
    let mut report = Report {
        shared,
        id: request.id,
        outcome: None,
    };
    if let Probe::File { path } = &request.target.probe {
        let observer = Arc::downgrade(&report.shared);
        report.shared.files.follow(observer, Path::new(path));
    }
    report.outcome = Some(probe::run(&report.shared.context, &request.target, deadline).await);
}

/// Runs the checks that read a changed file now.
impl Observer for Shared {
    fn file_changed(&self, file: &Path) {
        let reads =
            |probe: &Probe| matches!(probe, Probe::File { path } if Path::new(path) == file);
        self.monitor().probe_now(reads, self.clock.now());
        self.deadline_moved.notify_one();
    }
}

impl Shared {
    /// Without any check.
    pub(crate) fn new() -> Self {
        let clock = Clock::new();
        Self {
            monitor: Mutex::new(Monitor::new(clock.seed())),
            clock,
            news: Mutex::default(),
            notify_commands: Mutex::default(),
            context: Context::default(),
            files: Watch::default(),
            deadline_moved: Notify::new(),
            has_news: Notify::new(),
        }
    }

    pub(crate) fn monitor(&self) -> MutexGuard<'_, Monitor> {
        locked(&self.monitor)
    }

    /// Runs the pool's notify program, where it has one.
    pub(crate) fn notify(&self, change: notify::Change) {
        if let Some(command) = locked(&self.notify_commands).get(&change.pool) {
            drop(tokio::spawn(notify::run(command.clone(), change)));
        }
    }

    /// Handles the monitor's outputs: starts probes and collects news.
    pub(crate) fn drain_outputs(self: &Arc<Self>, monitor: &mut Monitor) {
        let mut has_news = false;
        while let Some(output) = monitor.poll_output() {
            match output {
                Output::Probe(request) => drop(tokio::spawn(run_probe(Arc::clone(self), request))),
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
