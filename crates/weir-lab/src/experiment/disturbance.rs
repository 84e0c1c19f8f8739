//! Disturbs a balancer under load with different kinds of reloads, an upgrade of the program, or a kill.
//!
//! Each reload changes the configuration by one server, as service discovery does.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};
use crate::namespace::Namespace;
use crate::peer::{START_LIMIT, haproxy, nftables, nginx, weir};
use crate::process::{Daemon, Launcher};
use crate::requirement::{HAPROXY, NGINX, Program};

/// The disturbed balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// HAProxy's older documented method: a new process asks the old ones to finish (`-sf`).
    Haproxy,
    /// A master process that reloads on a signal.
    HaproxyMaster,
    Nginx,
    Weir(weir::Forward),
}

/// The kind of disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    Reload,
    /// The first packets of new connections are dropped during the reload.
    ReloadWithoutSyns,
    /// The reload runs in `weir protect`.
    ProtectedReload,
    /// A new process of the same program takes over.
    Upgrade,
    /// `kill -9` of the daemon.
    Kill,
    /// One server joins or leaves the pool: through Weir's API, or by a reload of a peer.
    Membership,
}

/// Interval between the starts of two reloads, as in the field report.
const RELOAD_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between membership changes: 1,000 a minute.
const MEMBER_CHANGE_INTERVAL: Duration = Duration::from_millis(60);
/// Interval between more expensive disturbances. The field report also used this interval with dropped SYNs, because
/// 100 ms did not work.
const SLOW_INTERVAL: Duration = Duration::from_secs(1);
/// How long SYNs are dropped during a reload.
const SYN_DROP_TIME: Duration = Duration::from_millis(200);
/// Time limit for a disturbance.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// Interval at which a pause checks whether the client has finished.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Subject {
    pub(super) const fn is_weir(self) -> bool {
        matches!(self, Subject::Weir(_))
    }

    pub(super) const fn forward(self) -> Option<weir::Forward> {
        match self {
            Subject::Weir(forward) => Some(forward),
            _ => None,
        }
    }

    pub(super) const fn port(self) -> u16 {
        match self {
            Subject::Haproxy | Subject::HaproxyMaster => haproxy::PORT,
            Subject::Nginx | Subject::Weir(_) => nginx::PORT,
        }
    }

    pub(super) fn program(self) -> Option<Program> {
        match self {
            Subject::Haproxy | Subject::HaproxyMaster => Some(HAPROXY),
            Subject::Nginx => Some(NGINX),
            Subject::Weir(_) => None,
        }
    }

    pub(super) const fn log(self) -> &'static str {
        match self {
            Subject::Haproxy | Subject::HaproxyMaster => "haproxy.log",
            Subject::Nginx => "nginx.log",
            Subject::Weir(_) => "weir-run.log",
        }
    }
}

impl Disturbance {
    pub(super) const fn needs_weir(self) -> bool {
        matches!(self, Disturbance::ProtectedReload)
    }

    /// Returns the time from the start of a disturbance that took `duration` to the start of the next one.
    fn period(self, duration: Duration) -> Duration {
        match self {
            Disturbance::Reload | Disturbance::ProtectedReload => RELOAD_INTERVAL,
            Disturbance::Membership => MEMBER_CHANGE_INTERVAL,
            Disturbance::Upgrade | Disturbance::Kill => SLOW_INTERVAL,
            // Without a pause, SYNs that clients retransmit after a second would always be dropped again.
            Disturbance::ReloadWithoutSyns => duration + SLOW_INTERVAL,
        }
    }
}

/// The environment of a balancer.
pub(super) struct Setup<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) directory: PathBuf,
    /// Document root, which nginx requires even as a pure balancer.
    pub(super) pages: &'a Path,
    pub(super) weir: Option<&'a Path>,
    pub(super) servers: Vec<Ipv4Addr>,
}

/// A running balancer.
pub(super) struct LiveBalancer<'a> {
    subject: Subject,
    disturbance: Disturbance,
    setup: Setup<'a>,
    /// The foreground program; `None` with HAProxy's old method.
    daemon: Option<Daemon>,
    director: Option<weir::Director<'a>>,
}

/// The disturbances of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Disturbances {
    /// Duration of each disturbance, in milliseconds.
    pub(super) milliseconds: Vec<f64>,
    /// Number of a peer's failed disturbances, for example if the previous reload was not complete.
    pub(super) refused: u64,
}

impl<'a> LiveBalancer<'a> {
    /// Starts the balancer, or uses Weir's running director. The caller waits for the first response.
    pub(super) fn start(
        subject: Subject,
        disturbance: Disturbance,
        setup: Setup<'a>,
        director: Option<weir::Director<'a>>,
    ) -> Result<Self> {
        let mut balancer = LiveBalancer {
            subject,
            disturbance,
            setup,
            daemon: None,
            director,
        };
        match subject {
            Subject::Haproxy => {
                haproxy::write(&balancer.setup.directory, &balancer.setup.servers)?;
                balancer.shell(
                    "haproxy",
                    &haproxy::daemon_command(&balancer.setup.directory),
                )?;
            }
            Subject::HaproxyMaster => {
                balancer.daemon = Some(haproxy::start_master(
                    &balancer.launcher(),
                    &balancer.setup.servers,
                )?);
            }
            Subject::Nginx => {
                let role = nginx::Role::Proxy {
                    method: "",
                    servers: &balancer.setup.servers,
                };
                balancer.daemon = Some(nginx::start(
                    &balancer.launcher(),
                    balancer.setup.pages,
                    &role,
                )?);
            }
            Subject::Weir(_) => {}
        }
        if let (Disturbance::Membership, Some(director)) = (disturbance, &balancer.director) {
            // The file does not contain the last server, because the API adds and removes it.
            let [initial @ .., _] = balancer.setup.servers.as_slice() else {
                return Ok(balancer);
            };
            director.reload(initial)?;
        }
        Ok(balancer)
    }

    fn launcher(&self) -> Launcher<'_> {
        Launcher {
            namespace: self.setup.namespace,
            cgroup: None,
            directory: &self.setup.directory,
        }
    }

    fn shell(&self, name: &str, command: &str) -> Result<String> {
        self.launcher()
            .run(name, Path::new("sh"), &["-c", command], COMMAND_LIMIT)
    }

    /// Returns the servers in the configuration of this round.
    fn servers(&self, round: u32) -> &[Ipv4Addr] {
        let servers = &self.setup.servers;
        let count = if round.is_multiple_of(2) {
            servers.len().saturating_sub(1)
        } else {
            servers.len()
        };
        servers.get(..count).unwrap_or(servers)
    }

    /// Writes a peer's next configuration and returns the shell command that activates it.
    fn reload_command(&self, round: u32) -> Result<String> {
        let directory = &self.setup.directory;
        let servers = self.servers(round);
        match self.subject {
            Subject::Haproxy => {
                haproxy::write(directory, servers)?;
                Ok(haproxy::daemon_command(directory))
            }
            Subject::HaproxyMaster => {
                haproxy::write(directory, servers)?;
                Ok(format!("kill -USR2 {}", self.pid()))
            }
            Subject::Nginx => {
                let role = nginx::Role::Proxy {
                    method: "",
                    servers,
                };
                nginx::write(&self.launcher(), self.setup.pages, &role)?;
                Ok(format!("kill -HUP {}", self.pid()))
            }
            Subject::Weir(_) => Ok(String::new()),
        }
    }

    fn pid(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Daemon::pid)
    }

    fn disturb(&self, round: u32) -> Result<()> {
        if let Some(director) = &self.director {
            return match self.disturbance {
                Disturbance::Upgrade => director.upgrade(),
                Disturbance::Kill => director.kill_daemon(),
                Disturbance::Membership => match self.setup.servers.last() {
                    Some(server) => director.set_member(*server, round.is_multiple_of(2)),
                    None => Ok(()),
                },
                _ => director.reload(self.servers(round)),
            };
        }
        let command = self.reload_command(round)?;
        match (self.disturbance, self.setup.weir) {
            (Disturbance::ProtectedReload, Some(weir)) => {
                let listen = format!("0.0.0.0:{}", self.subject.port());
                let runtime = self.setup.directory.join("protect");
                let mut arguments: Vec<&OsStr> = vec![OsStr::new("--runtime-dir")];
                arguments.push(runtime.as_os_str());
                arguments.extend(
                    ["protect", "--listen", &listen, "--", "sh", "-c", &command].map(OsStr::new),
                );
                let launcher = self.launcher();
                launcher.run("weir-protect", weir, &arguments, COMMAND_LIMIT)?;
            }
            (Disturbance::ReloadWithoutSyns, _) => {
                nftables::drop_syns(self.setup.namespace, self.subject.port())?;
                let result = self.shell("reload", &command);
                std::thread::sleep(SYN_DROP_TIME);
                nftables::pass_syns(self.setup.namespace)?;
                result?;
            }
            _ => {
                self.shell("reload", &command)?;
            }
        }
        Ok(())
    }

    /// Waits until the last disturbance has ended, so that it does not affect an undisturbed run that follows.
    fn wait_until_undisturbed(&self) -> Result<()> {
        match &self.director {
            Some(director) => director.wait_until_responding(START_LIMIT),
            None => Ok(()),
        }
    }
}

/// Disturbs the balancer until `work` ends.
///
/// # Errors
/// Returns the error of `work` or of a disturbance. If a peer rejects a disturbance, it is only counted.
pub(super) fn run_disturbed<T: Send>(
    balancer: &LiveBalancer<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<(T, Disturbances)> {
    let done = AtomicBool::new(false);
    let (result, disturbances) = std::thread::scope(|scope| {
        let disturber = scope.spawn(|| disturb_until(balancer, &done));
        let result = work();
        done.store(true, Ordering::Release);
        let disturbances = match disturber.join() {
            Ok(disturbances) => disturbances,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        (result, disturbances)
    });
    let (result, disturbances) = (result?, disturbances?);
    balancer.wait_until_undisturbed()?;
    Ok((result, disturbances))
}

fn disturb_until(balancer: &LiveBalancer<'_>, done: &AtomicBool) -> Result<Disturbances> {
    let mut disturbances = Disturbances::default();
    for round in 0.. {
        let started_at = Instant::now();
        match balancer.disturb(round) {
            Ok(()) => disturbances
                .milliseconds
                .push(started_at.elapsed().as_secs_f64() * 1000.0),
            Err(LabError::Failed { .. }) if balancer.director.is_none() => {
                disturbances.refused += 1;
            }
            Err(error) => return Err(error),
        }
        // A disturbance that takes longer than the interval delays the next one, so that two disturbances never
        // overlap.
        let period = balancer.disturbance.period(started_at.elapsed());
        while started_at.elapsed() < period {
            if done.load(Ordering::Acquire) {
                return Ok(disturbances);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        if done.load(Ordering::Acquire) {
            break;
        }
    }
    Ok(disturbances)
}
