//! Runs a trial: starts hosts, real servers, a balancer, and `ab` on the client, and samples the links.

mod start;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::start::RunningBalancer;
use super::RunOptions;
use super::disturbance::{self, Disturbance, Disturbances, Subject};
use crate::cgroup::Cgroup;
use crate::error::{LabError, Result};
use crate::peer::paced::{self, Pace};
use crate::peer::{START_LIMIT, ab, haproxy, http, nginx, weir, wrk};
use crate::process::{self, Launcher};
use crate::progress::Progress;
use crate::rate::Rate;
use crate::requirement::{AB, BASE, HAPROXY, LDIRECTORD, NFT, NGINX, PHP_FPM, Program, WRK};
use crate::sample::{self, Series, Shares};
use crate::session::Session;
use crate::topology::{Host, Plan, Topology, VIP};

/// The balancer between the client and the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Balancer {
    /// No balancer: the client sends requests to the first server.
    OneServer,
    Haproxy,
    /// Stateless rewriting of the destination address; servers respond directly.
    NftablesDirect,
    /// DNAT with conntrack.
    NftablesDnat,
    /// nginx as a FastCGI balancer, with the directive that selects a worker.
    NginxFastCgi(&'static str),
    /// nginx as an HTTP proxy, with the directive that selects a server.
    NginxProxy(&'static str),
    Weir(weir::Forward),
    /// Direct routing by Weir, managed by ldirectord.
    Ldirectord,
    /// A balancer that is repeatedly disturbed under load.
    Disturbed(Subject, Disturbance),
}

impl Balancer {
    /// Returns the plan of the hosts. Without a balancer, it has one server, which responds directly to the client.
    pub(super) fn plan(self, servers: u8, link: Option<Rate>) -> Plan {
        Plan {
            servers: if self == Self::OneServer { 1 } else { servers },
            link,
            replies_through_director: false,
        }
    }

    /// Returns whether the `weir` program is required.
    pub(super) const fn needs_weir(self) -> bool {
        match self {
            Self::Weir(_) | Self::Ldirectord => true,
            Self::Disturbed(subject, disturbance) => subject.is_weir() || disturbance.needs_weir(),
            Self::OneServer
            | Self::Haproxy
            | Self::NftablesDirect
            | Self::NftablesDnat
            | Self::NginxFastCgi(_)
            | Self::NginxProxy(_) => false,
        }
    }
}

/// A method of balancing, with its name in reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Method {
    pub(super) name: String,
    pub(super) balancer: Balancer,
    /// The scheduler, by its name in Weir. Peers use an equivalent scheduler, or the one that the experiment sets.
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

/// The content of the real servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// Files, served by nginx.
    Pages,
    /// PHP pages, served by nginx and FPM.
    Php,
    /// A page that takes a specified time to serve, served by the lab itself.
    Paced,
}

/// A run for which the report shows latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedRun {
    /// Whether the balancer is disturbed during the run.
    pub(super) disturbed: bool,
    /// Duration of a run with wrk, which keeps its connections open; `None` = the client is `ab`.
    pub(super) wrk: Option<Duration>,
}

/// Number of `ab` requests that correspond to one second of `wrk`, which runs for a given time and not for a number of
/// requests.
const REQUESTS_PER_SECOND_OF_WRK: u32 = 20_000;

/// A run of `ab` or `wrk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Workload {
    /// The name, which follows the method's name if a trial has several workloads.
    pub(super) name: Option<String>,
    /// Path and query.
    pub(super) path: String,
    pub(super) requests: u32,
    pub(super) concurrency: u32,
    pub(super) any_length: bool,
    /// Whether connections are reused for further requests.
    pub(super) keep_alive: bool,
    /// Length of a response, for computing the transfer time.
    pub(super) response_bytes: u64,
    /// `None` = the report shows only rates.
    pub(super) timed: Option<TimedRun>,
    /// The speed of the first server during the run, for [`Site::Paced`].
    pub(super) pace: Pace,
}

impl Workload {
    /// Creates a run of requests for one page, each on a new connection. Options can change the number of requests and
    /// the concurrency.
    pub(super) fn for_page(
        options: &RunOptions,
        page: &str,
        (requests, concurrency): (u32, u32),
        response_bytes: u64,
    ) -> Self {
        Self {
            name: None,
            path: format!("/{page}"),
            requests: options.requests.unwrap_or(requests),
            concurrency: options.concurrency.unwrap_or(concurrency),
            any_length: false,
            keep_alive: false,
            response_bytes,
            timed: None,
            pace: Pace::default(),
        }
    }

    /// Creates four runs: undisturbed and disturbed, each with a new connection per request (`ab`) and with persistent
    /// connections (`wrk`). Options can change the number of requests and the concurrency.
    pub(super) fn undisturbed_and_disturbed(
        options: &RunOptions,
        numbers: (u32, u32),
    ) -> Vec<Self> {
        let run = Self::for_page(options, nginx::HELLO, numbers, 3);
        let seconds = (run.requests / REQUESTS_PER_SECOND_OF_WRK).max(2);
        let wrk = Some(Duration::from_secs(seconds.into()));
        [
            ("quiet", false, None),
            ("disturbed", true, None),
            ("keep-alive-quiet", false, wrk),
            ("keep-alive-disturbed", true, wrk),
        ]
        .map(|(name, disturbed, wrk)| Self {
            name: Some(name.into()),
            keep_alive: wrk.is_some(),
            timed: Some(TimedRun { disturbed, wrk }),
            ..run.clone()
        })
        .into()
    }
}

/// A method, its hosts and its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    pub(super) method: Method,
    pub(super) plan: Plan,
    pub(super) site: Site,
    /// Whether the clients run on the director.
    pub(super) local: bool,
    pub(super) workloads: Vec<Workload>,
}

/// Results of a run.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    pub(super) workload: Option<String>,
    pub(super) outcome: ab::Outcome,
    pub(super) series: Series,
    /// The disturbances during the run.
    pub(super) disturbed: Option<Disturbances>,
    /// The first server's share of the requests over time, for [`Site::Paced`].
    pub(super) shares: Option<Shares>,
}

/// Data that all trials of a run share.
pub(super) struct RunContext<'a> {
    pub(super) session: &'a Session,
    pub(super) progress: &'a Progress,
    /// The `weir` program; `None` if no method of the run requires it.
    pub(super) weir: Option<&'a Path>,
    /// The document root of all servers.
    pub(super) pages: &'a Path,
}

/// Time limit of a run of `ab` with unlimited links.
const UNSHAPED_LIMIT: Duration = Duration::from_secs(600);
/// The time limit of a run of `ab` with limited links is this multiple of the transfer time, plus the margin.
const SHAPED_SLACK: u64 = 3;
const SHAPED_MARGIN_SECONDS: u64 = 120;

impl Trial {
    /// Returns the programs that the trial starts.
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
            Balancer::Disturbed(subject, disturbance) => {
                programs.push(WRK);
                programs.extend(subject.program());
                programs.extend((disturbance == Disturbance::ReloadWithoutSyns).then_some(NFT));
            }
            Balancer::OneServer
            | Balancer::NginxFastCgi(_)
            | Balancer::NginxProxy(_)
            | Balancer::Weir(_) => {}
        }
        let uses_wrk =
            |workload: &Workload| workload.timed.is_some_and(|timed| timed.wrk.is_some());
        programs.extend(self.workloads.iter().any(uses_wrk).then_some(WRK));
        programs
    }

    /// Returns the number of links that carry responses at the same time.
    pub(super) fn busy_links(&self) -> u64 {
        match self.method.balancer {
            Balancer::NftablesDirect | Balancer::Ldirectord => self.plan.servers.into(),
            Balancer::Weir(forward) if forward != weir::Forward::Nat => self.plan.servers.into(),
            _ => 1,
        }
    }

    /// Returns the time limit of a run of `ab`.
    fn limit(&self, workload: &Workload) -> Duration {
        let Some(link) = self.plan.link else {
            return UNSHAPED_LIMIT;
        };
        let bits = workload.response_bytes * u64::from(workload.requests) * 8;
        Duration::from_secs(bits / link.bits_per_second() * SHAPED_SLACK + SHAPED_MARGIN_SECONDS)
    }

    /// Creates the hosts, starts the programs, measures, and removes everything.
    pub(super) fn run(&self, context: &RunContext<'_>) -> Result<Vec<Measurement>> {
        let name = &self.method.name;
        context.progress.set(name, "creating hosts");
        let topology = Topology::build(context.session, self.plan)?;
        let base = context.session.directory(&topology.number.to_string())?;
        let directory_of = |host: &Host| -> Result<PathBuf> {
            let path = base.join(&host.name);
            std::fs::create_dir_all(&path).map_err(LabError::file(&path))?;
            Ok(path)
        };
        context.progress.set(name, "starting servers");
        let mut servers = Vec::new();
        let mut paced_servers = Vec::new();
        for host in &topology.servers {
            if self.site == Site::Paced {
                paced_servers.push(paced::Server::start(&host.namespace)?);
                continue;
            }
            let directory = directory_of(host)?;
            let launcher = Launcher {
                namespace: &host.namespace,
                cgroup: None,
                directory: &directory,
            };
            servers.extend(self.start_server(&launcher, context.pages)?);
        }
        let director = directory_of(&topology.director)?;
        // Created before the balancer, so it is removed after the balancer.
        let cgroup = self.local.then(|| Cgroup::create(context.session));
        let cgroup = cgroup.transpose()?;
        let balancer =
            self.start_balancer(context, &topology, &base, &director, cgroup.as_ref())?;
        let target = self.target(&topology);
        let clients = self.clients(&topology);
        let directory = directory_of(clients)?;
        let client = Launcher {
            namespace: &clients.namespace,
            cgroup: cgroup.as_ref().map(Cgroup::path),
            directory: &directory,
        };
        if let Some(workload) = self.workloads.first() {
            let path = probe_path(self.site, workload);
            if self.local {
                ab::wait_until_served(&client, &format!("http://{target}{path}"), START_LIMIT)?;
            } else {
                http::wait_until_served(&clients.namespace, target, &path, START_LIMIT)?;
            }
        }
        (0..)
            .zip(&self.workloads)
            .map(|(number, workload)| {
                let hosts = (&client, director.as_path());
                let run = || self.measure(context, &topology, &balancer, hosts, workload);
                if paced_servers.is_empty() {
                    return run();
                }
                topology.change_client_address(number)?;
                let (measurement, shares) = paced::run_paced(&paced_servers, workload.pace, run)?;
                Ok(Measurement {
                    shares: Some(shares),
                    ..measurement
                })
            })
            .collect()
    }

    /// Returns the host of the clients.
    fn clients<'a>(&self, topology: &'a Topology) -> &'a Host {
        if self.local {
            &topology.director
        } else {
            &topology.client
        }
    }

    fn measure(
        &self,
        context: &RunContext<'_>,
        topology: &Topology,
        balancer: &RunningBalancer<'_>,
        (client, director): (&Launcher<'_>, &Path),
        workload: &Workload,
    ) -> Result<Measurement> {
        let target = self.target(topology);
        let activity = workload
            .name
            .as_ref()
            .map_or("measuring".to_owned(), |name| format!("measuring {name}"));
        context.progress.set(&self.method.name, &activity);
        let load = ab::Load {
            url: format!("http://{target}{}", workload.path),
            requests: workload.requests,
            concurrency: workload.concurrency,
            any_length: workload.any_length,
            keep_alive: workload.keep_alive,
            latency: workload.timed.is_some(),
        };
        let run_client = || match workload.timed.and_then(|timed| timed.wrk) {
            None => ab::run(client, &load, self.limit(workload)),
            Some(time) => wrk::run(client, &load.url, load.concurrency, time),
        };
        let is_disturbed = workload.timed.is_some_and(|timed| timed.disturbed);
        let ((outcome, disturbed), series) = sample::run_sampled(topology, || match balancer {
            RunningBalancer::Disturbed(balancer) if is_disturbed => {
                disturbance::run_disturbed(balancer, run_client)
                    .map(|(outcome, disturbed)| (outcome, Some(disturbed)))
            }
            _ => Ok((run_client()?, None)),
        })?;
        if outcome.failed > 0 {
            self.report_failures(context, &outcome, director);
        }
        Ok(Measurement {
            workload: workload.name.clone(),
            outcome,
            series,
            disturbed,
            shares: None,
        })
    }

    /// Reports failures with the end of the balancer's log.
    fn report_failures(&self, context: &RunContext<'_>, outcome: &ab::Outcome, director: &Path) {
        let log = match self.method.balancer {
            Balancer::Haproxy => "haproxy.log",
            Balancer::NginxFastCgi(_) | Balancer::NginxProxy(_) => "nginx.log",
            Balancer::Weir(_) | Balancer::Ldirectord => "weir-run.log",
            Balancer::Disturbed(subject, _) => subject.log(),
            Balancer::OneServer | Balancer::NftablesDirect | Balancer::NftablesDnat => "",
        };
        let log_tail = process::tail(&director.join(log));
        let name = &self.method.name;
        context.progress.line(&format!(
            "{name}: {} failed: {} {log_tail}",
            outcome.failed, outcome.breakdown
        ));
    }

    fn target(&self, topology: &Topology) -> SocketAddr {
        match (self.method.balancer, topology.servers.first()) {
            (Balancer::OneServer, Some(server)) => (server.address, nginx::PORT).into(),
            (Balancer::Haproxy, _) => (VIP, haproxy::PORT).into(),
            (Balancer::Disturbed(subject, _), _) if self.local && !subject.is_weir() => {
                (Ipv4Addr::LOCALHOST, subject.port()).into()
            }
            (Balancer::Disturbed(subject, _), _) => (VIP, subject.port()).into(),
            _ => (VIP, nginx::PORT).into(),
        }
    }
}

/// Returns the path of a small page, for checking whether the method serves requests.
fn probe_path(site: Site, workload: &Workload) -> String {
    match site {
        Site::Pages => format!("/{}", nginx::HELLO),
        Site::Php | Site::Paced => workload.path.clone(),
    }
}
