//! Helpers of daemons without rights, from the keeper's side: one for each daemon, started with the first request and
//! replaced when it dies.
//!
//! The keeper holds the helper's end of the channel, so a request waits while there is no helper. The helper ends with
//! its daemon.

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

/// Sticky bit of a directory: other users cannot replace a file of root in it.
const STICKY: u32 = 0o1000;

/// Returns the daemon's end of the channel to a helper of `program`; `None`: this process is not root, so the daemon
/// has no rights to give up. Must be called inside a tokio runtime.
///
/// # Errors
/// The limit of open files is reached.
pub(super) fn attend(
    kind: Kind,
    program: &Path,
    configuration: &Path,
    directories: &Paths,
) -> Result<Option<OwnedFd>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let (mine, theirs) = Channel::pair()?;
    attend_channel(
        kind,
        program,
        configuration,
        directories,
        mine.into(),
        false,
    );
    Ok(Some(theirs.into()))
}

/// Starts a helper at this end of a channel with the first request, and again when it dies, until the daemon closes its
/// end. `is_needed`: the helper of an earlier service has had requests, so one is started at once.
pub(super) fn attend_channel(
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
    tokio::spawn(helper.attend(is_needed));
}

/// Whether the daemon has closed its end of a channel.
pub(super) fn is_closed(channel: &OwnedFd) -> bool {
    let mut files = [PollFd::new(channel, PollFlags::IN)];
    let now = Timespec::default();
    matches!(poll(&mut files, Some(&now)), Ok(1)) && files[0].revents().contains(PollFlags::HUP)
}

/// Whether a daemon without rights may have the keeper start this program as root. Returns its path without links: a
/// link of another account could lead to another program afterwards.
///
/// # Errors
/// Another user than root could change the program.
pub(super) fn check_program(program: &Path) -> Result<PathBuf, String> {
    let failed = |error: io::Error| format!("{}: {error}", program.display());
    let path = fs::canonicalize(program).map_err(failed)?;
    for (depth, part) in path.ancestors().enumerate() {
        let known = fs::metadata(part).map_err(failed)?;
        let is_shared = known.mode() & 0o022 != 0 && (depth == 0 || known.mode() & STICKY == 0);
        if known.uid() != 0 || is_shared || (depth == 0 && !known.is_file()) {
            let part = part.display();
            return Err(format!(
                "{}: {part} must belong to root and not be writable by others, because the program is started as root",
                program.display()
            ));
        }
    }
    Ok(path)
}

/// What a helper does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Opens files and sockets, runs programs.
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
    async fn attend(self, is_needed: bool) {
        // A daemon that keeps its rights closes its end.
        if !is_needed && !self.is_needed().await {
            return;
        }
        let mut backoff = Backoff::default();
        loop {
            let started = Instant::now();
            let ended = match self.spawn() {
                Ok(mut child) => child.wait().await.map(|status| status.to_string()),
                Err(error) => Err(error),
            };
            if self.is_closed() {
                return;
            }
            let how = ended.unwrap_or_else(|error| error.to_string());
            tracing::error!(
                how,
                kind = self.kind.option(),
                "the privileged helper of the daemon died; restarting it"
            );
            sleep(backoff.after(started.elapsed())).await;
        }
    }

    /// Waits for the first request. Returns false if the daemon closes its end.
    async fn is_needed(&self) -> bool {
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
