//! Manages a daemon process for the keeper, and the channel to the process.

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use weir_sys::Channel;

use super::error::Error;
use super::link::KEEPER;
use super::message::{ToDaemon, ToKeeper};

/// Time limit for receiving the last messages of a daemon that has exited. The channel may stay open, because another
/// process may hold the daemon's end.
const LAST_MESSAGES_TIMEOUT: Duration = Duration::from_millis(50);

/// An event that concerns a daemon.
#[derive(Debug)]
pub(super) enum Event {
    /// The daemon sent a message.
    Message(ToKeeper, Vec<OwnedFd>),
    /// The daemon has exited.
    Exited(ExitStatus),
    /// The successor was not ready in time.
    ReadyTimeout,
    /// The pause before a restart is over.
    Restart,
}

/// A daemon process and the channel to it.
#[derive(Debug)]
pub(super) struct Child {
    pid: Option<Pid>,
    channel: Arc<Channel>,
}

impl Child {
    /// Starts `program` with this process's arguments. Sends the daemon's events to `events`, together with `number`.
    /// Must be called inside a tokio runtime, by a thread that lives as long as the process: when the thread ends, the
    /// kernel sends the daemon its parent-death signal, SIGKILL.
    ///
    /// # Errors
    /// Fails if the channel cannot be created or the program cannot be started.
    pub(super) fn start(
        program: &Path,
        number: u32,
        events: mpsc::UnboundedSender<(u32, Event)>,
    ) -> Result<Self, Error> {
        let (keeper_end, daemon_end) = Channel::pair()?;
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let mut command = Command::new(program);
        // The daemon raises its own limit, and starts other programs with the original limit.
        weir_sys::restore_nofile(command.as_std_mut());
        let spawned = command
            .args(arguments)
            .env(KEEPER, std::process::id().to_string())
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .stdin(OwnedFd::from(daemon_end))
            .spawn();
        let mut child = spawned.map_err(|source| Error::Program {
            path: program.to_owned(),
            source,
        })?;
        let pid = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let channel = Arc::new(keeper_end);
        let (reader, messages) = (Arc::clone(&channel), events.clone());
        let (reader_alive, reader_ended) = oneshot::channel::<()>();
        // The thread ends when the daemon's end of the channel is closed, normally because the daemon has exited.
        std::thread::spawn(move || {
            let _reader_alive = reader_alive;
            while let Ok(Some(message)) = reader.receive() {
                match serde_json::from_slice(&message.bytes) {
                    Ok(content) => {
                        let _ = messages.send((number, Event::Message(content, message.files)));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "received an invalid message from the daemon")
                    }
                }
            }
        });
        tokio::spawn(async move {
            if let Ok(status) = child.wait().await {
                // Wait, so that the daemon's last messages are handled before its exit.
                let _ = timeout(LAST_MESSAGES_TIMEOUT, reader_ended).await;
                let _ = events.send((number, Event::Exited(status)));
            }
        });
        Ok(Self { pid, channel })
    }

    /// Returns the process ID; 0 = unknown.
    pub(super) fn pid(&self) -> u32 {
        self.pid
            .map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Sends a message. Ignores errors, because the exit of the process is reported separately.
    pub(super) fn send(&self, message: &ToDaemon, files: &[BorrowedFd<'_>]) {
        let result = serde_json::to_vec(message).map(|bytes| self.channel.send(&bytes, files));
        if let Ok(Err(error)) = result {
            tracing::debug!(%error, "failed to send a message to the daemon");
        }
    }

    /// Returns whether the process is alive. [`Event::Exited`] can arrive later, when the process's last thread has
    /// exited (proc(5): `stat`).
    pub(super) fn is_alive(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let state = stat.ok().and_then(|stat| {
            let (_, remainder) = stat.rsplit_once(')')?;
            remainder.trim_start().chars().next()
        });
        !matches!(state, None | Some('Z' | 'X'))
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // The process may have exited already.
            let _ = kill_process(pid, signal);
        }
    }
}
