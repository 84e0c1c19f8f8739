//! What is done to a balancer while clients come: reloads of every kind, an exchange of the program, its death.
//!
//! Each reload brings another configuration than the active one, with one server more or less: what service discovery
//! makes balancers reload for.

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

/// Whose clients are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// As its manual has it for years: a new process that asks the old ones to finish (`-sf`).
    Haproxy,
    /// A master process and a signal to it.
    HaproxyMaster,
    Nginx,
    Weir(weir::Forward),
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Reload,
    /// New connections' first packets are dropped around it.
    ReloadWithoutSyns,
    /// `weir protect` around it.
    ProtectedReload,
    /// Another process of the same program takes over.
    Upgrade,
    /// `kill -9` of the daemon.
    Kill,
}

/// Between the begin of one and the begin of the next, as in the report.
const RELOADS_EVERY: Duration = Duration::from_millis(100);
/// Of those that cost more: the report's pause with dropped SYNs, too, where 100 ms broke down.
const OTHERS_EVERY: Duration = Duration::from_secs(1);
/// How long SYNs are dropped around a reload.
const DROPPING: Duration = Duration::from_millis(200);
/// One disturbance may take this long.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// How long a client may go on alone when its balancer can no longer be disturbed, until that is noticed.
const LOOK: Duration = Duration::from_millis(5);

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

    pub(super) fn programs(self) -> Option<Program> {
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

impl By {
    pub(super) const fn needs_weir(self) -> bool {
        matches!(self, By::ProtectedReload)
    }

    /// When the next one begins after one that took so long.
    fn period(self, took: Duration) -> Duration {
        match self {
            By::Reload | By::ProtectedReload => RELOADS_EVERY,
            By::Upgrade | By::Kill => OTHERS_EVERY,
            // A pause, or the repeated SYNs of dropped ones, which come after a second, are dropped again for ever.
            By::ReloadWithoutSyns => took + OTHERS_EVERY,
        }
    }
}

/// Where a balancer runs.
pub(super) struct Setup<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) directory: PathBuf,
    /// Document root, which an nginx that only balances names too.
    pub(super) pages: &'a Path,
    pub(super) weir: Option<&'a Path>,
    pub(super) servers: Vec<Ipv4Addr>,
}

/// A balancer that runs and can be disturbed.
pub(super) struct Live<'a> {
    subject: Subject,
    by: By,
    setup: Setup<'a>,
    /// A foreground program; HAProxy's old style has none.
    daemon: Option<Daemon>,
    director: Option<weir::Director<'a>>,
}

/// What was done during a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Disturbed {
    /// How long each took, in milliseconds.
    pub(super) milliseconds: Vec<f64>,
    /// Those that the program refused, as a balancer may that is reloaded faster than it can be.
    pub(super) refused: u64,
}

impl<'a> Live<'a> {
    /// Starts the balancer, or takes over Weir's director; the caller awaits the first answer.
    pub(super) fn start(
        subject: Subject,
        by: By,
        setup: Setup<'a>,
        director: Option<weir::Director<'a>>,
    ) -> Result<Self> {
        let mut live = Live {
            subject,
            by,
            setup,
            daemon: None,
            director,
        };
        match subject {
            Subject::Haproxy => {
                haproxy::write(&live.setup.directory, &live.setup.servers)?;
                live.shell("haproxy", &haproxy::old_style(&live.setup.directory))?;
            }
            Subject::HaproxyMaster => {
                live.daemon = Some(haproxy::start_master(
                    &live.launcher(),
                    &live.setup.servers,
                )?);
            }
            Subject::Nginx => {
                let role = nginx::Role::Proxy {
                    servers: &live.setup.servers,
                };
                live.daemon = Some(nginx::start(&live.launcher(), live.setup.pages, &role)?);
            }
            Subject::Weir(_) => {}
        }
        Ok(live)
    }

    fn launcher(&self) -> Launcher<'_> {
        Launcher {
            namespace: self.setup.namespace,
            directory: &self.setup.directory,
        }
    }

    fn shell(&self, name: &str, line: &str) -> Result<String> {
        self.launcher()
            .run(name, Path::new("sh"), &["-c", line], COMMAND_LIMIT)
    }

    /// The servers of the `round`-th configuration.
    fn servers(&self, round: u32) -> &[Ipv4Addr] {
        let all = &self.setup.servers;
        let count = if round.is_multiple_of(2) {
            1
        } else {
            all.len()
        };
        all.get(..count).unwrap_or(all)
    }

    /// Writes a peer's next configuration; the shell line that brings it into force.
    fn reload_line(&self, round: u32) -> Result<String> {
        let directory = &self.setup.directory;
        let servers = self.servers(round);
        match self.subject {
            Subject::Haproxy => {
                haproxy::write(directory, servers)?;
                Ok(haproxy::old_style(directory))
            }
            Subject::HaproxyMaster => {
                haproxy::write(directory, servers)?;
                Ok(format!("kill -USR2 {}", self.pid()))
            }
            Subject::Nginx => {
                let role = nginx::Role::Proxy { servers };
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
            return match self.by {
                By::Upgrade => director.upgrade(),
                By::Kill => director.kill_daemon(),
                _ => director.reload(self.servers(round)),
            };
        }
        let line = self.reload_line(round)?;
        match (self.by, self.setup.weir) {
            (By::ProtectedReload, Some(weir)) => {
                let listen = format!("0.0.0.0:{}", self.subject.port());
                let runtime = self.setup.directory.join("protect");
                let mut arguments: Vec<&OsStr> = vec![OsStr::new("--runtime-dir")];
                arguments.push(runtime.as_os_str());
                arguments.extend(
                    ["protect", "--listen", &listen, "--", "sh", "-c", &line].map(OsStr::new),
                );
                let launcher = self.launcher();
                launcher.run("weir-protect", weir, &arguments, COMMAND_LIMIT)?;
            }
            (By::ReloadWithoutSyns, _) => {
                nftables::drop_syns(self.setup.namespace, self.subject.port())?;
                let reloaded = self.shell("reload", &line);
                std::thread::sleep(DROPPING);
                nftables::pass_syns(self.setup.namespace)?;
                reloaded?;
            }
            _ => {
                self.shell("reload", &line)?;
            }
        }
        Ok(())
    }

    /// Waits until what was disturbed last is whole again, so that a quiet run after it is quiet.
    fn settle(&self) -> Result<()> {
        match &self.director {
            Some(director) => director.await_answer(START_LIMIT),
            None => Ok(()),
        }
    }
}

/// Disturbs the balancer until `work` ends.
///
/// # Errors
/// `work`'s; what Weir refuses. A peer's refusals are counted.
pub(super) fn during<T: Send>(
    live: &Live<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<(T, Disturbed)> {
    let done = AtomicBool::new(false);
    let (result, disturbed) = std::thread::scope(|scope| {
        let disturbing = scope.spawn(|| disturb_until(live, &done));
        let result = work();
        done.store(true, Ordering::Release);
        let disturbed = match disturbing.join() {
            Ok(disturbed) => disturbed,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        (result, disturbed)
    });
    let (result, disturbed) = (result?, disturbed?);
    live.settle()?;
    Ok((result, disturbed))
}

fn disturb_until(live: &Live<'_>, done: &AtomicBool) -> Result<Disturbed> {
    let mut seen = Disturbed::default();
    for round in 0.. {
        let begun = Instant::now();
        match live.disturb(round) {
            Ok(()) => seen
                .milliseconds
                .push(begun.elapsed().as_secs_f64() * 1000.0),
            Err(LabError::Failed { .. }) if live.director.is_none() => seen.refused += 1,
            Err(error) => return Err(error),
        }
        // One that took longer than its period delays the next: they never meet.
        let period = live.by.period(begun.elapsed());
        while begun.elapsed() < period {
            if done.load(Ordering::Acquire) {
                return Ok(seen);
            }
            std::thread::sleep(LOOK);
        }
        if done.load(Ordering::Acquire) {
            break;
        }
    }
    Ok(seen)
}
