//! The announcer, from the keeper's side: started when the configuration announces VIPs, restarted when it ends, and
//! ended last.
//!
//! A new program is started next to the old one, which hands over and ends. If the keeper is killed, the announcer
//! withdraws its routes after `withdraw_after` by itself.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::kept::KEEPER;
use super::vrrp::signal;

/// How long it may take to withdraw its routes when it stops.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a start that follows an early end; it doubles each time.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(5);
/// An announcer that ran for less than this ended early.
const EARLY: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Order {
    /// The program to start; `None`: the configuration announces nothing.
    Configure(Option<PathBuf>),
    Stop,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Announcer {
    orders: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
}

impl Announcer {
    /// Starts nothing yet. Must be called inside a tokio runtime.
    pub(super) fn new(runtime_dir: &Path, configuration: &Path) -> Self {
        let (orders, receiver) = mpsc::unbounded_channel();
        let supervisor = Supervisor {
            runtime_dir: runtime_dir.to_owned(),
            configuration: configuration.to_owned(),
            orders: receiver,
            program: None,
            pause: Duration::ZERO,
        };
        Self {
            orders,
            task: tokio::spawn(supervisor.run()),
        }
    }

    /// The active configuration announces VIPs, or none.
    pub(super) fn configure(&self, configured: bool, program: &Path) {
        let program = configured.then(|| program.to_owned());
        let _ = self.orders.send(Order::Configure(program));
    }

    /// Withdraws all routes.
    pub(super) fn stop(&self) {
        let _ = self.orders.send(Order::Stop);
    }

    /// Leaves the process running without a supervisor: it withdraws its routes after `withdraw_after`.
    pub(super) fn leave(self) {
        self.task.abort();
    }

    /// Waits until the process has ended.
    pub(super) async fn end(self) {
        self.stop();
        let _ = self.task.await;
    }
}

struct Supervisor {
    runtime_dir: PathBuf,
    /// Root's file, for the announcer.
    configuration: PathBuf,
    orders: mpsc::UnboundedReceiver<Order>,
    /// `None`: nothing is announced.
    program: Option<PathBuf>,
    pause: Duration,
}

impl Supervisor {
    async fn run(mut self) {
        let mut running: Option<(Child, PathBuf, Instant)> = None;
        loop {
            match (&self.program, &mut running) {
                (Some(program), None) => {
                    match start(program, &self.runtime_dir, &self.configuration) {
                        Ok(child) => running = Some((child, program.clone(), Instant::now())),
                        Err(error) => {
                            tracing::error!(%error, "failed to start the announcer");
                            if self.wait().await {
                                return;
                            }
                            continue;
                        }
                    }
                }
                (Some(program), Some((former, started, since))) if program != started => {
                    // The new one asks the former one to end without withdrawing its routes.
                    match start(program, &self.runtime_dir, &self.configuration) {
                        Ok(child) => {
                            let former = std::mem::replace(former, child);
                            (*started, *since) = (program.clone(), Instant::now());
                            tokio::spawn(end(former));
                        }
                        Err(error) => {
                            tracing::error!(%error, "failed to start the new announcer");
                            started.clone_from(program);
                        }
                    }
                }
                (None, Some(_)) => {
                    if let Some((child, ..)) = running.take() {
                        signal(&child, Signal::TERM);
                        end(child).await;
                    }
                }
                _ => {}
            }
            let ended = async {
                match &mut running {
                    Some((child, ..)) => drop(child.wait().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ended => {
                    tracing::error!("the announcer died; restarting it");
                    let is_early = running.take().is_some_and(|(.., since)| since.elapsed() < EARLY);
                    self.pause = match is_early {
                        true => (self.pause * 2).clamp(PAUSE_FIRST, PAUSE_LAST),
                        false => Duration::ZERO,
                    };
                    if is_early && self.wait().await {
                        return;
                    }
                }
                order = self.orders.recv() => match order {
                    Some(Order::Configure(program)) => self.program = program,
                    Some(Order::Stop) | None => {
                        if let Some((child, ..)) = running.take() {
                            signal(&child, Signal::TERM);
                            end(child).await;
                        }
                        return;
                    }
                }
            }
        }
    }

    /// Pauses before a restart. Returns whether the keeper stops.
    async fn wait(&mut self) -> bool {
        self.pause = self.pause.clamp(PAUSE_FIRST, PAUSE_LAST);
        tokio::select! {
            () = sleep(self.pause) => false,
            order = self.orders.recv() => match order {
                Some(Order::Configure(program)) => {
                    self.program = program;
                    false
                }
                Some(Order::Stop) | None => true,
            }
        }
    }
}

async fn end(mut child: Child) {
    if timeout(END_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// It is not killed with the keeper: its routes must be withdrawn later.
fn start(program: &Path, runtime_dir: &Path, configuration: &Path) -> std::io::Result<Child> {
    Command::new(program)
        .arg("announcer")
        .arg("--config")
        .arg(configuration)
        .arg("--runtime-dir")
        .arg(runtime_dir)
        .env(KEEPER, std::process::id().to_string())
        .env_remove("LISTEN_PID")
        .env_remove("LISTEN_FDS")
        .env_remove("LISTEN_FDNAMES")
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .spawn()
}
