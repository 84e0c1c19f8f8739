//! Holds new connections on a server's host while a command runs, such as a reload (`weir protect`).
//!
//! `weir protect` holds a new connection at its first packet: BPF programs write the packet to a ring buffer instead of
//! passing it to the stack, and `weir protect` reinjects it after the command has exited. No connection is refused, and
//! no client has to retransmit. The command starts after the server has accepted all earlier connections, or after half
//! of the time limit. Holding ends when the time limit expires or this process exits; if this process dies, clients
//! whose packets were held connect with their first retransmission.
//!
//! The command can be any program. After it has exited, connections are released once there are listening sockets and
//! the replaced sockets are closed.

mod error;
mod frame;
mod holding;
mod listener;
mod migration;

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
use holding::HeldConnections;
use listener::Listeners;
use migration::ProtectionGuard;

pub use error::Error;
pub use migration::restore;

/// Lock file that allows one `weir protect` at a time: a second process would save the sysctl value set by the first,
/// and hold the packets that the first releases.
const LOCK: &str = "protect.lock";
/// Interval between attempts to take a lock that another process holds.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which waiting for the lock is logged.
const LOCK_LOG_DELAY: Duration = Duration::from_secs(1);

/// The command-line options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Connections to these addresses are held; empty = connections to all listening sockets.
    pub listen: Vec<SocketAddr>,
    /// Maximum time that connections are held.
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
/// Fails if connections cannot be held, a signal arrives before the command is started, or the command cannot be
/// started.
pub async fn protect(options: &Options) -> Result<ExitStatus, Error> {
    let lock = acquire_lock(options).await?;
    // The signal handlers are installed before there is state to restore.
    let mut signals = Signals::new()?;
    let guard = ProtectionGuard::begin(lock, &options.runtime_dir)?;
    let targets = if options.listen.is_empty() {
        listener::listening_addresses()?
    } else {
        options.listen.clone()
    };
    let targets = with_ipv4_wildcard(targets);
    let netlink = Netlink::open()?;
    let host_addresses: Vec<IpAddr> = netlink
        .addresses()
        .await?
        .iter()
        .map(|address| address.ip)
        .collect();
    let links = netlink.links().await?;
    let mut held_connections = HeldConnections::open(&targets, &host_addresses, &links, guard)?;
    let listeners = Listeners::record(&targets)?;
    let started = Instant::now();
    held_connections.begin(options.max)?;
    let mut times = Times::default();
    let result = run(
        options,
        &mut held_connections,
        &listeners,
        &mut signals,
        &mut times,
    )
    .await;
    let held_time = started.elapsed();
    // Connections are released even if the command was not started.
    let counts = held_connections.end().await?;
    tracing::info!(
        connections = counts.held,
        passed = counts.missed,
        accepted_ms = milliseconds(times.accept_wait),
        ran_ms = milliseconds(times.run_time),
        held_ms = milliseconds(held_time),
        "released held connections"
    );
    result
}

/// Waits for the lock and acquires it.
async fn acquire_lock(options: &Options) -> Result<LockFile, Error> {
    let directory = &options.runtime_dir;
    weir_runtime_dir::prepare(directory)?;
    let started = Instant::now();
    let mut logged = false;
    loop {
        match LockFile::acquire(directory.join(LOCK)) {
            Err(weir_sys::Error::Locked { holder, .. }) => {
                if !logged && started.elapsed() > LOCK_LOG_DELAY {
                    logged = true;
                    tracing::warn!(holder, "waiting for another weir protect to end");
                }
                tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
            }
            other => return Ok(other?),
        }
    }
}

/// Durations for the log: the wait for earlier connections to be accepted, and the run time of the command.
#[derive(Debug, Default)]
struct Times {
    accept_wait: Duration,
    run_time: Duration,
}

/// Returns a duration in milliseconds, for the log.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Runs the command while new connections are held.
async fn run(
    options: &Options,
    held_connections: &mut HeldConnections,
    listeners: &Listeners,
    signals: &mut Signals,
    times: &mut Times,
) -> Result<ExitStatus, Error> {
    let started = Instant::now();
    tokio::select! {
        result = held_connections.hold_during(listeners.wait_until_accepted(options.max / 2)) => result?,
        signal = signals.next() => return Err(Error::Interrupted { signal }),
    }
    times.accept_wait = started.elapsed();
    let mut child = start(&options.command)?;
    let result = held_connections
        .hold_during(wait_for_exit(&mut child, signals))
        .await;
    times.run_time = started.elapsed() - times.accept_wait;
    let remaining = held_connections.remaining();
    held_connections
        .hold_during(listeners.wait_until_replaced(remaining))
        .await?;
    result
}

/// Adds the IPv4 wildcard for each IPv6 wildcard: a socket bound to the IPv6 wildcard also accepts IPv4 unless
/// IPV6_V6ONLY is set.
fn with_ipv4_wildcard(mut targets: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let any6 = |address: &&SocketAddr| address.is_ipv6() && address.ip().is_unspecified();
    let ipv4_wildcards: Vec<SocketAddr> = targets
        .iter()
        .filter(any6)
        .map(|address| SocketAddr::from(([0, 0, 0, 0], address.port())))
        .collect();
    targets.extend(ipv4_wildcards);
    targets.sort_unstable();
    targets.dedup();
    targets
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

/// Waits until the command exits. Forwards the signals that this process receives to the command, except those that a
/// terminal sends to both processes.
async fn wait_for_exit(child: &mut Child, signals: &mut Signals) -> Result<ExitStatus, Error> {
    let pid = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    loop {
        tokio::select! {
            status = child.wait() => return status.map_err(io_error("failed to wait for the command")),
            signal = signals.next() => {
                let from_terminal = signal == Signal::INT || signal == Signal::QUIT;
                if let Some(pid) = pid.filter(|_| !from_terminal) {
                    // The command may have exited already.
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }
}

/// Handlers for the signals that terminate a process, installed while there is state to restore.
#[derive(Debug)]
struct Signals {
    terminate: signal::Signal,
    hangup: signal::Signal,
    interrupt: signal::Signal,
    quit: signal::Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let handler =
            |kind| signal::signal(kind).map_err(io_error("failed to install signal handlers"));
        Ok(Self {
            terminate: handler(SignalKind::terminate())?,
            hangup: handler(SignalKind::hangup())?,
            interrupt: handler(SignalKind::interrupt())?,
            quit: handler(SignalKind::quit())?,
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
        let targets = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|text| text.parse().unwrap()).collect()
        };
        let both = with_ipv4_wildcard(targets(&["[::]:80", "10.0.0.1:443", "0.0.0.0:80"]));
        assert_eq!(both, targets(&["0.0.0.0:80", "10.0.0.1:443", "[::]:80"]));
    }
}
