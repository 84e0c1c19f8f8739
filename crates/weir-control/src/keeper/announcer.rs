//! Supervises the announcer for the keeper.
//!
//! The announcer is started when the configuration announces VIPs, and restarted when it exits. It is the last process
//! that the keeper stops.
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

/// Maximum time for the announcer to withdraw its routes and exit. It exceeds the announcer's own limit, because an
/// announcer that is killed leaves routes in the speaker.
pub(in crate::keeper) const EXIT_TIMEOUT: Duration =
    weir_announce::STOP_TIMEOUT.saturating_add(Duration::from_secs(5));
/// Maximum time for an announcer to exit after another one has taken over its routes.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(5);

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
                            tokio::spawn(wait_for_handover(previous));
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

    /// Pauses before a restart, until the next request at the latest. Returns whether the keeper is stopping.
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

/// Waits until the process has withdrawn its routes and exited. Kills it after [`EXIT_TIMEOUT`].
async fn wait_for_exit(mut child: Child) {
    if wait_or_kill(&mut child, EXIT_TIMEOUT).await {
        tracing::error!("the announcer did not exit in time; its routes may remain in the speaker");
    }
}

/// Waits until the process has exited, because another announcer has taken over. Kills it after [`HANDOVER_TIMEOUT`].
async fn wait_for_handover(mut child: Child) {
    wait_or_kill(&mut child, HANDOVER_TIMEOUT).await;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A speaker can need many seconds to withdraw hundreds of routes.
    #[tokio::test]
    async fn announcer_that_withdraws_routes_slowly_is_not_killed() {
        let directory = std::env::temp_dir().join(format!("weir-slow-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (program, started) = (directory.join("announcer"), directory.join("started"));
        let withdrawn = directory.join("withdrawn");
        let script = format!(
            "#!/bin/sh\ntrap 'sleep 6; : >{}; exit' TERM\n: >{}\nwhile :; do sleep 0.05; done\n",
            withdrawn.display(),
            started.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let announcer = Announcer::new(&directory, &directory.join("weir.toml"));
        announcer.configure(true, &program);
        while !started.exists() {
            sleep(Duration::from_millis(10)).await;
        }
        announcer.shutdown().await;
        assert!(withdrawn.exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
