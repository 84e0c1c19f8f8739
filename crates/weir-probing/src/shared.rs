//! Manages the state that the health checks share: the monitor, its results, and the probes that it requests.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use weir_health::{Monitor, Outcome, Output, ProbeId, ProbeRequest, ServerHealth, State};
use weir_model::Probe;
use weir_sys::SteadyClock;

use crate::context::{Context, lock};
use crate::watch::{Observer, Watch};
use crate::{notify, probe};

/// State of the checks, used by the driver, running probes and [`crate::Checks`].
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) clock: SteadyClock,
    monitor: Mutex<Monitor>,
    /// State changes that the caller has not taken yet, by pool and server; `None` = the server has no checks.
    pub(crate) changes: Mutex<BTreeMap<(String, String), Option<ServerHealth>>>,
    /// Notify programs, by pool.
    pub(crate) notify_commands: Mutex<HashMap<String, Vec<String>>>,
    pub(crate) notifiers: Mutex<notify::Notifiers>,
    pub(crate) context: Context,
    /// Watched files of `file` checks.
    files: Watch,
    /// Notifies the driver that the next deadline may be earlier than the current one.
    pub(crate) deadline_moved: Notify,
    /// Notifies [`crate::Checks::changed`] of new entries in `changes`.
    pub(crate) changes_pending: Notify,
}

/// Reports a result when dropped, even if the task panics: without a result, the target would never be probed again.
struct Report {
    shared: Arc<SharedState>,
    id: ProbeId,
    outcome: Option<Outcome>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| Outcome::unknown("the probe was aborted"));
        let mut monitor = self.shared.monitor();
        let previous_deadline = monitor.next_deadline();
        monitor.handle_result(self.id, outcome, self.shared.clock.now());
        self.shared.drain_outputs(&mut monitor);
        let is_earlier = monitor.next_deadline() < previous_deadline || previous_deadline.is_none();
        drop(monitor);
        if is_earlier {
            self.shared.deadline_moved.notify_one();
        }
    }
}

async fn run_probe(shared: Arc<SharedState>, request: ProbeRequest) {
    let deadline = shared.clock.instant(request.deadline);
    let mut report = Report {
        shared,
        id: request.id,
        outcome: None,
    };
    if let Probe::File { path } = &request.target.probe {
        let observer = Arc::downgrade(&report.shared);
        report.shared.files.watch(observer, Path::new(path));
    }
    report.outcome = Some(probe::run(&report.shared.context, &request.target, deadline).await);
}

impl Observer for SharedState {
    /// Immediately runs the checks that read the changed file.
    fn file_changed(&self, file: &Path) {
        let is_reader =
            |probe: &Probe| matches!(probe, Probe::File { path } if Path::new(path) == file);
        self.monitor().probe_now(is_reader, self.clock.now());
        self.deadline_moved.notify_one();
    }
}

impl SharedState {
    /// Creates the state without any checks.
    pub(crate) fn new() -> Self {
        let clock = SteadyClock::of_process();
        let seed = clock.now().as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
        Self {
            monitor: Mutex::new(Monitor::new(seed)),
            clock,
            changes: Mutex::default(),
            notify_commands: Mutex::default(),
            notifiers: Mutex::default(),
            context: Context::default(),
            files: Watch::default(),
            deadline_moved: Notify::new(),
            changes_pending: Notify::new(),
        }
    }

    pub(crate) fn monitor(&self) -> MutexGuard<'_, Monitor> {
        lock(&self.monitor)
    }

    /// Runs the pool's notify program, if it has one, and queues the change for notifiers.
    pub(crate) fn notify(&self, change: notify::Change) {
        lock(&self.notifiers).queue(&change);
        if let Some(command) = lock(&self.notify_commands).get(&change.pool) {
            drop(tokio::spawn(notify::run(command.clone(), change)));
        }
    }

    /// Handles the monitor's outputs: starts probes and collects state changes.
    pub(crate) fn drain_outputs(self: &Arc<Self>, monitor: &mut Monitor) {
        let mut changes_pending = false;
        while let Some(output) = monitor.poll_output() {
            match output {
                Output::Probe(request) => drop(tokio::spawn(run_probe(Arc::clone(self), request))),
                Output::HealthChanged {
                    pool,
                    server,
                    server_health,
                    from,
                    paths: path_changes,
                } => {
                    if let Some((from, server_health)) = from.zip(server_health.as_ref()) {
                        log_change(&pool, &server, from, server_health);
                        self.notify(notify::Change {
                            pool: pool.clone(),
                            subject: notify::Subject::Server(server.clone()),
                            from: state_name(from),
                            to: state_name(server_health.state),
                            reason: server_health.reason.clone(),
                        });
                    }
                    for (service, from) in path_changes {
                        let Some(in_service) = server_health
                            .as_ref()
                            .map(|health| health.in_service(&service))
                        else {
                            continue;
                        };
                        log_in_service((&pool, &server, &service), from, in_service);
                        self.notify(notify::Change {
                            pool: pool.clone(),
                            subject: notify::Subject::ServerInService(server.clone(), service),
                            from: state_name(from),
                            to: state_name(in_service.state),
                            reason: in_service.reason.clone(),
                        });
                    }
                    lock(&self.changes).insert((pool, server), server_health);
                    changes_pending = true;
                }
            }
        }
        if changes_pending {
            self.changes_pending.notify_one();
        }
    }
}

/// Logs a state change of a server.
fn log_change(pool: &str, server: &str, from: State, health: &ServerHealth) {
    let (from, to) = (state_name(from), state_name(health.state));
    let cause = health.reason.as_str();
    if health.state == State::Down {
        tracing::warn!(pool, server, from, to, cause, "server went down");
    } else {
        tracing::info!(pool, server, from, to, cause, "server state changed");
    }
}

/// Logs a state change that affects one service only.
fn log_in_service((pool, server, service): (&str, &str, &str), from: State, health: &ServerHealth) {
    let (from, to, cause) = (
        state_name(from),
        state_name(health.state),
        health.reason.as_str(),
    );
    if health.state == State::Down {
        tracing::warn!(
            pool,
            server,
            service,
            from,
            to,
            cause,
            "server went down for one service"
        );
    } else {
        tracing::info!(
            pool,
            server,
            service,
            from,
            to,
            cause,
            "server state changed for one service"
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
