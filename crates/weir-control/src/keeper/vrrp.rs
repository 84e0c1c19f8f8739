//! The VRRP agent and its helper, from the keeper's side: started when the configuration has virtual routers, restarted
//! when one of them ends, and ended last.
//!
//! Both are replaced together: without its helper the agent stops being active, and without its agent the helper
//! removes all addresses. If they cannot be started, the keeper removes the addresses.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use weir_sys::Channel;

use super::kept::KEEPER;

/// How long the second process may take to end after the first.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause before a start that follows an early end; it doubles each time.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(5);
/// A pair that ran for less than this ended early.
const EARLY: Duration = Duration::from_secs(1);

/// Ends this process with SIGTERM when the keeper that has started it ends.
///
/// # Errors
/// No keeper has started it.
pub fn check_parent() -> weir_sys::Result<()> {
    weir_sys::end_with_parent(&std::env::var(KEEPER).unwrap_or_default())
}

#[derive(Debug)]
enum Order {
    /// The configuration was loaded; the program to start, if it has virtual routers.
    Configure(Option<PathBuf>),
    Stop,
}

/// See the module.
#[derive(Debug)]
pub(super) struct VrrpProcesses {
    orders: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
}

impl VrrpProcesses {
    /// Starts nothing yet. Must be called inside a tokio runtime, by a thread that lives as long as the process.
    pub(super) fn new(runtime_dir: &Path) -> Self {
        let (orders, receiver) = mpsc::unbounded_channel();
        let supervisor = Supervisor {
            runtime_dir: runtime_dir.to_owned(),
            orders: receiver,
            program: None,
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

    /// Hands over to another director.
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
    orders: mpsc::UnboundedReceiver<Order>,
    /// `None`: there are no virtual routers.
    program: Option<PathBuf>,
}

/// Both processes.
struct Pair {
    agent: Child,
    helper: Child,
    since: Instant,
}

impl Supervisor {
    async fn run(mut self) {
        let mut pause = Duration::ZERO;
        loop {
            let Some(program) = self.program.clone() else {
                match self.orders.recv().await {
                    Some(Order::Configure(program)) => self.program = program,
                    Some(Order::Stop) | None => return,
                }
                continue;
            };
            match start(&program, &self.runtime_dir) {
                Ok(mut pair) => {
                    let is_stopped = self.watch(&mut pair).await;
                    let is_early = pair.since.elapsed() < EARLY;
                    pair.end().await;
                    if is_stopped {
                        self.remove_addresses().await;
                        return;
                    }
                    pause = if is_early {
                        (pause * 2).clamp(PAUSE_FIRST, PAUSE_LAST)
                    } else {
                        Duration::ZERO
                    };
                }
                Err(error) => {
                    tracing::error!(%error, "failed to start the VRRP agent");
                    pause = (pause * 2).clamp(PAUSE_FIRST, PAUSE_LAST);
                }
            }
            if self.program.is_none() || !pause.is_zero() {
                self.remove_addresses().await;
            }
            if self.program.is_some() && self.wait(pause).await {
                return;
            }
        }
    }

    /// Watches running processes until one ends or they are not needed any more. Returns whether the keeper stops.
    async fn watch(&mut self, pair: &mut Pair) -> bool {
        loop {
            tokio::select! {
                _ = pair.agent.wait() => {
                    tracing::error!("the VRRP agent died; restarting it");
                    return false;
                }
                _ = pair.helper.wait() => {
                    tracing::error!("the helper died; restarting it and the VRRP agent");
                    return false;
                }
                order = self.orders.recv() => match order {
                    Some(Order::Configure(Some(program))) => {
                        self.program = Some(program);
                        signal(&pair.agent, Signal::HUP);
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
                Some(Order::Stop) | None => true,
            }
        }
    }

    /// Removes what a helper that was killed has left.
    async fn remove_addresses(&self) {
        match weir_helper::remove_recorded(&self.runtime_dir).await {
            Ok(0) => {}
            Ok(count) => tracing::warn!(count, "removed virtual addresses"),
            Err(error) => tracing::error!(%error, "failed to remove virtual addresses"),
        }
    }
}

impl Pair {
    /// Waits for both; the agent ends first, and the helper when its agent has ended.
    async fn end(mut self) {
        for child in [&mut self.agent, &mut self.helper] {
            if timeout(END_TIMEOUT, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        }
    }
}

fn start(program: &Path, runtime_dir: &Path) -> io::Result<Pair> {
    let (one, other) = Channel::pair().map_err(io::Error::other)?;
    let helper = spawn(program, "helper", runtime_dir, one)?;
    let agent = spawn(program, "vrrp-agent", runtime_dir, other)?;
    Ok(Pair {
        agent,
        helper,
        since: Instant::now(),
    })
}

/// Starts a hidden command with a channel as its standard input.
fn spawn(program: &Path, command: &str, runtime_dir: &Path, channel: Channel) -> io::Result<Child> {
    Command::new(program)
        .arg(command)
        .arg("--runtime-dir")
        .arg(runtime_dir)
        .env(KEEPER, std::process::id().to_string())
        .env_remove("LISTEN_PID")
        .env_remove("LISTEN_FDS")
        .env_remove("LISTEN_FDNAMES")
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::from(OwnedFd::from(channel)))
        .kill_on_drop(true)
        .spawn()
}

pub(super) fn signal(child: &Child, signal: Signal) {
    let pid = child
        .id()
        .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}
