//! One trial: hosts, real servers, a balancer, and `ab` from the client while the wire is sampled.

mod start;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::start::Running;
use super::RunOptions;
use super::disturbance::{self, By, Disturbed, Subject};
use crate::error::{LabError, Result};
use crate::peer::{START_LIMIT, ab, haproxy, http, nginx, weir, wrk};
use crate::process::{self, Launcher};
use crate::progress::Progress;
use crate::rate::Rate;
use crate::requirement::{AB, BASE, HAPROXY, LDIRECTORD, NFT, NGINX, PHP_FPM, Program, WRK};
use crate::sample::{self, Series};
use crate::session::Session;
use crate::topology::{Host, Plan, Topology, VIP};

/// What is between client and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Balancer {
    /// Nothing: the client asks the first server.
    OneServer,
    Haproxy,
    /// Stateless rewriting of the destination, servers answer directly.
    NftablesDirect,
    /// DNAT with conntrack.
    NftablesDnat,
    /// nginx that speaks FastCGI to the servers' workers, with a directive for the choice.
    NginxFastCgi(&'static str),
    Weir(weir::Forward),
    /// Direct routing by Weir, whose table ldirectord keeps.
    Ldirectord,
    /// Something is done to it again and again, while clients come.
    Disturbed(Subject, By),
}

impl Balancer {
    /// Its hosts: one server where nothing balances, and replies that go straight to the client.
    pub(super) fn plan(self, servers: u8, link: Option<Rate>) -> Plan {
        Plan {
            servers: if self == Self::OneServer { 1 } else { servers },
            link,
            replies_by_director: false,
        }
    }

    /// Whether the `weir` program is needed.
    pub(super) const fn needs_weir(self) -> bool {
        match self {
            Self::Weir(_) | Self::Ldirectord => true,
            Self::Disturbed(subject, by) => subject.is_weir() || by.needs_weir(),
            _ => false,
        }
    }
}

/// A way of balancing, under the name that reports use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Method {
    pub(super) name: String,
    pub(super) balancer: Balancer,
    /// Weir's name of the scheduler; peers translate it or have their own.
    pub(super) scheduler: String,
}

impl Method {
    pub(super) fn new(name: &str, balancer: Balancer, scheduler: &str) -> Self {
        Self {
            name: name.into(),
            balancer,
            scheduler: scheduler.into(),
        }
    }
}

/// What the real servers serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// Files, by nginx alone.
    Pages,
    /// PHP pages, by nginx and FPM.
    Php,
}

/// A run whose latencies count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    /// Whether the balancer is disturbed meanwhile.
    pub(super) disturbed: bool,
    /// The client is wrk, which keeps its connections, for so long.
    pub(super) wrk: Option<Duration>,
}

/// One run of `ab`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// Added to the method's name in rows where a trial has several.
    pub(super) name: Option<String>,
    /// Path and query.
    pub(super) path: String,
    pub(super) requests: u32,
    pub(super) concurrency: u32,
    pub(super) any_length: bool,
    /// Several requests over each connection.
    pub(super) keep_alive: bool,
    /// Length of an answer, for the time that the links will need.
    pub(super) answer_bytes: u64,
    /// Absent = only rates are of interest.
    pub(super) timed: Option<Timed>,
}

impl Work {
    /// One page, each request over a connection of its own; how many there are, and at once, the options may say
    /// otherwise.
    pub(super) fn of(
        options: &RunOptions,
        page: &str,
        (requests, concurrency): (u32, u32),
        answer_bytes: u64,
    ) -> Self {
        Self {
            name: None,
            path: format!("/{page}"),
            requests: options.requests.unwrap_or(requests),
            concurrency: options.concurrency.unwrap_or(concurrency),
            any_length: false,
            keep_alive: false,
            answer_bytes,
            timed: None,
        }
    }
}

/// A method, its hosts and its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    pub(super) method: Method,
    pub(super) plan: Plan,
    pub(super) site: Site,
    pub(super) works: Vec<Work>,
}

/// What one piece of work gave.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    pub(super) work: Option<String>,
    pub(super) outcome: ab::Outcome,
    pub(super) series: Series,
    /// What was done to the balancer meanwhile.
    pub(super) disturbed: Option<Disturbed>,
}

/// What all trials of a run share.
pub(super) struct Setting<'a> {
    pub(super) session: &'a Session,
    pub(super) progress: &'a Progress,
    /// The `weir` program; absent where no method of the run needs it.
    pub(super) weir: Option<&'a Path>,
    /// Document root of all servers.
    pub(super) pages: &'a Path,
}

/// For trials without limited links: nothing here takes minutes, and what does is stuck.
const UNSHAPED_LIMIT: Duration = Duration::from_secs(600);
/// A limited link may take this many times the time of its bytes, and the margin, before the trial counts as stuck.
const SHAPED_SLACK: u64 = 3;
const SHAPED_MARGIN_SECONDS: u64 = 120;

impl Trial {
    /// The programs that the trial starts.
    pub(super) fn programs(&self) -> Vec<Program> {
        let mut programs = BASE.to_vec();
        programs.extend([AB, NGINX]);
        if self.site == Site::Php {
            programs.push(PHP_FPM);
        }
        match self.method.balancer {
            Balancer::Haproxy => programs.push(HAPROXY),
            Balancer::NftablesDirect | Balancer::NftablesDnat => programs.push(NFT),
            Balancer::Ldirectord => programs.push(LDIRECTORD),
            Balancer::Disturbed(subject, by) => {
                programs.push(WRK);
                programs.extend(subject.programs());
                programs.extend((by == By::ReloadWithoutSyns).then_some(NFT));
            }
            Balancer::OneServer | Balancer::NginxFastCgi(_) | Balancer::Weir(_) => {}
        }
        programs
    }

    /// How many links carry answers at once: what the trial asks of the machine.
    pub(super) fn busy_links(&self) -> u64 {
        match self.method.balancer {
            Balancer::NftablesDirect | Balancer::Ldirectord => self.plan.servers.into(),
            Balancer::Weir(forward) if forward != weir::Forward::Nat => self.plan.servers.into(),
            _ => 1,
        }
    }

    /// Time after which the work counts as stuck.
    fn limit(&self, work: &Work) -> Duration {
        let Some(link) = self.plan.link else {
            return UNSHAPED_LIMIT;
        };
        let bits = work.answer_bytes * u64::from(work.requests) * 8;
        Duration::from_secs(bits / link.bits_per_second() * SHAPED_SLACK + SHAPED_MARGIN_SECONDS)
    }

    /// Builds the hosts, starts everything, measures, and removes all.
    pub(super) fn run(&self, setting: &Setting<'_>) -> Result<Vec<Measurement>> {
        let name = &self.method.name;
        setting.progress.set(name, "builds its hosts");
        let topology = Topology::build(setting.session, self.plan)?;
        let base = setting.session.directory(&topology.number.to_string())?;
        let directory_of = |host: &Host| -> Result<PathBuf> {
            let path = base.join(&host.name);
            std::fs::create_dir_all(&path).map_err(LabError::file(&path))?;
            Ok(path)
        };
        setting.progress.set(name, "starts its servers");
        let mut servers = Vec::new();
        for host in &topology.servers {
            let directory = directory_of(host)?;
            let launcher = Launcher {
                namespace: &host.namespace,
                directory: &directory,
            };
            servers.extend(self.start_server(&launcher, setting.pages)?);
        }
        let director = directory_of(&topology.director)?;
        let balancer = self.start_balancer(setting, &topology, &base, &director)?;
        let to = self.target(&topology);
        if let Some(work) = self.works.first() {
            http::wait_until_served(
                &topology.client.namespace,
                to,
                &probe_path(self.site, work),
                START_LIMIT,
            )?;
        }
        let directory = directory_of(&topology.client)?;
        let client = Launcher {
            namespace: &topology.client.namespace,
            directory: &directory,
        };
        self.works
            .iter()
            .map(|work| self.measure(setting, &topology, &balancer, (&client, &director), work))
            .collect()
    }

    fn measure(
        &self,
        setting: &Setting<'_>,
        topology: &Topology,
        balancer: &Running<'_>,
        (client, director): (&Launcher<'_>, &Path),
        work: &Work,
    ) -> Result<Measurement> {
        let to = self.target(topology);
        let activity = work
            .name
            .as_ref()
            .map_or("measures".to_owned(), |name| format!("measures {name}"));
        setting.progress.set(&self.method.name, &activity);
        let load = ab::Load {
            url: format!("http://{to}{}", work.path),
            requests: work.requests,
            concurrency: work.concurrency,
            any_length: work.any_length,
            keep_alive: work.keep_alive,
            latency: work.timed.is_some(),
        };
        let ask = || match work.timed.and_then(|timed| timed.wrk) {
            None => ab::run(client, &load, self.limit(work)),
            Some(time) => wrk::run(client, &load.url, load.concurrency, time),
        };
        let disturbs = work.timed.is_some_and(|timed| timed.disturbed);
        let ((outcome, disturbed), series) = sample::during(topology, || match balancer {
            Running::Disturbed(live) if disturbs => {
                disturbance::during(live, ask).map(|(outcome, seen)| (outcome, Some(seen)))
            }
            _ => Ok((ask()?, None)),
        })?;
        if outcome.failed > 0 {
            self.tell_failures(setting, &outcome, director);
        }
        Ok(Measurement {
            work: work.name.clone(),
            outcome,
            series,
            disturbed,
        })
    }

    /// Says what failed while the balancer's log still exists.
    fn tell_failures(&self, setting: &Setting<'_>, outcome: &ab::Outcome, director: &Path) {
        let log = match self.method.balancer {
            Balancer::Haproxy => "haproxy.log",
            Balancer::NginxFastCgi(_) => "nginx.log",
            Balancer::Weir(_) | Balancer::Ldirectord => "weir-run.log",
            Balancer::Disturbed(subject, _) => subject.log(),
            Balancer::OneServer | Balancer::NftablesDirect | Balancer::NftablesDnat => "",
        };
        let said = process::tail(&director.join(log));
        let name = &self.method.name;
        setting.progress.line(&format!(
            "{name}: {} failed: {} {said}",
            outcome.failed, outcome.breakdown
        ));
    }

    fn target(&self, topology: &Topology) -> SocketAddr {
        match (self.method.balancer, topology.servers.first()) {
            (Balancer::OneServer, Some(server)) => (server.address, nginx::PORT).into(),
            (Balancer::Haproxy, _) => (VIP, haproxy::PORT).into(),
            (Balancer::Disturbed(subject, _), _) => (VIP, subject.port()).into(),
            _ => (VIP, nginx::PORT).into(),
        }
    }
}

/// A cheap page that shows whether the method serves.
fn probe_path(site: Site, work: &Work) -> String {
    match site {
        Site::Pages => format!("/{}", nginx::HELLO),
        Site::Php => work.path.clone(),
    }
}
