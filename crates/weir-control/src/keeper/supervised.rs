//! Shared by the supervisors of the keeper's processes: the environment of a start, the pause before a restart, and
//! the end.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::kept::KEEPER;

/// Pause before a start that follows an early end; it doubles each time.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(5);
/// A process that ran for less than this ended early.
pub(super) const EARLY: Duration = Duration::from_secs(1);

/// The pause before the next start of a process.
#[derive(Debug, Default)]
pub(super) struct Backoff(Duration);

impl Backoff {
    /// Returns the pause after a process that ran for `lifetime`: zero unless it ended early.
    pub(super) fn after(&mut self, lifetime: Duration) -> Duration {
        if lifetime < EARLY {
            return self.after_failure();
        }
        self.0 = Duration::ZERO;
        self.0
    }

    /// Returns the pause after a failed start.
    pub(super) fn after_failure(&mut self) -> Duration {
        self.0 = (self.0 * 2).clamp(PAUSE_FIRST, PAUSE_LAST);
        self.0
    }
}

/// A command of `program` that knows its keeper, and inherits neither sockets nor the notification socket of the
/// service manager.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env(KEEPER, std::process::id().to_string())
        .env_remove("LISTEN_PID")
        .env_remove("LISTEN_FDS")
        .env_remove("LISTEN_FDNAMES")
        .env_remove("NOTIFY_SOCKET");
    command
}

/// Sends a signal, if the process has not ended.
pub(super) fn signal(child: &Child, signal: Signal) {
    let pid = child
        .id()
        .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}

/// Waits until the process ends; kills it after `limit`.
pub(super) async fn wait_or_kill(child: &mut Child, limit: Duration) {
    if timeout(limit, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Checks that a process that has ended was not started just before: it would end again.
///
/// # Errors
/// It ended early.
pub(super) fn check_lifetime(since: Instant) -> std::io::Result<()> {
    if since.elapsed() < EARLY {
        return Err(std::io::Error::other("it ended right after its start"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_after_early_ends_and_resets_after_a_long_run() {
        let mut backoff = Backoff::default();
        let early = Duration::from_millis(999);
        let pauses: Vec<_> = (0..9).map(|_| backoff.after(early).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff.after(EARLY), Duration::ZERO);
        assert_eq!(backoff.after_failure(), PAUSE_FIRST);
    }
}
