//! Supervises the announcer for the keeper: it is started when the configuration announces VIPs, restarted when it
//! ends, and stopped last.
//!
//! A new program is started next to the old one, which hands over and ends. If the keeper is killed, the announcer
//! withdraws its routes after `withdraw_after` by itself.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::supervised::{self, Backoff, signal, wait_or_kill};

/// How long it may take to withdraw its routes when it stops.
const END_TIMEOUT: Duration = Duration::from_secs(5);
#[derive(Debug)]
enum Order {
    /// The program to start; `None`: the configuration announces nothing.
    Configure(Option<PathBuf>),
    Stop,
}

/// Handle of the task that supervises the announcer.
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
            backoff: Backoff::default(),
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
    backoff: Backoff,
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
                            let pause = self.backoff.after_failure();
                            if self.wait(pause).await {
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
                    let lifetime = running.take().map_or(Duration::MAX, |(.., since)| since.elapsed());
                    let pause = self.backoff.after(lifetime);
                    if !pause.is_zero() && self.wait(pause).await {
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
    async fn wait(&mut self, pause: Duration) -> bool {
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
}

async fn end(mut child: Child) {
    wait_or_kill(&mut child, END_TIMEOUT).await;
}

/// It is not killed with the keeper: its routes must be withdrawn later.
fn start(program: &Path, runtime_dir: &Path, configuration: &Path) -> std::io::Result<Child> {
    supervised::command(program)
        .arg("announcer")
        .arg("--config")
        .arg(configuration)
        .arg("--runtime-dir")
        .arg(runtime_dir)
        .stdin(Stdio::null())
        .spawn()
}
