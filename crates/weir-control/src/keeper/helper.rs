//! Starts the helpers of unprivileged daemons.
//!
//! For each daemon, one helper of each kind is started at the first request, and again when a helper dies.
//!
//! The keeper also holds the helper's end of the channel, so requests wait while no helper is running. A helper exits
//! when its daemon exits.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::process::Child;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use weir_engine::Paths;
use weir_sys::Channel;

use super::error::Error;
use super::supervised::{self, Backoff};

/// The sticky bit of a directory, which prevents other users from replacing root's files in the directory.
const STICKY: u32 = 0o1000;

/// Returns the daemon's end of the channel to a helper that runs `program`; `None` = this process is not root, so the
/// daemon has no privileges to drop. Must be called inside a tokio runtime.
///
/// # Errors
/// Fails if the open-file limit is reached.
pub(super) fn supervise(
    kind: Kind,
    program: &Path,
    configuration: &Path,
    directories: &Paths,
) -> Result<Option<OwnedFd>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let (keeper_end, daemon_end) = Channel::pair()?;
    supervise_channel(
        kind,
        program,
        configuration,
        directories,
        keeper_end.into(),
        false,
    );
    Ok(Some(daemon_end.into()))
}

/// Starts a helper at this end of a channel at the first request, and again when the helper dies, until the daemon
/// closes its end. If `is_needed` is set, a helper of an earlier service has already received requests, so a helper is
/// started immediately.
pub(super) fn supervise_channel(
    kind: Kind,
    program: &Path,
    configuration: &Path,
    directories: &Paths,
    channel: OwnedFd,
    is_needed: bool,
) {
    let helper = Helper {
        program: program.to_owned(),
        configuration: configuration.to_owned(),
        directories: directories.clone(),
        kind,
        channel,
    };
    tokio::spawn(helper.supervise(is_needed));
}

/// Returns whether the daemon has closed its end of a channel.
pub(super) fn is_closed(channel: &OwnedFd) -> bool {
    let mut files = [PollFd::new(channel, PollFlags::IN)];
    let no_wait = Timespec::default();
    matches!(poll(&mut files, Some(&no_wait)), Ok(1)) && files[0].revents().contains(PollFlags::HUP)
}

/// Checks that the keeper may start this program as root at the request of an unprivileged daemon. Returns the path
/// with all links resolved, because another account could change a link later.
///
/// # Errors
/// Fails if the program does not exist or is not a regular file, or if a user other than root can change or replace it.
pub(super) fn check_program(program: &Path) -> Result<PathBuf, String> {
    let to_text = |error: io::Error| format!("{}: {error}", program.display());
    let path = fs::canonicalize(program).map_err(to_text)?;
    if !fs::metadata(&path).map_err(to_text)?.is_file() {
        return Err(format!("{}: not a regular file", program.display()));
    }
    for (depth, component) in path.ancestors().enumerate() {
        let metadata = fs::metadata(component).map_err(to_text)?;
        let is_shared =
            metadata.mode() & 0o022 != 0 && (depth == 0 || metadata.mode() & STICKY == 0);
        if metadata.uid() != 0 || is_shared {
            let component = component.display();
            return Err(format!(
                "{}: {component} must be owned by root and not writable by others, because the program is \
                 started as root",
                program.display()
            ));
        }
    }
    Ok(path)
}

/// A helper's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Opens files and sockets, and runs programs.
    Files,
    /// Owns the layer 4 engine.
    Engine,
}

impl Kind {
    const fn option(self) -> &'static str {
        match self {
            Self::Files => "--daemon",
            Self::Engine => "--engine",
        }
    }
}

struct Helper {
    program: PathBuf,
    configuration: PathBuf,
    directories: Paths,
    kind: Kind,
    channel: OwnedFd,
}

impl Helper {
    async fn supervise(self, is_needed: bool) {
        // A daemon that keeps running as root closes its end of the channel.
        if !is_needed && !self.wait_for_request().await {
            return;
        }
        let mut backoff = Backoff::default();
        loop {
            let start_time = Instant::now();
            let result = match self.spawn() {
                Ok(mut child) => child.wait().await.map(|status| status.to_string()),
                Err(error) => Err(error),
            };
            if self.is_closed() {
                return;
            }
            let cause = result.unwrap_or_else(|error| error.to_string());
            tracing::error!(
                cause,
                kind = self.kind.option(),
                "the privileged helper of the daemon died; restarting it"
            );
            sleep(backoff.after(start_time.elapsed())).await;
        }
    }

    /// Waits for the first request. Returns `false` if the daemon closes its end of the channel.
    async fn wait_for_request(&self) -> bool {
        let Ok(channel) = self.channel.try_clone() else {
            return true;
        };
        let (sender, ready) = oneshot::channel();
        std::thread::spawn(move || {
            let mut files = [PollFd::new(&channel, PollFlags::IN)];
            while matches!(poll(&mut files, None), Err(Errno::INTR)) {}
            let _ = sender.send(());
        });
        ready.await.is_ok() && !self.is_closed()
    }

    fn is_closed(&self) -> bool {
        is_closed(&self.channel)
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut command = supervised::command(&self.program);
        weir_sys::restore_nofile(command.as_std_mut());
        command
            .arg("--config")
            .arg(&self.configuration)
            .arg("--runtime-dir")
            .arg(&self.directories.runtime_dir)
            .arg("--pin-dir")
            .arg(&self.directories.pin_dir)
            .args(["helper", self.kind.option()])
            .stdin(Stdio::from(self.channel.try_clone()?))
            .kill_on_drop(true)
            .spawn()
    }
}
