//! `weir protect`: no new connection meets another program's servers while a command, such as their reload, runs.
//!
//! New connections are held at the very first packet, which goes into a ring instead of up the stack, and comes back when the
//! command has ended: nobody is refused and no client's retry is waited for. Connections that began before are waited for
//! until the server has accepted them. The holding ends by itself when its time is over, or with this process: whoever was held then comes
//! in by its first retry.
//!
//! It knows nothing of what the command does. After it, the listening sockets tell when it is time: there must be some again,
//! and those that were replaced must be gone.

mod frame;
mod holding;
mod migration;
mod quiet;

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use weir_netlink::Netlink;
use weir_sys::LockFile;

use holding::Holding;
use migration::Migration;
use quiet::Listeners;

pub use migration::restore;

/// One protection at a time: the second would find the first one's sysctl, and hold what that one releases.
const LOCK: &str = "protect.lock";
/// How often a lock that another one holds is tried.
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// What the command line gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Connections to these are held; none = to everything that listens now.
    pub listen: Vec<SocketAddr>,
    /// The longest that a connection is held.
    pub max: Duration,
    /// `--runtime-dir`.
    pub runtime_dir: PathBuf,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// Why nothing was protected; the command did not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel takes no program, mostly for want of rights.
    #[error(transparent)]
    Dataplane(#[from] weir_dataplane::Error),
    /// Devices, addresses or sockets cannot be read.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// The lock.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// A socket, a signal or the runtime directory.
    #[error("{what}: {source}")]
    Io {
        /// Of what.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The command cannot be started.
    #[error("{command}: {source}")]
    Command {
        /// The program.
        command: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// Runs the command under protection and answers how it ended. Must be called inside a tokio runtime, in the network namespace of the servers.
///
/// # Errors
/// Nothing can be held here, or the command cannot be started.
pub async fn protect(options: &Options) -> Result<ExitStatus, Error> {
    let _lock = lock(options).await?;
    let migration = Migration::begin(&options.runtime_dir)?;
    let protected = protect_locked(options).await;
    migration.end();
    protected
}

async fn lock(options: &Options) -> Result<LockFile, Error> {
    let directory = &options.runtime_dir;
    std::fs::create_dir_all(directory).map_err(io_error(directory.display().to_string()))?;
    loop {
        match LockFile::acquire(directory.join(LOCK)) {
            Err(weir_sys::Error::Locked { .. }) => tokio::time::sleep(LOCK_RETRY).await,
            other => return Ok(other?),
        }
    }
}

async fn protect_locked(options: &Options) -> Result<ExitStatus, Error> {
    let to = if options.listen.is_empty() {
        quiet::listening()?
    } else {
        options.listen.clone()
    };
    let to = with_mapped(to);
    let netlink = Netlink::open()?;
    let own: Vec<IpAddr> = netlink
        .addresses()
        .await?
        .iter()
        .map(|address| address.ip)
        .collect();
    let links = netlink.links().await?;
    let mut holding = Holding::open(&to, &own, &links)?;
    let listeners = Listeners::of(&to)?;
    let begun = Instant::now();
    holding.begin(options.max)?;
    holding.during(listeners.accepted(options.max / 2)).await?;
    let accepted = begun.elapsed();
    let mut child = start(&options.command)?;
    let ended = holding.during(end_of(&mut child)).await;
    let ran = begun.elapsed() - accepted;
    let left = holding.left();
    holding.during(listeners.replaced(left)).await?;
    let held = begun.elapsed();
    let counts = holding.end().await?;
    tracing::info!(
        connections = counts.held,
        passed = counts.missed,
        ?accepted,
        ?ran,
        ?held,
        "let go"
    );
    ended
}

/// A socket on all IPv6 addresses takes IPv4 too, unless it was told not to.
fn with_mapped(mut to: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let any6 = |address: &&SocketAddr| address.is_ipv6() && address.ip().is_unspecified();
    let mapped: Vec<SocketAddr> = to
        .iter()
        .filter(any6)
        .map(|address| SocketAddr::from(([0, 0, 0, 0], address.port())))
        .collect();
    to.extend(mapped);
    to.sort_unstable();
    to.dedup();
    to
}

fn start(command: &[OsString]) -> Result<Child, Error> {
    let (program, arguments) = match command {
        [program, arguments @ ..] => (program.clone(), arguments),
        [] => (OsString::new(), command),
    };
    let child = Command::new(&program).args(arguments).spawn();
    child.map_err(|source| Error::Command {
        command: program.to_string_lossy().into_owned(),
        source,
    })
}

/// Waits for the command. Who ends this process means the command; a terminal's ^C has reached that already.
async fn end_of(child: &mut Child) -> Result<ExitStatus, Error> {
    let on = |kind| signal(kind).map_err(io_error("signals"));
    let (mut terminate, mut hangup) = (on(SignalKind::terminate())?, on(SignalKind::hangup())?);
    let mut interrupt = on(SignalKind::interrupt())?;
    let pid = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let pass_on = |signal| {
        if let Some(pid) = pid {
            // It may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
    };
    loop {
        tokio::select! {
            status = child.wait() => return status.map_err(io_error("waiting for the command")),
            _ = terminate.recv() => pass_on(Signal::TERM),
            _ = hangup.recv() => pass_on(Signal::HUP),
            _ = interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_ipv6_means_all_of_ipv4_too() {
        let to = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|text| text.parse().unwrap()).collect()
        };
        let both = with_mapped(to(&["[::]:80", "10.0.0.1:443", "0.0.0.0:80"]));
        assert_eq!(both, to(&["0.0.0.0:80", "10.0.0.1:443", "[::]:80"]));
    }
}
