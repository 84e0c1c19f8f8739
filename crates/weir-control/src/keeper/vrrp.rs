//! Supervises the VRRP agent and its helper for the keeper.
//!
//! Both are started when the configuration has virtual routers. Either is replaced when it exits. At shutdown, both are
//! stopped after the announcer.
//!
//! Each process can be replaced without the other. A standby process takes over when the agent dies. The standby has
//! the times of the last advertisements, so neither a crash nor an upgrade causes a failover. If a process cannot be
//! replaced, the helper removes the addresses; if the helper cannot run, the keeper removes them. The keeper also
//! removes them if the new agent does not send an advertisement in time, because the peers then consider this director
//! dead.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use weir_sys::Channel;

use super::link::KEEPER;
use super::supervised::{self, Backoff, EARLY_LIFETIME, check_lifetime, signal, wait_or_kill};

/// Time limit for each process to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for a new program to become a standby.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two checks of a process that is being replaced.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Number of advertisement intervals within which a new agent must send an advertisement if the previous agent had
/// active virtual routers; the shortest interval counts.
const FIRST_ADVERTISEMENT_INTERVALS: u32 = 2;
/// Minimum and maximum time for the first advertisement. The maximum is two intervals of 255 s, the longest interval of
/// version 2.
const MIN_FIRST_ADVERTISEMENT: Duration = Duration::from_secs(1);
const MAX_FIRST_ADVERTISEMENT: Duration = Duration::from_secs(510);

/// Checks that a running keeper started this process. Makes the kernel send SIGTERM to this process when the keeper
/// exits (parent-death signal).
///
/// # Errors
/// Fails if no keeper started this process, or the keeper has exited.
pub fn check_parent() -> weir_sys::Result<()> {
    weir_sys::exit_with_parent(&std::env::var(KEEPER).unwrap_or_default())
}

#[derive(Debug)]
enum Request {
    /// A configuration was loaded: the program to start; `None` = there are no virtual routers.
    Configure(Option<PathBuf>),
    /// See [`VrrpProcesses::confine`].
    Confine,
    Stop,
}

/// A handle to the task that supervises the processes.
#[derive(Debug)]
pub(super) struct VrrpProcesses {
    requests: mpsc::UnboundedSender<Request>,
    task: JoinHandle<()>,
}

impl VrrpProcesses {
    /// Creates the supervisor, without starting a process. Must be called inside a tokio runtime, by a thread that
    /// lives as long as the process.
    pub(super) fn new(runtime_dir: &Path, configuration: &Path) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let supervisor = Supervisor {
            runtime_dir: runtime_dir.to_owned(),
            configuration: configuration.to_owned(),
            requests: receiver,
            program: None,
            confined: false,
            handover: None,
        };
        Self {
            requests,
            task: tokio::spawn(supervisor.run()),
        }
    }

    /// Starts the processes if the active configuration has virtual routers; otherwise stops them. Running processes
    /// reread the configuration.
    pub(super) fn configure(&self, configured: bool, program: &Path) {
        let program = configured.then(|| program.to_owned());
        let _ = self.requests.send(Request::Configure(program));
    }

    /// Informs the supervisor that, from now on, an unprivileged daemon writes the record of the active configuration.
    /// The helper then uses the record only to select parts of root's configuration file, even if root owns the record.
    pub(super) fn confine(&self) {
        let _ = self.requests.send(Request::Confine);
    }

    /// Begins to stop both processes. Active virtual routers are released to the peers.
    pub(super) fn stop(&self) {
        let _ = self.requests.send(Request::Stop);
    }

    /// Stops both processes and waits until they have exited.
    pub(super) async fn shutdown(self) {
        self.stop();
        let _ = self.task.await;
    }
}

struct Supervisor {
    runtime_dir: PathBuf,
    /// The configuration file, which the helper reads.
    configuration: PathBuf,
    requests: mpsc::UnboundedReceiver<Request>,
    /// The program to run; `None` = there are no virtual routers.
    program: Option<PathBuf>,
    /// See [`VrrpProcesses::confine`].
    confined: bool,
    /// The state that the next agent continues if both processes have to be started again; see
    /// [`Self::save_releases`].
    handover: Option<OwnedFd>,
}

/// The processes and the objects that they share. The keeper holds both ends of the channel between them, so that each
/// process can be replaced without affecting the other.
struct Processes {
    program: PathBuf,
    runtime_dir: PathBuf,
    configuration: PathBuf,
    confined: bool,
    agent: Child,
    helper: Child,
    /// A process that is waiting to replace the agent.
    standby: Option<Child>,
    started_at: Instant,
    /// The times at which the agent and the helper were last started.
    agent_started_at: Instant,
    helper_started_at: Instant,
    agent_end: OwnedFd,
    helper_end: OwnedFd,
    /// A shared memfd in which the agent stores its state for its successor.
    handover: OwnedFd,
    /// The advertisement that a new agent must send, if the previous agent had active virtual routers.
    continuation: Option<Continuation>,
}

/// The advertisement by which a new agent continues for the agent that it replaces.
#[derive(Debug, PartialEq, Eq)]
struct Continuation {
    /// When the advertisement is due.
    deadline: Instant,
    /// The previous agent's state, which the advertisement changes.
    previous: Vec<u8>,
}

impl Continuation {
    /// Returns the requirement for an agent that replaces one with this state; `None` if no virtual router was active.
    fn new(previous: Vec<u8>, now: Instant) -> Option<Self> {
        let interval = weir_vrrp_agent::active_interval(&previous)?;
        let limit = interval.saturating_mul(FIRST_ADVERTISEMENT_INTERVALS);
        Some(Self {
            deadline: now + limit.clamp(MIN_FIRST_ADVERTISEMENT, MAX_FIRST_ADVERTISEMENT),
            previous,
        })
    }
}

impl Supervisor {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let Some(program) = self.program.clone() else {
                self.handover = None;
                match self.requests.recv().await {
                    Some(Request::Configure(program)) => self.program = program,
                    Some(Request::Confine) => self.confined = true,
                    Some(Request::Stop) | None => return,
                }
                continue;
            };
            let pause = match Processes::start(&program, &self) {
                Ok(mut processes) => {
                    let is_stopped = self.watch(&mut processes).await;
                    let lifetime = processes.started_at.elapsed();
                    self.save_releases(&processes.handover);
                    processes.wait_for_exit().await;
                    if is_stopped {
                        self.remove_addresses().await;
                        return;
                    }
                    backoff.after(lifetime)
                }
                Err(error) => {
                    tracing::error!(%error, "failed to start the VRRP agent");
                    backoff.after_failure()
                }
            };
            self.remove_addresses().await;
            if self.program.is_some() && self.wait(pause).await {
                return;
            }
        }
    }

    /// Watches the processes until one of them cannot be replaced or they are no longer needed. Returns whether the
    /// keeper is stopping.
    async fn watch(&mut self, processes: &mut Processes) -> bool {
        loop {
            let deadline = processes.continuation.as_ref().map(|it| it.deadline);
            tokio::select! {
                _ = processes.agent.wait() => {
                    tracing::error!("the VRRP agent died; replacing it");
                    if let Err(error) = processes.replace_agent() {
                        tracing::error!(%error, "failed to replace the VRRP agent; removing its addresses");
                        return false;
                    }
                }
                _ = processes.helper.wait() => {
                    tracing::error!("the helper died; restarting it");
                    if let Err(error) = processes.replace_helper() {
                        tracing::error!(%error, "failed to replace the helper; removing the addresses");
                        signal(&processes.agent, Signal::TERM);
                        return false;
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    if !processes.take_continuation() {
                        tracing::error!("the new VRRP agent sent no advertisement in time; removing its addresses");
                        let _ = processes.agent.kill().await;
                        let _ = processes.helper.kill().await;
                        return false;
                    }
                }
                request = self.requests.recv() => match request {
                    Some(Request::Configure(Some(program))) => {
                        self.program = Some(program.clone());
                        if is_running(&processes.agent, &program) {
                            signal(&processes.agent, Signal::HUP);
                        } else if let Err(error) = processes.upgrade(program).await {
                            tracing::error!(%error, "failed to upgrade the VRRP agent");
                            signal(&processes.agent, Signal::HUP);
                        }
                    }
                    Some(Request::Confine) => {
                        (self.confined, processes.confined) = (true, true);
                        processes.helper_started_at = Instant::now() - EARLY_LIFETIME;
                        let _ = processes.helper.kill().await;
                        if let Err(error) = processes.replace_helper() {
                            tracing::error!(%error, "failed to replace the helper; removing the addresses");
                            signal(&processes.agent, Signal::TERM);
                            return false;
                        }
                    }
                    Some(Request::Configure(None)) => {
                        self.program = None;
                        // The agent rereads the configuration before it stops, because another part of the
                        // configuration may now specify an address.
                        signal(&processes.agent, Signal::HUP);
                        signal(&processes.agent, Signal::TERM);
                        return false;
                    }
                    Some(Request::Stop) | None => {
                        signal(&processes.agent, Signal::TERM);
                        return true;
                    }
                }
            }
        }
    }

    /// Pauses before a restart, until the next request at the latest. Returns whether the keeper is stopping.
    async fn wait(&mut self, pause: Duration) -> bool {
        if pause.is_zero() {
            return false;
        }
        tokio::select! {
            () = sleep(pause) => false,
            request = self.requests.recv() => match request {
                Some(Request::Configure(program)) => {
                    self.program = program;
                    false
                }
                Some(Request::Confine) => {
                    self.confined = true;
                    false
                }
                Some(Request::Stop) | None => true,
            }
        }
    }

    /// Saves the agent's state for the next agent, except the states of virtual routers, which are being stopped.
    fn save_releases(&mut self, handover: &OwnedFd) {
        let keep = || {
            let mut content = weir_sys::read_shared_file(handover)?;
            weir_vrrp_agent::stop_routers(&mut content);
            let copy = weir_sys::create_shared_file("weir-vrrp").map_err(io::Error::other)?;
            weir_sys::replace_shared_file(&copy, &content)?;
            io::Result::Ok(copy)
        };
        match keep() {
            Ok(copy) => self.handover = Some(copy),
            Err(error) => {
                tracing::error!(%error, "failed to save which virtual routers are released")
            }
        }
    }

    /// Removes addresses that a killed helper has left behind.
    async fn remove_addresses(&self) {
        match weir_helper::revert_recorded(&self.runtime_dir).await {
            Ok(reverted) => {
                for change in reverted {
                    tracing::warn!("{change}");
                }
            }
            Err(error) => tracing::error!(%error, "failed to remove virtual addresses"),
        }
    }
}

impl Processes {
    fn start(program: &Path, supervisor: &Supervisor) -> io::Result<Self> {
        let runtime_dir = supervisor.runtime_dir.as_path();
        let configuration = supervisor.configuration.as_path();
        let confined = supervisor.confined;
        let (first, second) = Channel::pair().map_err(io::Error::other)?;
        let (helper_end, agent_end) = (OwnedFd::from(first), OwnedFd::from(second));
        let handover = match &supervisor.handover {
            Some(saved) => saved.try_clone()?,
            None => weir_sys::create_shared_file("weir-vrrp").map_err(io::Error::other)?,
        };
        let helper = spawn_helper(
            program,
            &[],
            (runtime_dir, configuration, confined),
            &helper_end,
        )?;
        let agent = spawn(
            program,
            &["vrrp-agent"],
            runtime_dir,
            &agent_end,
            Some(&handover),
        )?;
        let now = Instant::now();
        let mut processes = Self {
            program: program.to_owned(),
            runtime_dir: runtime_dir.to_owned(),
            configuration: configuration.to_owned(),
            confined,
            agent,
            helper,
            standby: None,
            started_at: now,
            agent_started_at: now,
            helper_started_at: now,
            agent_end,
            helper_end,
            handover,
            continuation: None,
        };
        processes.start_standby();
        Ok(processes)
    }

    fn spawn_standby(&self, program: &Path, channel: &OwnedFd) -> io::Result<Child> {
        let arguments = ["vrrp-agent", "--standby"];
        spawn(
            program,
            &arguments,
            &self.runtime_dir,
            channel,
            Some(&self.handover),
        )
    }

    fn start_standby(&mut self) {
        match self.spawn_standby(&self.program, &self.agent_end) {
            Ok(child) => self.standby = Some(child),
            Err(error) => tracing::warn!(%error, "failed to start a standby for the VRRP agent"),
        }
    }

    /// Replaces an agent that has exited with the standby, or with a new agent.
    fn replace_agent(&mut self) -> io::Result<()> {
        check_lifetime(self.agent_started_at)?;
        let previous = weir_sys::read_shared_file(&self.handover).unwrap_or_default();
        self.continuation = Continuation::new(previous, Instant::now());
        let standby = self.standby.take();
        self.agent = match standby.filter(is_ready) {
            Some(standby) => {
                signal(&standby, Signal::USR1);
                standby
            }
            None => spawn(
                &self.program,
                &["vrrp-agent"],
                &self.runtime_dir,
                &self.agent_end,
                Some(&self.handover),
            )?,
        };
        self.agent_started_at = Instant::now();
        self.start_standby();
        Ok(())
    }

    /// Ends the wait for the new agent's advertisement. Returns whether the new agent has changed the previous agent's
    /// state. An agent that is too late to continue changes the state too.
    fn take_continuation(&mut self) -> bool {
        let state = weir_sys::read_shared_file(&self.handover).unwrap_or_default();
        self.continuation
            .take()
            .is_none_or(|it| it.previous != state)
    }

    /// Starts a helper that takes over the addresses of the previous helper. The agent then repeats its requests.
    fn replace_helper(&mut self) -> io::Result<()> {
        check_lifetime(self.helper_started_at)?;
        self.start_helper()?;
        signal(&self.agent, Signal::HUP);
        Ok(())
    }

    fn start_helper(&mut self) -> io::Result<()> {
        self.helper = spawn_helper(
            &self.program,
            &["--adopt"],
            (&self.runtime_dir, &self.configuration, self.confined),
            &self.helper_end,
        )?;
        self.helper_started_at = Instant::now();
        Ok(())
    }

    /// Replaces both processes with processes that run another program. The previous agent advertises until the new one
    /// has taken over the times of its advertisements. For a short time, both send the same advertisements.
    async fn upgrade(&mut self, program: PathBuf) -> io::Result<()> {
        // Start the new program first, because it may not run at all.
        let standby = self.ready_standby(&program, &self.agent_end).await?;
        tracing::info!(program = %program.display(), "upgrading the VRRP agent and the helper");
        self.program = program;
        self.standby = Some(standby);
        let _ = self.helper.kill().await;
        self.start_helper()?;
        let deadline = Instant::now() + READY_TIMEOUT;
        while !is_serving(&self.helper)
            && Instant::now() < deadline
            && self.helper.try_wait()?.is_none()
        {
            sleep(POLL_INTERVAL).await;
        }
        self.agent_started_at = Instant::now() - EARLY_LIFETIME;
        let caller = Channel::from(self.agent_end.try_clone()?);
        match weir_helper::add_caller(&caller).await {
            Ok(Some(ends)) => self.replace_running_agent(ends).await,
            // The helper is from an earlier version and serves only one agent.
            Ok(None) | Err(_) => {
                let _ = self.agent.kill().await;
                self.replace_agent()
            }
        }
    }

    /// Starts a standby and waits until it is ready.
    async fn ready_standby(&self, program: &Path, channel: &OwnedFd) -> io::Result<Child> {
        let mut standby = self.spawn_standby(program, channel)?;
        let deadline = Instant::now() + READY_TIMEOUT;
        while !is_ready(&standby) {
            if Instant::now() > deadline || standby.try_wait()?.is_some() {
                return Err(io::Error::other(
                    "the new program exited or was not ready in time",
                ));
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(standby)
    }

    /// Replaces the agent with one that uses another channel to the helper, because two agents on the same channel
    /// would receive each other's replies. `ends` are the ends of that channel, the helper's first. If the new agent
    /// fails, the previous one continues.
    async fn replace_running_agent(&mut self, ends: (Channel, Channel)) -> io::Result<()> {
        let (helper_end, agent_end) = (ends.0.into(), ends.1.into());
        let successor = self.start_successor(&agent_end).await?;
        let _ = self.agent.kill().await;
        self.agent = successor;
        (self.helper_end, self.agent_end) = (helper_end, agent_end);
        let state = weir_sys::read_shared_file(&self.handover).unwrap_or_default();
        self.continuation = Continuation::new(state, Instant::now());
        self.agent_started_at = Instant::now();
        // The previous standby uses the previous channel.
        self.start_standby();
        Ok(())
    }

    /// Starts an agent while the previous one is running, and waits until it advertises.
    async fn start_successor(&self, channel: &OwnedFd) -> io::Result<Child> {
        let mut successor = self.ready_standby(&self.program, channel).await?;
        signal(&successor, Signal::USR1);
        let deadline = Instant::now() + READY_TIMEOUT;
        while is_replacing(&successor) {
            if Instant::now() > deadline || successor.try_wait()?.is_some() {
                return Err(io::Error::other(
                    "the new agent exited or did not take over in time",
                ));
            }
            sleep(POLL_INTERVAL).await;
        }
        match successor.try_wait()? {
            Some(_) => Err(io::Error::other("the new agent exited")),
            None => Ok(successor),
        }
    }

    /// Waits until all processes have exited: first the agent, then the helper. The helper exits when the channel is
    /// closed.
    async fn wait_for_exit(mut self) {
        if let Some(mut standby) = self.standby.take() {
            let _ = standby.kill().await;
        }
        wait_or_kill(&mut self.agent, EXIT_TIMEOUT).await;
        drop((self.agent_end, self.helper_end));
        wait_or_kill(&mut self.helper, EXIT_TIMEOUT).await;
    }
}

/// Returns whether a standby is ready, which means that it has installed its signal handler.
fn is_ready(standby: &Child) -> bool {
    let caught_signals = status_field(standby, "SigCgt:");
    let caught_signals = caught_signals.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    let bit = 1_u64 << (Signal::USR1.as_raw() - 1);
    caught_signals.is_some_and(|mask| mask & bit != 0)
}

/// Returns whether an agent that was a standby has not yet taken over from the previous agent.
fn is_replacing(agent: &Child) -> bool {
    let name = status_field(agent, "Name:");
    name.is_some_and(|name| name.as_bytes() == weir_vrrp_agent::STANDBY_NAME.to_bytes())
}

/// Returns whether a helper has read the configuration and receives requests, which it does in a second thread.
fn is_serving(helper: &Child) -> bool {
    let threads = status_field(helper, "Threads:");
    let threads = threads.and_then(|number| number.parse::<u32>().ok());
    threads.is_some_and(|number| number > 1)
}

/// Returns a field of a process's status (proc_pid_status(5)).
fn status_field(child: &Child, name: &str) -> Option<String> {
    let pid = child.id()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_owned())
}

/// Returns whether a process runs this program. Also returns true if there is nothing to replace: the process has
/// exited, or the program's file was removed.
fn is_running(child: &Child, program: &Path) -> bool {
    let identity = |path: &Path| {
        std::fs::metadata(path)
            .map(|file| (file.dev(), file.ino()))
            .ok()
    };
    let Some(pid) = child.id() else {
        return true;
    };
    let running_identity = identity(Path::new(&format!("/proc/{pid}/exe")));
    // If the file was removed, there is no new program to run.
    identity(program).is_none_or(|file| running_identity == Some(file))
}

/// Starts a helper that reads root's configuration file. `confined` is passed in an environment variable, which
/// earlier versions ignore.
fn spawn_helper(
    program: &Path,
    options: &[&str],
    (runtime_dir, configuration, confined): (&Path, &Path, bool),
    channel: &OwnedFd,
) -> io::Result<Child> {
    let mut arguments = vec![
        OsStr::new("helper"),
        OsStr::new("--config"),
        configuration.as_os_str(),
    ];
    arguments.extend(options.iter().map(OsStr::new));
    let mut command = prepare(program, &arguments, runtime_dir, channel)?;
    if confined {
        command.env(weir_helper::CONFINED, "1");
    }
    command.spawn()
}

/// Starts a hidden command with a channel as its standard input and, if specified, a file as its standard output.
fn spawn(
    program: &Path,
    arguments: &[&str],
    runtime_dir: &Path,
    channel: &OwnedFd,
    output: Option<&OwnedFd>,
) -> io::Result<Child> {
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let mut command = prepare(program, &arguments, runtime_dir, channel)?;
    if let Some(output) = output {
        command.stdout(Stdio::from(output.try_clone()?));
    }
    command.spawn()
}

fn prepare(
    program: &Path,
    arguments: &[&OsStr],
    runtime_dir: &Path,
    channel: &OwnedFd,
) -> io::Result<Command> {
    let mut command = supervised::command(program);
    command
        .args(arguments)
        .arg("--runtime-dir")
        .arg(runtime_dir)
        .stdin(Stdio::from(channel.try_clone()?))
        .kill_on_drop(true);
    Ok(command)
}
