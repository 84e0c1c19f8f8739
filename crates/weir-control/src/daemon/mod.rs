//! Runs the daemon (`weir run`): starts the director, then handles API requests, signals and network events.
//!
//! One task owns the engine and executes one request at a time; API tasks only send requests to it. Stopping changes
//! nothing in the kernel. Pinned and attached programs continue to forward, unless the mount namespace that contains
//! the pins ends, as it does under `ip netns exec`.

mod admin;
mod director;
mod error;
mod file_watch;
mod flow_sync;
mod group;
mod host_warning;
mod local_real_server;
mod reload_guard;
mod reload_history;
mod return_path;
mod separation;
mod startup_warning;
#[cfg(test)]
mod tests;
mod tracked;

use std::collections::VecDeque;
use std::future::pending;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until};
use weir_netlink::ReopeningWatch;
use weir_sys::{Notification, Notifier};

use crate::api::{self, Access, Caller, Command, FileRequest, Listener, RejectionCounters};
use crate::configuration::{self, RememberedSecrets, Secrets};
use crate::history;
use crate::keeper::KeeperState;
use crate::traffic;
use weir_discovery::Membership;
use weir_runtime_dir::SocketAccess;

pub use crate::plane::{LastPassedProbe, Plane, PlaneConfiguration};
pub use crate::runtime_dir::{
    LOCK_FILE, RuntimeDir, SOCKET, active_config_file, active_config_files, last_configuration,
};
pub use admin::{Admin, PreparedAdmin};
pub use director::Director;
use director::{DrainingDaemon, SECRETS};
pub use error::Error;
pub use group::last_group_configuration;
pub use separation::separate;

/// Interval of the plane's periodic maintenance, which detects changes that cause no event.
const TICK: Duration = Duration::from_secs(1);

/// Interval at which changes that other programs made in the kernel are detected and reverted.
const DRIFT_INTERVAL: Duration = Duration::from_millis(500);

/// Interval at which handshake counters are read for passive checks. If reading takes more than
/// 1/[`HANDSHAKE_CPU_SHARE`] of one CPU's time, the interval is longer, up to one [`TICK`].
const HANDSHAKE_INTERVAL: Duration = Duration::from_millis(250);
const HANDSHAKE_CPU_SHARE: u32 = 20;

/// Interval at which a draining daemon checks for remaining clients.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Delay before check results are applied, so that the weights of a pool with thousands of servers are computed once
/// rather than once per result.
const CHECK_BATCH_DELAY: Duration = Duration::from_millis(20);

/// Command-line options of `weir run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Absolute path to the configuration file.
    pub config: PathBuf,
    /// The runtime directory (`--runtime-dir`).
    pub runtime_dir: PathBuf,
    /// The pin directory (`--pin-dir`), which is also needed to maintain the settings of `weir real-server`.
    pub pin_dir: PathBuf,
    /// Whether diagnostics are printed in color.
    pub color: bool,
}

/// Protects keys and secrets in memory from core files and from debuggers run by the same user. ssh-agent does the
/// same. For HAProxy and nginx, the kernel does this when they change their user ID.
pub fn hide_memory() {
    if let Err(error) = weir_sys::set_not_dumpable() {
        tracing::warn!(%error, "failed to disable core files for this process: a core file would contain its secrets");
    }
}

/// Runs the daemon until SIGTERM or SIGINT, or until a successor has taken over and no client remains. `open` creates
/// the plane for the configuration. After a crash, and as a successor, the daemon uses the configuration that was
/// active before, even if the file has changed.
///
/// # Errors
/// Fails if the daemon cannot start; unless the last step (publishing the socket) failed, no part of the configuration
/// has been applied. Also fails if the socket cannot be removed when the daemon stops.
#[expect(clippy::too_many_lines, reason = "wires the daemon together")]
pub async fn run<P: Plane>(
    options: &Options,
    mut keeper_state: KeeperState,
    open: impl AsyncFnOnce(PlaneConfiguration<'_>, &mut KeeperState) -> Result<P, P::Error>,
) -> Result<(), Error> {
    let (file, text) = configuration_to_load(options, &keeper_state);
    let remembered = keeper_state.take_file(SECRETS).map(RememberedSecrets::read);
    let secrets = match &remembered {
        Some(remembered) if keeper_state.keeps_configuration() => Secrets::Remembered(remembered),
        _ => Secrets::Read,
    };
    let group = last_group_configuration(&options.runtime_dir);
    let loaded = configuration::load_in_group(&text, options.color, secrets, group.as_ref())?;
    for line in loaded.findings.lines() {
        eprintln!("{line}");
    }
    if traffic::needs_engine(&loaded.desired) && keeper_state.engine.is_none() {
        traffic::check_capabilities()?;
    }
    // Each proxied connection, running probe, map, program and link needs descriptors.
    if let Err(error) = weir_sys::raise_nofile() {
        tracing::warn!(%error, "failed to raise the open-file limit: the number of connections and probes is limited");
    }
    tracing::info!(file = %file.display(), "starting");
    let notifier = Notifier::from_env()?;
    let mut runtime_dir = if keeper_state.has_keeper() {
        RuntimeDir::open_with_keeper(&options.runtime_dir)?
    } else {
        RuntimeDir::acquire(&options.runtime_dir)?
    };
    let group = group.as_ref();
    let loaded = configuration::with_published_files(loaded, group, runtime_dir.path())?;
    runtime_dir.set_access(SocketAccess::from_node(&loaded.desired.node)?)?;
    if let Err(error) = runtime_dir.record_namespace() {
        tracing::warn!(%error, "failed to record the network namespace: `weir clean` will not check it");
    }
    let mut signals = Signals::new().map_err(|source| Error::Signals { source })?;
    // Open the watch before the engine reads its tables, so that no change is missed.
    let network = ReopeningWatch::open()?;
    let (commands, requests) = api::command_queue();
    let rejections = Arc::new(RejectionCounters::default());
    let token = runtime_dir.token()?;
    let mut admin = Admin::new(
        commands.clone(),
        token,
        Arc::clone(&rejections),
        &mut keeper_state,
    );
    let prepared_admin = admin.prepare(loaded.desired.node.admin.as_ref()).await?;
    let mut membership = Membership::new(&options.runtime_dir);
    membership.resolve_new(&loaded.desired).await;
    let lists = membership.read_for_start(&loaded.desired);
    let desired = lists.added_to(&loaded.desired);
    // Perform all other steps that can fail first, because an open plane accepts clients.
    let listener = runtime_dir.listen()?;
    let plane_configuration = PlaneConfiguration {
        desired: &desired,
        configured: &loaded.desired,
        text: &loaded.text,
    };
    let engine = open(plane_configuration, &mut keeper_state)
        .await
        .map_err(|error| {
            runtime_dir.remove_temporary_socket();
            Error::Engine {
                source: Box::new(error),
            }
        })?;
    runtime_dir.publish_socket()?;
    let router = api::router(commands, &Access::Unix, &rejections);
    let api_server = tokio::spawn(api::serve(Listener::Unix(listener), router));
    admin.commit(prepared_admin);
    let added_vips = format_vips(&engine.added_vips());
    tracing::info!(
        file = %file.display(),
        holds = configuration::object_counts(&loaded.desired),
        added = added_vips,
        "running"
    );
    keeper_state.report_ready();
    notify(&notifier, Notification::Ready);
    let attached = host_warning::attached_interfaces(&engine, &desired, &desired);
    startup_warning::warn_in_background(desired, engine.added_vips(), attached, file.clone());
    let mut director = Director::new(
        engine,
        loaded,
        file,
        admin,
        runtime_dir,
        (membership, lists),
    );
    director.set_keeper(&keeper_state);
    // An unprivileged daemon cannot change these settings.
    if weir_sys::privileged::helper().is_none() {
        director.manage_real_server(&options.runtime_dir, &options.pin_dir);
    }
    serve(&mut director, requests, network, &mut signals, &notifier).await;
    if director.has_successor() {
        drain(director, &mut signals).await;
        api_server.abort();
        return Ok(());
    }
    notify(&notifier, Notification::Stopping);
    director.leave_group();
    director.drain().await;
    let effects = director.effects_of_stop();
    director.close()?;
    tracing::info!("stopped{effects}");
    Ok(())
}

/// Returns the added VIPs for the log, such as `10.0.0.10 on eth0`; `None` = there are none.
fn format_vips(added: &[(String, IpAddr)]) -> Option<String> {
    let vips = added.iter().map(|(name, vip)| format!("{vip} on {name}"));
    (!added.is_empty()).then(|| vips.collect::<Vec<_>>().join(", "))
}

/// Runs a daemon whose successor has taken over, until its clients are handed over or have disconnected.
async fn drain<P: Plane>(director: Director<P>, signals: &mut Signals) {
    let Some(DrainingDaemon {
        mut plane,
        mut record,
        successor,
        channel,
        limit,
    }) = director.into_draining()
    else {
        return;
    };
    plane.hand_over(channel);
    record.update(|| plane.remaining_connections());
    loop {
        tokio::select! {
            // The first delay also gives the API time to send the response to the upgrade request.
            () = sleep(DRAIN_POLL_INTERVAL) => {
                if plane.is_handed_over() {
                    break;
                }
                record.update(|| plane.remaining_connections());
            }
            // The signal was sent to this process during the upgrade.
            _ = signals.reload.recv() => forward_signal(Signal::HUP, successor),
            _ = signals.terminate.recv() => {
                plane.close(limit).await;
                break;
            }
            _ = signals.interrupt.recv() => {
                plane.close(limit).await;
                break;
            }
        }
    }
    tracing::info!("no client remains; the process exits");
}

fn forward_signal(signal: Signal, process: u32) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some(Err(error)) = pid.map(|pid| kill_process(pid, signal)) {
        tracing::warn!(%error, "failed to forward a signal to the active daemon");
    }
}

/// Returns the configuration file path, and the file from which to read the text.
fn configuration_to_load(options: &Options, keeper_state: &KeeperState) -> (PathBuf, PathBuf) {
    let recorded = (
        last_configuration(&options.runtime_dir),
        active_config_file(&options.runtime_dir),
    );
    match recorded {
        (Some(file), Some(text)) if keeper_state.keeps_configuration() => (file, text),
        _ => (options.config.clone(), options.config.clone()),
    }
}

/// Returns the next request: first those that were postponed during an upgrade.
async fn next_request(
    postponed: &mut VecDeque<Command>,
    requests: &mut mpsc::Receiver<Command>,
) -> Option<Command> {
    match postponed.pop_front() {
        Some(command) => Some(command),
        None => requests.recv().await,
    }
}

/// Executes a request. Returns the requests that were postponed in the meantime.
async fn execute<P: Plane>(
    director: &mut Director<P>,
    command: Command,
    requests: &mut mpsc::Receiver<Command>,
    notifier: &Notifier,
) -> VecDeque<Command> {
    match command {
        Command::Upgrade(request, reply) => {
            let (result, postponed) = director.upgrade(request, requests).await;
            let _ = reply.send(result);
            return postponed;
        }
        Command::Reload(..) => {
            notify(notifier, Notification::Reloading);
            director.execute(command).await;
            notify(notifier, Notification::Ready);
        }
        _ => director.execute(command).await,
    }
    VecDeque::new()
}

#[expect(clippy::cognitive_complexity, reason = "one arm for each event")]
async fn serve<P: Plane>(
    director: &mut Director<P>,
    mut requests: mpsc::Receiver<Command>,
    mut network: ReopeningWatch,
    signals: &mut Signals,
    notifier: &Notifier,
) {
    let (mut ticks, mut drift_checks) = (ticker(TICK), ticker(DRIFT_INTERVAL));
    let (mut apply_checks_at, mut handshakes_at) = (None, Instant::now() + HANDSHAKE_INTERVAL);
    let (mut latency_at, mut sync_at) = (Instant::now(), Instant::now());
    let mut history_at = Instant::now();
    let mut certificates = ticker(file_watch::INTERVAL);
    let mut postponed = VecDeque::new();
    loop {
        tokio::select! {
            Some(command) = next_request(&mut postponed, &mut requests) => {
                postponed.extend(execute(director, command, &mut requests, notifier).await);
                if director.has_successor() {
                    return;
                }
            }
            () = director.wait_for_check_results(), if apply_checks_at.is_none() => {
                apply_checks_at = Some(Instant::now() + CHECK_BATCH_DELAY);
            }
            () = sleep_until_some(apply_checks_at) => {
                apply_checks_at = None;
                if let Err(error) = director.apply_check_results().await {
                    tracing::warn!(%error, "failed to apply health check results");
                }
            }
            () = director.wait_for_list_change() => director.apply_lists().await,
            event = director.wait_for_group() => director.handle_group(event).await,
            event = network.next() => match event {
                Ok(event) => {
                    director.pass_event_to_sync(&event);
                    if let Err(error) = director.plane().network_event(&event).await {
                        tracing::warn!(%error, "failed to handle a netlink event");
                    }
                }
                Err(error) => tracing::error!(%error, "the netlink watch failed"),
            },
            () = sleep_until(handshakes_at) => handshakes_at = read_handshakes(director),
            () = sleep_until(latency_at) => latency_at = publish_latency(director),
            () = sleep_until(history_at) => history_at = record_history(director),
            () = sleep_until(sync_at) => sync_at = Instant::now() + director.synchronize(),
            _ = drift_checks.tick() => {
                director.plane().repair_drift().await;
                director.report_tracked();
                director.repair_real_server().await;
            }
            _ = certificates.tick() => director.watch_files().await,
            _ = ticks.tick() => {
                network.reopen();
                if let Err(error) = director.plane().tick().await {
                    tracing::warn!(%error, "the periodic maintenance failed");
                }
                director.notify_pool_changes();
                director.check_guard().await;
                if director.update_list_watches() {
                    director.apply_lists().await;
                }
            }
            _ = signals.reload.recv() => reload_by_signal(director, notifier).await,
            _ = signals.reopen.recv() => weir_proxy::reopen_logs(),
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
        }
    }
}

/// Reloads after a signal. There is no response to a signal, so the findings are written to stderr.
async fn reload_by_signal(director: &mut Director<impl Plane>, notifier: &Notifier) {
    notify(notifier, Notification::Reloading);
    let (request, caller) = (FileRequest::default(), Caller::this_process());
    let findings = match director.reload(&request, &caller).await {
        Ok(reloaded) => reloaded.findings,
        Err(error) => error.diagnostics.unwrap_or_default(),
    };
    for line in findings.lines() {
        eprintln!("{line}");
    }
    notify(notifier, Notification::Ready);
}

/// Reads the handshake counters. Returns the time of the next call.
fn read_handshakes(director: &mut Director<impl Plane>) -> Instant {
    let start = Instant::now();
    if let Err(error) = director.read_handshakes() {
        tracing::warn!(%error, "failed to apply passive checks");
    }
    let pause = (start.elapsed() * HANDSHAKE_CPU_SHARE).clamp(HANDSHAKE_INTERVAL, TICK);
    Instant::now() + pause
}

/// Adds a point to the history. Returns the time of the next call.
fn record_history(director: &mut Director<impl Plane>) -> Instant {
    let start = Instant::now();
    if let Err(error) = director.record_history() {
        tracing::warn!(%error, "failed to read the totals for the history");
    }
    let pause =
        (start.elapsed() * history::CPU_SHARE).clamp(history::INTERVAL, history::MAX_INTERVAL);
    Instant::now() + pause
}

/// Publishes the costs of `least-time`. Returns the time of the next call.
fn publish_latency(director: &mut Director<impl Plane>) -> Instant {
    let pause = director.plane().publish_latency();
    let pause = pause.unwrap_or_else(|error| {
        tracing::warn!(%error, "failed to publish latencies");
        None
    });
    Instant::now() + pause.unwrap_or(TICK)
}

/// Completes at `instant`; never completes if `instant` is `None`.
async fn sleep_until_some(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}

fn ticker(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Notifies the service manager. Failures are logged but are not fatal.
fn notify(notifier: &Notifier, notification: Notification<'_>) {
    if let Err(error) = notifier.send(notification) {
        tracing::warn!(%error, "failed to notify the service manager");
    }
}

#[derive(Debug)]
struct Signals {
    reload: unix::Signal,
    reopen: unix::Signal,
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            reload: unix::signal(SignalKind::hangup())?,
            reopen: unix::signal(SignalKind::user_defined1())?,
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
        })
    }
}
