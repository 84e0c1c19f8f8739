//! `weir protect`: holds new connections to another program's servers while a command, such as their reload, runs.
//!
//! New connections are held at their first packet: it goes into a ring instead of up the stack and is reinjected when
//! the command has ended. No client is refused, and none waits for its own retry. The command starts once the server
//! has accepted all connections that began before. Holding ends when its time is over or with this process; clients
//! that were held then connect by their first retry.
//!
//! Nothing is known about the command. After it, the listening sockets decide when connections are released: there must
//! be some again, and the replaced ones must be closed.

mod error;
mod frame;
mod holding;
mod migration;
mod quiet;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self as signal, SignalKind};
use weir_netlink::Netlink;
use weir_sys::LockFile;

use error::io_error;
use holding::Holding;
use migration::ProtectionGuard;
use quiet::Listeners;

pub use error::Error;
pub use migration::restore;

/// One protection at a time: a second would read the sysctl that the first has set, and hold what the first releases.
const LOCK: &str = "protect.lock";
/// How often a lock that another process holds is tried.
const LOCK_RETRY: Duration = Duration::from_millis(20);
/// Waiting for the lock is logged after this time.
const LOCK_SILENCE: Duration = Duration::from_secs(1);

/// The command line's options.
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

/// Runs the command under protection and returns its exit status. Must be called inside a tokio runtime, in the network
/// namespace of the servers.
///
/// # Errors
/// Nothing can be held here, or the command cannot be started.
pub async fn protect(options: &Options) -> Result<ExitStatus, Error> {
    let lock = lock(options).await?;
    // From here on there is state to restore.
    let mut signals = Signals::new()?;
    let guard = ProtectionGuard::begin(lock, &options.runtime_dir)?;
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
    let mut holding = Holding::open(&to, &own, &links, guard)?;
    let listeners = Listeners::of(&to)?;
    let begun = Instant::now();
    holding.begin(options.max)?;
    let mut times = Times::default();
    let ended = run(options, &mut holding, &listeners, &mut signals, &mut times).await;
    let held = begun.elapsed();
    // Also where the command did not run: connections that were held meanwhile are released now.
    let counts = holding.end().await?;
    tracing::info!(
        connections = counts.held,
        passed = counts.missed,
        accepted_ms = milliseconds(times.accepted),
        ran_ms = milliseconds(times.ran),
        held_ms = milliseconds(held),
        "released held connections"
    );
    ended
}

async fn lock(options: &Options) -> Result<LockFile, Error> {
    let directory = &options.runtime_dir;
    weir_runtime_dir::prepare(directory)?;
    let begun = Instant::now();
    let mut logged = false;
    loop {
        match LockFile::acquire(directory.join(LOCK)) {
            Err(weir_sys::Error::Locked { holder, .. }) => {
                if !logged && begun.elapsed() > LOCK_SILENCE {
                    logged = true;
                    tracing::warn!(holder, "waiting for another weir protect to end");
                }
                tokio::time::sleep(LOCK_RETRY).await;
            }
            other => return Ok(other?),
        }
    }
}

/// Durations for the log.
#[derive(Debug, Default)]
struct Times {
    accepted: Duration,
    ran: Duration,
}

/// For the log.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Runs the command while new connections are held.
async fn run(
    options: &Options,
    holding: &mut Holding,
    listeners: &Listeners,
    signals: &mut Signals,
    times: &mut Times,
) -> Result<ExitStatus, Error> {
    let begun = Instant::now();
    tokio::select! {
        accepted = holding.during(listeners.accepted(options.max / 2)) => accepted?,
        signal = signals.next() => return Err(Error::Interrupted { signal }),
    }
    times.accepted = begun.elapsed();
    let mut child = start(&options.command)?;
    let ended = holding.during(end_of(&mut child, signals)).await;
    times.ran = begun.elapsed() - times.accepted;
    let remaining = holding.remaining();
    holding.during(listeners.replaced(remaining)).await?;
    ended
}

/// A socket on all IPv6 addresses accepts IPv4 too, unless it has IPV6_V6ONLY.
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

/// Waits for the command. A signal that ends this process is passed on to the command; a terminal signals both.
async fn end_of(child: &mut Child, signals: &mut Signals) -> Result<ExitStatus, Error> {
    let pid = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    loop {
        tokio::select! {
            status = child.wait() => return status.map_err(io_error("waiting for the command")),
            signal = signals.next() => {
                let of_terminal = signal == Signal::INT || signal == Signal::QUIT;
                if let Some(pid) = pid.filter(|_| !of_terminal) {
                    // It may have ended meanwhile.
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }
}

/// Signals that end a process, caught while there is state to restore.
#[derive(Debug)]
struct Signals {
    terminate: signal::Signal,
    hangup: signal::Signal,
    interrupt: signal::Signal,
    quit: signal::Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let on = |kind| signal::signal(kind).map_err(io_error("signals"));
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
            interrupt: on(SignalKind::interrupt())?,
            quit: on(SignalKind::quit())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hangup.recv() => Signal::HUP,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.quit.recv() => Signal::QUIT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_wildcard_includes_ipv4_wildcard() {
        let to = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|text| text.parse().unwrap()).collect()
        };
        let both = with_mapped(to(&["[::]:80", "10.0.0.1:443", "0.0.0.0:80"]));
        assert_eq!(both, to(&["0.0.0.0:80", "10.0.0.1:443", "[::]:80"]));
    }
}
