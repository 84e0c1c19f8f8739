//! Supervises the announcer for the keeper: starts it when the configuration announces VIPs, restarts it when it exits,
//! and stops it last.
//!
//! During an upgrade, the new announcer is started before the previous one exits, and takes over from it. If the keeper
//! is killed, the announcer itself withdraws its routes after `withdraw_after`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::supervised::{self, Backoff, signal, wait_or_kill};

/// Maximum time for the announcer to withdraw its routes and exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Request {
    /// The program to start; `None` = the configuration announces nothing.
    Configure(Option<PathBuf>),
    Stop,
}

/// A handle to the task that supervises the announcer.
#[derive(Debug)]
pub(super) struct Announcer {
    requests: mpsc::UnboundedSender<Request>,
    task: JoinHandle<()>,
}

impl Announcer {
    /// Creates the supervisor, without starting a process. Must be called inside a tokio runtime.
    pub(super) fn new(runtime_dir: &Path, configuration: &Path) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let supervisor = Supervisor {
            runtime_dir: runtime_dir.to_owned(),
            configuration: configuration.to_owned(),
            requests: receiver,
            program: None,
            backoff: Backoff::default(),
        };
        Self {
            requests,
            task: tokio::spawn(supervisor.run()),
        }
    }

    /// Starts the announcer if the active configuration announces VIPs; otherwise stops it.
    pub(super) fn configure(&self, configured: bool, program: &Path) {
        let program = configured.then(|| program.to_owned());
        let _ = self.requests.send(Request::Configure(program));
    }

    /// Stops the announcer, which withdraws all routes.
    pub(super) fn stop(&self) {
        let _ = self.requests.send(Request::Stop);
    }

    /// Leaves the announcer running without a supervisor. The announcer withdraws its routes after `withdraw_after`.
    pub(super) fn detach(self) {
        self.task.abort();
    }

    /// Stops the announcer and waits until it has exited.
    pub(super) async fn shutdown(self) {
        self.stop();
        let _ = self.task.await;
    }
}

struct Supervisor {
    runtime_dir: PathBuf,
    /// The configuration file, which the announcer reads.
    configuration: PathBuf,
    requests: mpsc::UnboundedReceiver<Request>,
    /// The program to run; `None` = the configuration announces nothing.
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
                (Some(program), Some((current, running_program, started_at)))
                    if program != running_program =>
                {
                    // The new announcer makes the previous one exit without withdrawing its routes.
                    match start(program, &self.runtime_dir, &self.configuration) {
                        Ok(child) => {
                            let previous = std::mem::replace(current, child);
                            (*running_program, *started_at) = (program.clone(), Instant::now());
                            tokio::spawn(wait_for_exit(previous));
                        }
                        Err(error) => {
                            tracing::error!(%error, "failed to start the new announcer");
                            running_program.clone_from(program);
                        }
                    }
                }
                (None, Some(_)) => {
                    if let Some((child, ..)) = running.take() {
                        signal(&child, Signal::TERM);
                        wait_for_exit(child).await;
                    }
                }
                _ => {}
            }
            let exited = async {
                match &mut running {
                    Some((child, ..)) => drop(child.wait().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = exited => {
                    tracing::error!("the announcer died; restarting it");
                    let lifetime = running.take().map_or(Duration::MAX, |(.., started_at)| started_at.elapsed());
                    let pause = self.backoff.after(lifetime);
                    if !pause.is_zero() && self.wait(pause).await {
                        return;
                    }
                }
                request = self.requests.recv() => match request {
                    Some(Request::Configure(program)) => self.program = program,
                    Some(Request::Stop) | None => {
                        if let Some((child, ..)) = running.take() {
                            signal(&child, Signal::TERM);
                            wait_for_exit(child).await;
                        }
                        return;
                    }
                }
            }
        }
    }

    /// Pauses before a restart. Returns whether the keeper is stopping.
    async fn wait(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = sleep(pause) => false,
            request = self.requests.recv() => match request {
                Some(Request::Configure(program)) => {
                    self.program = program;
                    false
                }
                Some(Request::Stop) | None => true,
            }
        }
    }
}

/// Waits until the process has exited. Kills it after [`EXIT_TIMEOUT`].
async fn wait_for_exit(mut child: Child) {
    wait_or_kill(&mut child, EXIT_TIMEOUT).await;
}

/// Starts the announcer. The announcer is not killed when the keeper exits, because it must withdraw its routes later.
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
