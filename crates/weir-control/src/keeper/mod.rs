//! Implements the keeper, which holds the listening sockets and restarts the daemon after a crash.
//!
//! The `weir run` process is the keeper. It starts the daemon, which does most of the work, and the processes with
//! other privileges: the daemon's helpers, the VRRP agent and the announcer.
//!
//! The daemon passes each listening socket to the keeper ([`KeeperState`] is the daemon's side), so that clients are
//! not refused while no daemon is running: their connections wait in the backlog for the next daemon. Under systemd,
//! the sockets are also stored in the descriptor store, which outlives the keeper.
//!
//! In case the daemon is killed, the keeper also holds sealed memfds with state that must not be written to disk, such
//! as TLS ticket keys.
//!
//! The keeper does not read the configuration. If the first daemon exits before it is ready, the keeper exits, too. A
//! daemon that crashes later is restarted at once. If a daemon crashes repeatedly right after its start, the delay
//! before a restart grows, and finally the keeper exits. If a daemon crashes repeatedly after serving for a while,
//! restarts are limited to one per second. An upgrade starts a second daemon; the first daemon stays active until the
//! second is ready.

mod announcer;
mod child;
mod error;
mod handover;
mod helper;
mod link;
mod message;
mod privileged;
mod restart_limit;
mod root_info;
mod service;
mod supervised;
mod vrrp;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use weir_engine::Paths;
use weir_sys::{Channel, Notifier, inherited_files};

use child::{Child, Event};
use message::{ToDaemon, ToKeeper};
use privileged::Privileged;
use restart_limit::RestartLimit;

pub(crate) use handover::{receive, send};

pub use error::Error;
pub use link::{KeeperState, Link, Takeover, UpgradeResult};
pub use root_info::RootInfo;
pub use service::{SOCKET as HELPER_SOCKET, configured_socket, permit, serve as serve_keepers};
pub use vrrp::check_parent;
pub use weir_runtime_dir::UPGRADE_SOCKET;

/// Maximum number of consecutive early crashes; the keeper exits if there are more.
const MAX_EARLY_CRASHES: u32 = 10;
/// A crash of a daemon that served for less than this time is an early crash.
const EARLY_CRASH_LIFETIME: Duration = Duration::from_millis(250);
/// Delay before the restart after the second consecutive early crash. The delay doubles with each further crash, up to
/// the maximum.
const MIN_RESTART_DELAY: Duration = Duration::from_millis(100);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(5);
/// Maximum time for a successor to become ready. The kernel can take more than a minute to verify the successor's BPF
/// programs.
const READY_TIMEOUT: Duration = Duration::from_secs(300);

/// A daemon's state.
#[derive(Debug)]
enum Role {
    /// Not ready yet. `is_restart` means that a previous daemon was ready.
    Starting { is_restart: bool },
    /// Active.
    Serving { since: Instant },
    /// Started as the successor. `sockets` contains the daemon's requests to store or remove sockets, which are
    /// executed when it is ready. `channel` is the predecessor's end of the channel to the successor.
    Successor {
        channel: Channel,
        sockets: Vec<(String, Option<OwnedFd>)>,
        /// Why the successor failed.
        failure: Option<String>,
    },
    /// Replaced by a successor. The daemon is handing over or ending its connections.
    Replaced,
}

#[derive(Debug)]
struct Keeper {
    /// The program to start.
    program: PathBuf,
    sockets: BTreeMap<String, OwnedFd>,
    lock: OwnedFd,
    notifier: Notifier,
    children: BTreeMap<u32, (Role, Child, PathBuf)>,
    next_number: u32,
    events: mpsc::UnboundedSender<(u32, Event)>,
    /// Number of consecutive early crashes.
    early_crashes: u32,
    restarts: u32,
    restart_limit: RestartLimit,
    last_death: Option<String>,
    stopping: bool,
    privileged: Privileged,
    /// Whether a reload was requested while no daemon was serving.
    reload_due: bool,
    /// Whether any daemon has become ready.
    has_served: bool,
    /// The exit code of the last active daemon.
    exit_code: u8,
}

/// Runs daemons until one exits normally or this process is stopped; returns the exit code. `configuration` is the
/// absolute configuration file path. Must be called inside a tokio runtime, by a thread that lives as long as the
/// process.
///
/// # Errors
/// Fails if another keeper uses the runtime directory, the directory or signals cannot be used, or a daemon cannot be
/// started.
pub async fn run(paths: &Paths, configuration: &Path) -> Result<u8, Error> {
    let (privileged, lock) = Privileged::open(paths, configuration)?;
    // The keeper holds all listening sockets, so it needs many descriptors.
    if let Err(error) = weir_sys::raise_nofile() {
        tracing::warn!(%error, "failed to raise the open-file limit: the number of listening sockets is limited");
    }
    let program = std::env::current_exe().map_err(|source| Error::Program {
        path: "/proc/self/exe".into(),
        source,
    })?;
    let watch_signal = |kind| signal(kind).map_err(|source| Error::Signals { source });
    let (mut hangup, mut terminate) = (
        watch_signal(SignalKind::hangup())?,
        watch_signal(SignalKind::terminate())?,
    );
    let mut interrupt = watch_signal(SignalKind::interrupt())?;
    let mut reopen = watch_signal(SignalKind::user_defined1())?;
    let (sender, mut events) = mpsc::unbounded_channel();
    let mut keeper = Keeper {
        program,
        sockets: inherited_files().into_iter().collect(),
        lock,
        notifier: Notifier::from_env()?,
        children: BTreeMap::new(),
        next_number: 0,
        events: sender,
        early_crashes: 0,
        restarts: 0,
        restart_limit: RestartLimit::new(Instant::now()),
        last_death: None,
        stopping: false,
        privileged,
        reload_due: false,
        has_served: false,
        exit_code: 0,
    };
    keeper.start_daemon(false)?;
    loop {
        tokio::select! {
            Some((number, event)) = events.recv() => {
                if let Some(exit_code) = keeper.handle_event(number, event)? {
                    keeper.privileged.shutdown(keeper.has_served).await;
                    return Ok(exit_code);
                }
            }
            _ = hangup.recv() => keeper.reload(),
            _ = reopen.recv() => keeper.reopen_logs(),
            _ = terminate.recv() => keeper.stop(Signal::TERM),
            _ = interrupt.recv() => keeper.stop(Signal::INT),
        }
    }
}

impl Keeper {
    /// Starts a daemon and sends it all sockets and files; `files` are attached to the last message.
    fn start(
        &mut self,
        program: &Path,
        role: Role,
        files: &[BorrowedFd<'_>],
    ) -> Result<u32, Error> {
        let privileged::HelperChannels {
            engine,
            helper,
            root_info,
        } = self.privileged.start_helpers(program)?;
        let number = self.next_number;
        self.next_number += 1;
        let child = Child::start(program, number, self.events.clone())?;
        for (name, socket) in &self.sockets {
            let message = ToDaemon::Socket { name: name.clone() };
            child.send(&message, &[socket.as_fd()]);
        }
        let begin = ToDaemon::Begin {
            restarts: self.restarts,
            last_death: self.last_death.clone(),
            successor: matches!(role, Role::Successor { .. }),
            helper: helper.is_some(),
            engine: engine.is_some(),
            confined: self.privileged.is_confined(!self.children.is_empty()),
            root_info,
            reads_file: true,
        };
        let mut attached = vec![self.lock.as_fd()];
        attached.extend_from_slice(files);
        // An earlier version uses the last file as the channel to its helper, so attach that channel last.
        attached.extend(engine.as_ref().map(AsFd::as_fd));
        attached.extend(helper.as_ref().map(AsFd::as_fd));
        child.send(&begin, &attached);
        self.children
            .insert(number, (role, child, program.to_owned()));
        Ok(number)
    }

    fn start_daemon(&mut self, is_restart: bool) -> Result<(), Error> {
        let program = self.program.clone();
        self.start(&program, Role::Starting { is_restart }, &[])
            .map(drop)
    }

    /// Makes every daemon reopen its log files, including draining daemons, which still write to them.
    fn reopen_logs(&self) {
        for (_, child, _) in self
            .children
            .values()
            .filter(|(_, child, _)| child.is_alive())
        {
            child.signal(Signal::USR1);
        }
    }

    fn reload(&mut self) {
        let is_serving = |(role, child, _): &&(Role, Child, PathBuf)| {
            matches!(role, Role::Serving { .. }) && child.is_alive()
        };
        let active = self.children.values().find(is_serving);
        self.reload_due = active.is_none();
        if let Some((_, child, _)) = active {
            child.signal(Signal::HUP);
        }
    }

    /// Stops all daemons. From then on, connections are refused, unless a service manager holds the sockets for the
    /// next start.
    fn stop(&mut self, signal: Signal) {
        self.stopping = true;
        self.privileged.stop();
        self.sockets.clear();
        for (_, child, _) in self.children.values() {
            child.signal(signal);
        }
        if self.children.is_empty() {
            // No daemon is running, so a restart is pending. This event ends the keeper.
            let _ = self.events.send((0, Event::Restart));
        }
    }

    /// Handles an event from a daemon. Returns the exit code if the keeper must exit.
    fn handle_event(&mut self, number: u32, event: Event) -> Result<Option<u8>, Error> {
        match event {
            Event::Message(message, files) => self.handle_message(number, message, files),
            Event::Exited(status) => return Ok(self.handle_exit(number, status)),
            Event::ReadyTimeout => {
                if let Some((Role::Successor { failure, .. }, child, _)) =
                    self.children.get_mut(&number)
                {
                    tracing::warn!("the successor was not ready in time");
                    *failure = Some(format!(
                        "it was not ready within {} s",
                        READY_TIMEOUT.as_secs()
                    ));
                    child.signal(Signal::KILL);
                }
            }
            Event::Restart if self.stopping => {
                return Ok(self.children.is_empty().then_some(self.exit_code));
            }
            Event::Restart => self.start_daemon(true)?,
        }
        Ok(None)
    }

    fn handle_message(&mut self, number: u32, message: ToKeeper, files: Vec<OwnedFd>) {
        let mut files = files.into_iter();
        match message {
            ToKeeper::Keep { name } => {
                if let Some(socket) = files.next() {
                    self.handle_socket(number, name, Some(socket));
                }
            }
            ToKeeper::Forget { name } => self.handle_socket(number, name, None),
            ToKeeper::Ready => self.handle_ready(number),
            ToKeeper::Vrrp { configured } => {
                let sender = self.children.get(&number);
                let program = sender.map_or(&self.program, |(_, _, program)| program);
                self.privileged.configure_vrrp(configured, program);
            }
            ToKeeper::Announce { configured } => {
                let sender = self.children.get(&number);
                let program = sender.map_or(&self.program, |(_, _, program)| program);
                self.privileged.configure_announcer(configured, program);
            }
            ToKeeper::Fails { reason } => {
                if let Some((Role::Successor { failure, .. }, _, _)) =
                    self.children.get_mut(&number)
                {
                    *failure = Some(reason);
                }
            }
            ToKeeper::Upgrade { program } => {
                let state = files.next();
                if let Err(reason) = self.upgrade(&program, state) {
                    self.send_to_active(&ToDaemon::Failed { reason }, &[]);
                }
            }
        }
    }

    fn handle_socket(&mut self, number: u32, name: String, socket: Option<OwnedFd>) {
        match self.children.get_mut(&number) {
            Some((Role::Successor { sockets, .. }, _, _)) => sockets.push((name, socket)),
            _ => self.store_socket(name, socket),
        }
    }

    /// Stores a socket under this name; `None` removes it.
    fn store_socket(&mut self, name: String, socket: Option<OwnedFd>) {
        match socket {
            Some(_) if self.stopping => {}
            Some(socket) => {
                // Remove the previous socket first; otherwise the service manager would keep both.
                if self.sockets.contains_key(&name)
                    && let Err(error) = self.notifier.remove_descriptor(&name)
                {
                    tracing::debug!(%error, "failed to remove the previous socket from the service manager");
                }
                if let Err(error) = self.notifier.store_descriptor(&name, socket.as_fd()) {
                    tracing::warn!(%error, "failed to store a socket in the service manager");
                }
                self.sockets.insert(name, socket);
            }
            None => {
                self.sockets.remove(&name);
                if let Err(error) = self.notifier.remove_descriptor(&name) {
                    tracing::warn!(%error, "failed to remove a socket from the service manager");
                }
            }
        }
    }

    fn send_to_active(&self, message: &ToDaemon, files: &[BorrowedFd<'_>]) {
        for (role, child, _) in self.children.values() {
            if matches!(role, Role::Serving { .. }) {
                child.send(message, files);
            }
        }
    }

    fn handle_ready(&mut self, number: u32) {
        let Some((role, child, program)) = self.children.get_mut(&number) else {
            return;
        };
        let pid = child.pid();
        self.has_served = true;
        if std::mem::take(&mut self.reload_due) {
            child.signal(Signal::HUP);
        }
        self.program.clone_from(program);
        let since = Instant::now();
        let Role::Successor {
            channel, sockets, ..
        } = std::mem::replace(role, Role::Serving { since })
        else {
            return;
        };
        self.privileged.serve_permits();
        for (name, socket) in sockets {
            self.store_socket(name, socket);
        }
        for (other_number, (role, child, _)) in &mut self.children {
            if *other_number != number && matches!(role, Role::Serving { .. }) {
                child.send(&ToDaemon::Succeeded { pid }, &[channel.as_fd()]);
                *role = Role::Replaced;
            }
        }
    }

    fn upgrade(&mut self, program: &Path, state: Option<OwnedFd>) -> Result<(), String> {
        let is_successor =
            |(role, _, _): &(Role, Child, PathBuf)| matches!(role, Role::Successor { .. });
        if self.stopping || self.children.values().any(is_successor) {
            return Err("another upgrade or a shutdown is in progress".to_owned());
        }
        let state = state.ok_or("the request contains no state for the successor")?;
        let (channel, successor_channel) = Channel::pair().map_err(|error| error.to_string())?;
        let program = self.privileged.begin_upgrade(program)?;
        let files = [successor_channel.as_fd(), state.as_fd()];
        let number = self
            .start(
                &program,
                Role::Successor {
                    channel,
                    sockets: Vec::new(),
                    failure: None,
                },
                &files,
            )
            .map_err(|error| {
                self.privileged.cancel_upgrade();
                error.to_string()
            })?;
        let events = self.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(READY_TIMEOUT).await;
            let _ = events.send((number, Event::ReadyTimeout));
        });
        Ok(())
    }

    /// Handles the exit of a daemon. Returns the exit code if the keeper must exit.
    fn handle_exit(&mut self, number: u32, status: ExitStatus) -> Option<u8> {
        let (role, _, _) = self.children.remove(&number)?;
        let exit_code = status.code().and_then(|code| u8::try_from(code).ok());
        match role {
            Role::Replaced => {}
            Role::Successor { failure, .. } => {
                self.privileged.cancel_upgrade();
                let failure = failure.map_or_else(String::new, |failure| format!(": {failure}"));
                let reason =
                    format!("the new program exited before it was ready ({status}){failure}");
                self.send_to_active(&ToDaemon::Failed { reason }, &[]);
            }
            Role::Starting { is_restart: false } => return Some(exit_code.unwrap_or(1)),
            Role::Starting { is_restart: true } | Role::Serving { .. } => {
                let lifetime = match role {
                    Role::Serving { since } => since.elapsed(),
                    _ => Duration::ZERO,
                };
                self.exit_code = exit_code.unwrap_or(1);
                if !self.stopping && status.success() {
                    // The daemon exited normally, because another process stopped it. The keeper stops, too.
                    self.stop(Signal::TERM);
                } else if !self.stopping {
                    return self.schedule_restart(status, lifetime);
                }
            }
        }
        (self.stopping && self.children.is_empty()).then_some(self.exit_code)
    }

    /// Schedules a restart after the active daemon crashed, or stops the keeper after too many early crashes.
    fn schedule_restart(&mut self, status: ExitStatus, lifetime: Duration) -> Option<u8> {
        self.early_crashes = if lifetime < EARLY_CRASH_LIFETIME {
            self.early_crashes + 1
        } else {
            0
        };
        self.restarts += 1;
        let cause = match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("exit code {}", self.exit_code),
        };
        self.last_death = Some(cause.clone());
        let early_crashes = self.early_crashes;
        if early_crashes > MAX_EARLY_CRASHES {
            tracing::error!(
                early_crashes,
                how = cause,
                "the daemon died too often right after starting; giving up"
            );
            self.stop(Signal::TERM);
            self.exit_code = 1;
            return self.children.is_empty().then_some(1);
        }
        let pause = restart_delay(early_crashes).max(self.restart_limit.pause(Instant::now()));
        tracing::error!(
            how = cause,
            restarts = self.restarts,
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "the daemon died; restarting it"
        );
        let (events, number) = (self.events.clone(), self.next_number);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let _ = events.send((number, Event::Restart));
        });
        None
    }
}

/// Returns the delay before the restart after this many consecutive early crashes.
fn restart_delay(early_crashes: u32) -> Duration {
    match early_crashes.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => MIN_RESTART_DELAY
            .saturating_mul(2u32.saturating_pow(doublings))
            .min(MAX_RESTART_DELAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_delay_doubles_up_to_its_maximum() {
        let millis = |early_crashes| restart_delay(early_crashes).as_millis();
        assert_eq!([0, 1, 2, 3, 4].map(millis), [0, 0, 100, 200, 400]);
        assert_eq!(restart_delay(MAX_EARLY_CRASHES), MAX_RESTART_DELAY);
        assert_eq!(restart_delay(u32::MAX), MAX_RESTART_DELAY);
    }
}
