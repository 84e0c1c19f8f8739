//! Builds commands, sends signals and computes restart delays for the processes that the keeper supervises.
//!
//! Also waits for a process to exit, and kills it after a time limit.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::link::KEEPER;

/// Delay before a restart after an early exit. The delay doubles with each further early exit, up to the maximum.
const MIN_RESTART_DELAY: Duration = Duration::from_millis(50);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(5);
/// An exit is early if the process ran for less than this time.
pub(super) const EARLY_LIFETIME: Duration = Duration::from_secs(1);

/// The delay before the next start of a process.
#[derive(Debug, Default)]
pub(super) struct Backoff(Duration);

impl Backoff {
    /// Returns the delay after the exit of a process that ran for `lifetime`: zero unless the exit was early.
    pub(super) fn after(&mut self, lifetime: Duration) -> Duration {
        if lifetime < EARLY_LIFETIME {
            return self.after_failure();
        }
        self.0 = Duration::ZERO;
        self.0
    }

    /// Returns the delay after a failed start.
    pub(super) fn after_failure(&mut self) -> Duration {
        self.0 = (self.0 * 2).clamp(MIN_RESTART_DELAY, MAX_RESTART_DELAY);
        self.0
    }
}

/// Returns a command that runs `program` with the keeper's process ID in its environment, but without the variables for
/// inherited sockets and for the service manager's notification socket.
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

/// Sends a signal unless the process has exited.
pub(super) fn signal(child: &Child, signal: Signal) {
    let pid = child
        .id()
        .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}

/// Waits until the process exits. Kills it after `limit`. Returns whether the process was killed.
pub(super) async fn wait_or_kill(child: &mut Child, limit: Duration) -> bool {
    let timed_out = timeout(limit, child.wait()).await.is_err();
    if timed_out {
        let _ = child.kill().await;
    }
    timed_out
}

/// Checks that the process did not exit soon after it was started, because it would probably exit again.
///
/// # Errors
/// Fails if the exit was early.
pub(super) fn check_lifetime(since: Instant) -> std::io::Result<()> {
    if since.elapsed() < EARLY_LIFETIME {
        return Err(std::io::Error::other(
            "the process exited right after it was started",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_after_early_exits_and_resets_after_long_run() {
        let mut backoff = Backoff::default();
        let early = Duration::from_millis(999);
        let delays: Vec<_> = (0..9).map(|_| backoff.after(early).as_millis()).collect();
        assert_eq!(delays, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff.after(EARLY_LIFETIME), Duration::ZERO);
        assert_eq!(backoff.after_failure(), MIN_RESTART_DELAY);
    }
}
