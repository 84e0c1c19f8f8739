//! `weir run`: from arguments to a director that serves orders, signals and the network's changes until it is asked to
//! end.
//!
//! One task owns the engine and does one thing at a time; the API's tasks only pass orders to it. Ending changes
//! nothing in the kernel: what is pinned and attached forwards on.

mod admin;
mod director;
mod draining;
mod error;
mod local_real_server;
mod plane;
mod reload_guard;
mod runtime_dir;
#[cfg(test)]
mod tests;

use std::future::pending;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until};
use weir_model::Desired;
use weir_netlink::{Event, Netlink, Watch};
use weir_sys::{Notification, Notifier};

use crate::api::{self, Access, Caller, FileRequest, Listener, Order, Refused};
use crate::configuration::{self, Remembered, Secrets};
use crate::keeper::Kept;
use crate::traffic;
use weir_discovery::Membership;
use weir_runtime_dir::SocketAccess;

pub use admin::{Admin, PreparedAdmin};
pub use director::Director;
use director::DrainingDaemon;
pub use error::Error;
pub use plane::Plane;
pub use runtime_dir::{LOCK, RuntimeDir, SOCKET, last_configuration, last_text};

/// Secrets from files and the environment, for the keeper: after a death what was active goes on, and they may be
/// others or gone by then.
const SECRETS: &str = "secrets";

/// How often the engine looks after what nothing tells it.
const TICK: Duration = Duration::from_secs(1);

/// How often what is in the kernel is compared with what Weir put there.
const DRIFT_INTERVAL: Duration = Duration::from_millis(500);

/// How often clients' packets are asked what servers are like. With so many servers that this would take more than
/// one part in [`HANDSHAKE_CPU_SHARE`] of a processor it is done more seldom, once a [`TICK`] at least.
const HANDSHAKE_INTERVAL: Duration = Duration::from_millis(250);
const HANDSHAKE_CPU_SHARE: u32 = 20;

/// How often a daemon that has been succeeded looks whether it still has clients.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What checks say is gathered so long before it is put into force: a pool of thousands is weighed once, not once a
/// result.
const CHECK_BATCH_DELAY: Duration = Duration::from_millis(20);

/// What the command line gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The configuration, absolute.
    pub config: PathBuf,
    /// `--runtime-dir`.
    pub runtime_dir: PathBuf,
    /// `--pin-dir`: what `weir real-server` set up there is looked after as well.
    pub pin_dir: PathBuf,
    /// Whether findings about the file may have colours.
    pub color: bool,
}

/// Keeps keys and secrets in this process's memory: neither a core file nor a debugger of the same user shows them.
/// ssh-agent does so, and the kernel does it to HAProxy and nginx when they change from root to another user.
pub fn hide_memory() {
    if let Err(error) = weir_sys::hide_memory() {
        tracing::warn!(%error, "a core file of this process would hold its secrets");
    }
}

/// Runs until SIGTERM or SIGINT, with the engine that `open` brings up for the file's configuration. After a death, and
/// as a successor, it is the configuration that was active, whatever the file contains now.
///
/// # Errors
/// It could not start; then nothing of the configuration was applied.
#[expect(clippy::too_many_lines, reason = "wires the daemon together")]
pub async fn run<P: Plane>(
    options: &Options,
    mut kept: Kept,
    open: impl AsyncFnOnce(&Desired, &mut Kept) -> Result<P, P::Error>,
) -> Result<(), Error> {
    let (file, text) = configuration_to_load(options, &kept);
    let remembered = kept.take_file(SECRETS).map(Remembered::read);
    let secrets = match &remembered {
        Some(remembered) if kept.keeps_configuration() => Secrets::Remembered(remembered),
        _ => Secrets::Read,
    };
    let loaded = configuration::load_with(&text, options.color, secrets)?;
    for line in loaded.findings.lines() {
        eprintln!("{line}");
    }
    if traffic::needs_engine(&loaded.desired) {
        traffic::check_rights()?;
    }
    // Proxied connections, probes under way, maps, programs and links each hold a descriptor.
    if let Err(error) = weir_sys::raise_nofile() {
        tracing::warn!(%error, "few connections and probes can be open at a time");
    }
    tracing::info!(file = %file.display(), "starting");
    let notifier = Notifier::from_env()?;
    let mut runtime_dir = if kept.is_kept() {
        RuntimeDir::kept(&options.runtime_dir)?
    } else {
        RuntimeDir::take(&options.runtime_dir)?
    };
    runtime_dir.set_access(SocketAccess::of(&loaded.desired.node)?)?;
    let mut signals = Signals::new().map_err(|source| Error::Signals { source })?;
    // Before the engine reads its tables, so that no change falls between.
    let network = Network::open()?;
    let (orders, taken) = api::orders();
    let refused = Arc::new(Refused::default());
    let token = runtime_dir.token()?;
    let mut admin = Admin::new(orders.clone(), token, Arc::clone(&refused), &mut kept);
    let to = admin.prepare(loaded.desired.node.admin.as_ref()).await?;
    let mut membership = Membership::new(&options.runtime_dir);
    membership.resolve_new(&loaded.desired).await;
    let lists = membership.first_lists(&loaded.desired);
    // What can fail comes first: once the plane is open it takes clients.
    let listener = runtime_dir.listen()?;
    let engine = open(&lists.added_to(&loaded.desired), &mut kept)
        .await
        .map_err(|error| {
            runtime_dir.withdraw();
            Error::Engine {
                source: Box::new(error),
            }
        })?;
    runtime_dir.publish_socket()?;
    let router = api::router(orders, &Access::Unix, &refused);
    let answers = tokio::spawn(api::serve(Listener::Unix(listener), router));
    admin.commit(to);
    let added = vips(&engine.added_vips());
    tracing::info!(
        file = %file.display(),
        holds = configuration::extent(&loaded.desired),
        added,
        "running"
    );
    kept.ready();
    notify(&notifier, Notification::Ready);
    let mut director = Director::new(
        engine,
        loaded,
        file,
        admin,
        runtime_dir,
        (membership, lists),
    );
    director.set_keeper(&kept);
    director.manage_real_server(&options.runtime_dir, &options.pin_dir);
    serve(&mut director, taken, network, &mut signals, &notifier).await;
    if director.is_succeeded() {
        drain(director, &mut signals).await;
        answers.abort();
        return Ok(());
    }
    notify(&notifier, Notification::Stopping);
    director.drain().await;
    director.close()?;
    tracing::info!("stopped; what is in the kernel forwards on");
    Ok(())
}

/// VIPs that Weir added, for the log: `10.0.0.10 on eth0`; `None` = none, and the field is left out.
fn vips(added: &[(String, IpAddr)]) -> Option<String> {
    let vips = added.iter().map(|(name, vip)| format!("{vip} on {name}"));
    (!added.is_empty()).then(|| vips.collect::<Vec<_>>().join(", "))
}

/// What a daemon that has been succeeded still does: its clients go over, or come to their end here.
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
    loop {
        tokio::select! {
            // Also long enough for the answer to whoever asked for the upgrade.
            () = sleep(DRAIN_POLL_INTERVAL) => {
                if plane.is_handed_over() {
                    break;
                }
                record.update(|| plane.clients());
            }
            // It came when this one was busy with its succession.
            _ = signals.reload.recv() => pass_on(Signal::HUP, successor),
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
    tracing::info!("the last client is gone");
}

fn pass_on(signal: Signal, to: u32) {
    let pid = i32::try_from(to).ok().and_then(Pid::from_raw);
    if let Some(Err(error)) = pid.map(|pid| kill_process(pid, signal)) {
        tracing::warn!(%error, "could not forward a signal to the active daemon");
    }
}

/// The configuration file, and where its text is to be read.
fn configuration_to_load(options: &Options, kept: &Kept) -> (PathBuf, PathBuf) {
    let noted = (
        last_configuration(&options.runtime_dir),
        last_text(&options.runtime_dir),
    );
    match noted {
        (Some(file), Some(text)) if kept.keeps_configuration() => (file, text),
        _ => (options.config.clone(), options.config.clone()),
    }
}

#[expect(clippy::cognitive_complexity, reason = "one arm for each event")]
async fn serve<P: Plane>(
    director: &mut Director<P>,
    mut taken: mpsc::Receiver<Order>,
    mut network: Network,
    signals: &mut Signals,
    notifier: &Notifier,
) {
    let (mut ticks, mut drift_checks) = (every(TICK), every(DRIFT_INTERVAL));
    let (mut apply_checks_at, mut handshakes_at) = (None, Instant::now() + HANDSHAKE_INTERVAL);
    loop {
        tokio::select! {
            Some(order) = taken.recv() => {
                let reloads = matches!(order, Order::Reload(..));
                if reloads {
                    notify(notifier, Notification::Reloading);
                }
                director.execute(order).await;
                if director.is_succeeded() {
                    return;
                }
                if reloads {
                    notify(notifier, Notification::Ready);
                }
            }
            () = director.wait_for_check_results(), if apply_checks_at.is_none() => {
                apply_checks_at = Some(Instant::now() + CHECK_BATCH_DELAY);
            }
            () = until(apply_checks_at) => {
                apply_checks_at = None;
                if let Err(error) = director.apply_check_results().await {
                    tracing::warn!(%error, "failed to apply health check results");
                }
            }
            () = director.wait_for_list_change() => director.apply_lists().await,
            event = network.next() => {
                if let Err(error) = director.plane().network_event(&event).await {
                    tracing::warn!(%error, "failed to handle a netlink event");
                }
            }
            () = sleep_until(handshakes_at) => handshakes_at = watch_clients(director),
            _ = drift_checks.tick() => {
                director.plane().repair_drift().await;
                director.repair_real_server().await;
            }
            _ = ticks.tick() => {
                network.reopen();
                if let Err(error) = director.plane().tick().await {
                    tracing::warn!(%error, "the upkeep of this second failed");
                }
                director.notify_pool_changes();
                director.check_probation().await;
                if director.retry_list_watches() {
                    director.apply_lists().await;
                }
            }
            _ = signals.reload.recv() => {
                notify(notifier, Notification::Reloading);
                // What a log gets; whoever sent a signal reads no answer.
                if let Err(refusal) = director.reload(&FileRequest::default(), &Caller::this_process()).await {
                    for line in refusal.diagnostics.iter().flat_map(|text| text.lines()) {
                        eprintln!("{line}");
                    }
                }
                notify(notifier, Notification::Ready);
            }
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
        }
    }
}

/// Answers when to look again.
fn watch_clients(director: &mut Director<impl Plane>) -> Instant {
    let begun = Instant::now();
    if let Err(error) = director.watch_clients() {
        tracing::warn!(%error, "what clients' packets say was not put into force");
    }
    let pause = (begun.elapsed() * HANDSHAKE_CPU_SHARE).clamp(HANDSHAKE_INTERVAL, TICK);
    Instant::now() + pause
}

/// Ends at that instant; without one, never.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// A service manager that does not listen is not worth stopping for.
fn notify(notifier: &Notifier, notification: Notification<'_>) {
    if let Err(error) = notifier.send(notification) {
        tracing::warn!(%error, "could not notify the service manager");
    }
}

#[derive(Debug)]
struct Signals {
    reload: unix::Signal,
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            reload: unix::signal(SignalKind::hangup())?,
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
        })
    }
}

/// The network's changes, from a watch that is opened again when it breaks.
#[derive(Debug)]
struct Network {
    netlink: Netlink,
    watch: Option<Watch>,
    missed: bool,
}

impl Network {
    fn open() -> Result<Self, weir_netlink::Error> {
        let netlink = Netlink::open()?;
        let watch = Some(netlink.watch()?);
        Ok(Self {
            netlink,
            watch,
            missed: false,
        })
    }

    /// The next change; for ever while there is no watch. Dropping the future loses nothing.
    async fn next(&mut self) -> Event {
        if std::mem::take(&mut self.missed) {
            return Event::Lost;
        }
        if let Some(watch) = &mut self.watch {
            match watch.next().await {
                Ok(event) => return event,
                Err(error) => tracing::error!(%error, "the watch over the network broke"),
            }
            self.watch = None;
        }
        std::future::pending().await
    }

    /// Opens the watch again where it broke; what happened meanwhile counts as lost.
    fn reopen(&mut self) {
        if self.watch.is_none()
            && let Ok(watch) = self.netlink.watch()
        {
            self.watch = Some(watch);
            self.missed = true;
        }
    }
}
