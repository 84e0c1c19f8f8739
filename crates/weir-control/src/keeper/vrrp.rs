//! Supervises the VRRP agent and its helper for the keeper. They are started when the configuration has virtual
//! routers, restarted when one of them ends, and stopped last.
//!
//! Each can be replaced without the other. A standby process takes over when the agent dies. It knows the times of the
//! last advertisements, so a crash or an upgrade causes no failover. If a process cannot be replaced, the helper
//! removes the addresses; if the helper cannot run, the keeper does.

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
use tokio::time::{Instant, sleep};
use weir_sys::Channel;

use super::kept::KEEPER;
use super::supervised::{self, Backoff, EARLY, check_lifetime, signal, wait_or_kill};

/// Maximum time for each process to end.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time for a new program to become a standby.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends this process with SIGTERM when the keeper that has started it ends.
///
/// # Errors
/// No keeper has started it.
pub fn check_parent() -> weir_sys::Result<()> {
    weir_sys::end_with_parent(&std::env::var(KEEPER).unwrap_or_default())
}

#[derive(Debug)]
enum Order {
    /// A configuration was loaded; contains the program to start if it has virtual routers.
    Configure(Option<PathBuf>),
    /// See [`VrrpProcesses::confine`].
    Confine,
    Stop,
}

/// Handle of the supervisor's task.
#[derive(Debug)]
pub(super) struct VrrpProcesses {
    orders: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
}

impl VrrpProcesses {
    /// Creates the supervisor, which starts nothing yet. Must be called inside a tokio runtime, by a thread that lives
    /// as long as the process.
    pub(super) fn new(runtime_dir: &Path, configuration: &Path) -> Self {
        let (orders, receiver) = mpsc::unbounded_channel();
        let supervisor = Supervisor {
            runtime_dir: runtime_dir.to_owned(),
            configuration: configuration.to_owned(),
            orders: receiver,
            program: None,
            confined: false,
        };
        Self {
            orders,
            task: tokio::spawn(supervisor.run()),
        }
    }

    /// The active configuration has virtual routers, or none. Running processes read it again.
    pub(super) fn configure(&self, configured: bool, program: &Path) {
        let program = configured.then(|| program.to_owned());
        let _ = self.orders.send(Order::Configure(program));
    }

    /// From now on, a daemon without rights writes the record of the active configuration. Whoever owns the record, the
    /// helper uses it only to select among the contents of root's file.
    pub(super) fn confine(&self) {
        let _ = self.orders.send(Order::Confine);
    }

    /// Stops both processes; the active virtual routers are released to the peers.
    pub(super) fn stop(&self) {
        let _ = self.orders.send(Order::Stop);
    }

    /// Waits until both processes have ended.
    pub(super) async fn end(self) {
        self.stop();
        let _ = self.task.await;
    }
}

struct Supervisor {
    runtime_dir: PathBuf,
    /// Root's file, for the helper.
    configuration: PathBuf,
    orders: mpsc::UnboundedReceiver<Order>,
    /// `None`: there are no virtual routers.
    program: Option<PathBuf>,
    /// See [`VrrpProcesses::confine`].
    confined: bool,
}

/// The processes and the objects that they share. The keeper holds both ends of the channel, so that each process can
/// be replaced without the other noticing.
struct Pair {
    program: PathBuf,
    runtime_dir: PathBuf,
    configuration: PathBuf,
    confined: bool,
    agent: Child,
    helper: Child,
    /// Waits to replace the agent.
    standby: Option<Child>,
    since: Instant,
    /// The last start of the agent, and of the helper.
    agent_since: Instant,
    helper_since: Instant,
    agent_end: OwnedFd,
    helper_end: OwnedFd,
    /// A shared file with the agent's state for its successor.
    handover: OwnedFd,
}

impl Supervisor {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let Some(program) = self.program.clone() else {
                match self.orders.recv().await {
                    Some(Order::Configure(program)) => self.program = program,
                    Some(Order::Confine) => self.confined = true,
                    Some(Order::Stop) | None => return,
                }
                continue;
            };
            let pause = match Pair::start(&program, &self) {
                Ok(mut pair) => {
                    let is_stopped = self.watch(&mut pair).await;
                    let lifetime = pair.since.elapsed();
                    pair.end().await;
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

    /// Watches the processes until one cannot be replaced or they are no longer needed. Returns whether the keeper
    /// stops.
    async fn watch(&mut self, pair: &mut Pair) -> bool {
        loop {
            tokio::select! {
                _ = pair.agent.wait() => {
                    tracing::error!("the VRRP agent died; replacing it");
                    if let Err(error) = pair.replace_agent() {
                        tracing::error!(%error, "the VRRP agent cannot be replaced; addresses are removed");
                        return false;
                    }
                }
                _ = pair.helper.wait() => {
                    tracing::error!("the helper died; restarting it");
                    if let Err(error) = pair.replace_helper() {
                        tracing::error!(%error, "the helper cannot be replaced; addresses are removed");
                        signal(&pair.agent, Signal::TERM);
                        return false;
                    }
                }
                order = self.orders.recv() => match order {
                    Some(Order::Configure(Some(program))) => {
                        self.program = Some(program.clone());
                        if is_running(&pair.agent, &program) {
                            signal(&pair.agent, Signal::HUP);
                        } else if let Err(error) = pair.upgrade(program).await {
                            tracing::error!(%error, "the VRRP agent was not upgraded");
                            signal(&pair.agent, Signal::HUP);
                        }
                    }
                    Some(Order::Confine) => {
                        (self.confined, pair.confined) = (true, true);
                        pair.helper_since = Instant::now() - EARLY;
                        let _ = pair.helper.kill().await;
                        if let Err(error) = pair.replace_helper() {
                            tracing::error!(%error, "the helper cannot be replaced; addresses are removed");
                            signal(&pair.agent, Signal::TERM);
                            return false;
                        }
                    }
                    Some(Order::Configure(None)) => {
                        self.program = None;
                        signal(&pair.agent, Signal::TERM);
                        return false;
                    }
                    Some(Order::Stop) | None => {
                        signal(&pair.agent, Signal::TERM);
                        return true;
                    }
                }
            }
        }
    }

    /// Pauses before a restart. Returns whether the keeper stops.
    async fn wait(&mut self, pause: Duration) -> bool {
        if pause.is_zero() {
            return false;
        }
        tokio::select! {
            () = sleep(pause) => false,
            order = self.orders.recv() => match order {
                Some(Order::Configure(program)) => {
                    self.program = program;
                    false
                }
                Some(Order::Confine) => {
                    self.confined = true;
                    false
                }
                Some(Order::Stop) | None => true,
            }
        }
    }

    /// Removes addresses that a killed helper has left.
    async fn remove_addresses(&self) {
        match weir_helper::remove_recorded(&self.runtime_dir).await {
            Ok(0) => {}
            Ok(count) => tracing::warn!(count, "removed virtual addresses"),
            Err(error) => tracing::error!(%error, "failed to remove virtual addresses"),
        }
    }
}

impl Pair {
    fn start(program: &Path, supervisor: &Supervisor) -> io::Result<Self> {
        let runtime_dir = supervisor.runtime_dir.as_path();
        let configuration = supervisor.configuration.as_path();
        let confined = supervisor.confined;
        let (one, other) = Channel::pair().map_err(io::Error::other)?;
        let (helper_end, agent_end) = (OwnedFd::from(one), OwnedFd::from(other));
        let handover = weir_sys::shared_file("weir-vrrp").map_err(io::Error::other)?;
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
        let mut pair = Self {
            program: program.to_owned(),
            runtime_dir: runtime_dir.to_owned(),
            configuration: configuration.to_owned(),
            confined,
            agent,
            helper,
            standby: None,
            since: now,
            agent_since: now,
            helper_since: now,
            agent_end,
            helper_end,
            handover,
        };
        pair.start_standby();
        Ok(pair)
    }

    fn spawn_standby(&self, program: &Path) -> io::Result<Child> {
        let arguments = ["vrrp-agent", "--standby"];
        spawn(
            program,
            &arguments,
            &self.runtime_dir,
            &self.agent_end,
            Some(&self.handover),
        )
    }

    fn start_standby(&mut self) {
        match self.spawn_standby(&self.program) {
            Ok(child) => self.standby = Some(child),
            Err(error) => tracing::warn!(%error, "failed to start a standby for the VRRP agent"),
        }
    }

    /// Replaces an agent that has ended by the standby, or by a new one.
    fn replace_agent(&mut self) -> io::Result<()> {
        check_lifetime(self.agent_since)?;
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
        self.agent_since = Instant::now();
        self.start_standby();
        Ok(())
    }

    /// Starts a helper that adopts the addresses of the one that has ended. The agent repeats its requests.
    fn replace_helper(&mut self) -> io::Result<()> {
        check_lifetime(self.helper_since)?;
        self.helper = spawn_helper(
            &self.program,
            &["--adopt"],
            (&self.runtime_dir, &self.configuration, self.confined),
            &self.helper_end,
        )?;
        self.helper_since = Instant::now();
        signal(&self.agent, Signal::HUP);
        Ok(())
    }

    /// Replaces both processes by those of another program. The old agent advertises until the new one is ready.
    async fn upgrade(&mut self, program: PathBuf) -> io::Result<()> {
        let mut standby = self.spawn_standby(&program)?;
        let until = Instant::now() + READY_TIMEOUT;
        while !is_ready(&standby) {
            if Instant::now() > until || standby.try_wait()?.is_some() {
                return Err(io::Error::other("the new program is not ready in time"));
            }
            sleep(Duration::from_millis(2)).await;
        }
        tracing::info!(program = %program.display(), "upgrading the VRRP agent and the helper");
        self.program = program;
        self.helper_since = Instant::now() - EARLY;
        let _ = self.helper.kill().await;
        self.replace_helper()?;
        self.standby = Some(standby);
        self.agent_since = Instant::now() - EARLY;
        let _ = self.agent.kill().await;
        self.replace_agent()
    }

    /// Waits until all have ended: first the agent, then the helper, which ends when the channel is closed.
    async fn end(mut self) {
        if let Some(mut standby) = self.standby.take() {
            let _ = standby.kill().await;
        }
        wait_or_kill(&mut self.agent, END_TIMEOUT).await;
        drop((self.agent_end, self.helper_end));
        wait_or_kill(&mut self.helper, END_TIMEOUT).await;
    }
}

/// Whether a standby is waiting: it has then installed its signal handler.
fn is_ready(standby: &Child) -> bool {
    let Some(pid) = standby.id() else {
        return false;
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = 1_u64 << (Signal::USR1.as_raw() - 1);
    caught.is_some_and(|mask| mask & bit != 0)
}

/// Whether a process runs this program.
fn is_running(child: &Child, program: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    let Some(pid) = child.id() else {
        return true;
    };
    let running = file(Path::new(&format!("/proc/{pid}/exe")));
    // If the file was removed, there is nothing to upgrade to.
    file(program).is_none_or(|file| running == Some(file))
}

/// Starts a helper, which reads root's file. Earlier programs ignore the variable.
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

/// Starts a hidden command with a channel as its standard input, and a file as its standard output.
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
