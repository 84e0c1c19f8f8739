//! Starts the hosts and programs of the `--fail` test, and runs its phases.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::phase::{LoadRun, Phase, Phases};
use super::{FALL, INTERVAL, LOAD_RUN_LIMIT, RISE, STEADY_TIME, Setup, TIMEOUT, failure_window};
use crate::error::{LabError, Result};
use crate::experiment::trial::RunContext;
use crate::interrupt::wait_for;
use crate::peer::weir::{self, Director};
use crate::peer::{START_LIMIT, ab, http, nginx};
use crate::process::{Daemon, Launcher};
use crate::topology::{Host, Topology, VIP};

/// The running hosts and programs.
pub(super) struct Runner<'a> {
    topology: &'a Topology,
    base: &'a Path,
    director: Director<'a>,
    /// The program of the first server, which the test stops and restarts.
    stopped_server: Option<Daemon>,
    _other_servers: Vec<Daemon>,
    run_size: (u32, u32),
}

impl<'a> Runner<'a> {
    /// Starts the hosts and programs, and waits until every server is up.
    pub(super) fn start(
        setup: &Setup,
        context: &RunContext<'a>,
        topology: &'a Topology,
        base: &'a Path,
    ) -> Result<Self> {
        let mut servers = Vec::new();
        for host in &topology.servers {
            servers.push(start_server(base, host, context.pages)?);
        }
        let stopped_server = Some(servers.remove(0));
        let program = context.weir.ok_or(LabError::Usage {
            option: "--weir",
            reason: "the test requires the weir program".into(),
        })?;
        let pins = |host: &str| {
            let name = format!("{}-{host}", topology.number);
            context.session.pin_directory(&name)
        };
        let directories = weir::Directories {
            base,
            pins: &pins,
            cgroup: None,
        };
        let check = format!(
            "kind = \"http\"\npath = \"/{}\"\nexpect = {{ body = \"Up\" }}\ninterval = \"{INTERVAL:?}\"\n\
             timeout = \"{TIMEOUT:?}\"\nrise = {RISE}\nfall = {FALL}\n",
            nginx::HELLO
        );
        let director = Director::start_with_check(
            program,
            topology,
            &directories,
            setup.forward,
            &setup.scheduler,
            &check,
        )?;
        let address = (VIP, nginx::PORT).into();
        let path = format!("/{}", nginx::HELLO);
        http::wait_until_served(&topology.client.namespace, address, &path, START_LIMIT)?;
        let runner = Self {
            topology,
            base,
            director,
            stopped_server,
            _other_servers: servers,
            run_size: setup.run_size,
        };
        let all_up = || {
            let are_up = topology.servers.iter().map(|host| {
                let server = runner.director.server(host.address)?;
                Ok(server.state == "up")
            });
            let are_up: Vec<bool> = are_up.collect::<Result<_>>()?;
            Ok(are_up.iter().all(|is_up| *is_up).then_some(()))
        };
        wait_for("all servers to be up", START_LIMIT, all_up, String::new)?;
        Ok(runner)
    }

    /// Runs all phases.
    pub(super) fn run(&mut self, context: &RunContext<'_>) -> Result<Phases> {
        let set_activity = |text: &str| context.progress.set("weir", text);
        set_activity("measuring with all servers up");
        let started_at = Instant::now();
        let before = self.run_load_until(|| Ok(started_at.elapsed() >= STEADY_TIME))?;
        set_activity("measuring with a server down");
        let stopped_at = Instant::now();
        self.stopped_server = None;
        let (stopped, down_after) = self.run_until_state("down", stopped_at)?;
        set_activity("measuring while the server restarts");
        let connections_before = self.first_server()?.connections;
        let started_at = Instant::now();
        let host = &self.topology.servers[0];
        self.stopped_server = Some(start_server(self.base, host, context.pages)?);
        let (mut restarted, up_after) = self.run_until_state("up", started_at)?;
        // With lc, the server's broken connections still count as active, and an active connection weighs as much as
        // 256 inactive ones. The scheduler does not select the server until the load of the other servers is as high.
        let deadline = Instant::now() + START_LIMIT;
        let mut connections_after_restart = 0;
        restarted.0.extend(
            self.run_load_until(|| {
                connections_after_restart = self.first_server()?.connections - connections_before;
                Ok(connections_after_restart > 0 || Instant::now() > deadline)
            })?
            .0,
        );
        Ok(Phases {
            before,
            stopped,
            restarted,
            stopped_at,
            down_after,
            up_after,
            connections_after_restart,
        })
    }

    fn first_server(&self) -> Result<weir::ServerStatus> {
        self.director.server(self.topology.servers[0].address)
    }

    /// Runs `ab` repeatedly until Weir reports this state for the first server, and then for another [`STEADY_TIME`].
    /// Returns the runs and the time from `start` to the report.
    fn run_until_state(&self, state: &str, start: Instant) -> Result<(Phase, Duration)> {
        let limit = failure_window() + START_LIMIT;
        let mut reported_after = None;
        let phase = self.run_load_until(|| {
            if reported_after.is_none() && self.first_server()?.state == state {
                reported_after = Some(start.elapsed());
            }
            match reported_after {
                None if start.elapsed() > limit => Err(LabError::Deadline {
                    event: format!("Weir to report the server as {state}"),
                    seconds: limit.as_secs(),
                    detail: String::new(),
                }),
                None => Ok(false),
                Some(reported_after) => {
                    Ok(start.elapsed() >= reported_after.max(min_duration(state)) + STEADY_TIME)
                }
            }
        })?;
        Ok((phase, reported_after.unwrap_or_default()))
    }

    fn run_load_until(&self, mut is_done: impl FnMut() -> Result<bool>) -> Result<Phase> {
        let directory = directory(self.base, &self.topology.client)?;
        let client = Launcher {
            namespace: &self.topology.client.namespace,
            cgroup: None,
            directory: &directory,
        };
        let load = ab::Load {
            url: format!("http://{VIP}/{}", nginx::HELLO),
            requests: self.run_size.0,
            concurrency: self.run_size.1,
            // ab expects every response to have the length of the first one, even if that was an error response.
            any_length: true,
            keep_alive: false,
            latency: false,
        };
        let mut phase = Phase::default();
        loop {
            let started_at = Instant::now();
            let outcome = ab::run(&client, &load, LOAD_RUN_LIMIT)?;
            phase.0.push(LoadRun {
                started_at,
                outcome,
                requests: load.requests,
            });
            if is_done()? {
                return Ok(phase);
            }
        }
    }
}

/// Minimum duration of a phase, so that violations after the state change can be observed.
fn min_duration(state: &str) -> Duration {
    if state == "down" {
        failure_window()
    } else {
        Duration::ZERO
    }
}

fn start_server(base: &Path, host: &Host, pages: &Path) -> Result<Daemon> {
    let directory = directory(base, host)?;
    // A stopped nginx can leave its PID file behind. Remove the file, because its creation signals that nginx has
    // started.
    let _ = std::fs::remove_file(directory.join("nginx.pid"));
    let launcher = Launcher {
        namespace: &host.namespace,
        cgroup: None,
        directory: &directory,
    };
    nginx::start(&launcher, pages, &nginx::Role::Files)
}

fn directory(base: &Path, host: &Host) -> Result<PathBuf> {
    let path = base.join(&host.name);
    std::fs::create_dir_all(&path).map_err(LabError::file(&path))?;
    Ok(path)
}
