//! The hosts and programs of the `--fail` test, and its steps.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::story::{Act, Slice, Story};
use super::{FALL, INTERVAL, QUIET, RISE, SLICE_LIMIT, Scene, TIMEOUT, longest};
use crate::error::{LabError, Result};
use crate::experiment::trial::Setting;
use crate::interrupt::wait_for;
use crate::peer::weir::{self, Director};
use crate::peer::{START_LIMIT, ab, http, nginx};
use crate::process::{Daemon, Launcher};
use crate::topology::{Host, Topology, VIP};

/// The running hosts and programs.
pub(super) struct Stage<'a> {
    topology: &'a Topology,
    base: &'a Path,
    director: Director<'a>,
    /// The program of the first server, which is stopped.
    victim: Option<Daemon>,
    _others: Vec<Daemon>,
    slice: (u32, u32),
}

impl<'a> Stage<'a> {
    /// Starts everything, and waits until every server is up.
    pub(super) fn set(
        scene: &Scene,
        setting: &Setting<'a>,
        topology: &'a Topology,
        base: &'a Path,
    ) -> Result<Self> {
        let mut servers = Vec::new();
        for host in &topology.servers {
            servers.push(serve(base, host, setting.pages)?);
        }
        let victim = Some(servers.remove(0));
        let program = setting.weir.ok_or(LabError::Usage {
            option: "--weir",
            reason: "the test requires the weir program".into(),
        })?;
        let pins = |host: &str| {
            let name = format!("{}-{host}", topology.number);
            setting.session.pin_directory(&name)
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
        let director = Director::start_checked(
            program,
            topology,
            &directories,
            scene.forward,
            &scene.scheduler,
            &check,
        )?;
        let to = (VIP, nginx::PORT).into();
        let path = format!("/{}", nginx::HELLO);
        http::wait_until_served(&topology.client.namespace, to, &path, START_LIMIT)?;
        let stage = Self {
            topology,
            base,
            director,
            victim,
            _others: servers,
            slice: scene.slice,
        };
        let all_up = || {
            let up = topology.servers.iter().map(|host| {
                let server = stage.director.server(host.address)?;
                Ok(server.state == "up")
            });
            let up: Vec<bool> = up.collect::<Result<_>>()?;
            Ok(up.iter().all(|up| *up).then_some(()))
        };
        wait_for("every server up", START_LIMIT, all_up, String::new)?;
        Ok(stage)
    }

    /// Runs all phases.
    pub(super) fn play(&mut self, setting: &Setting<'_>) -> Result<Story> {
        let tell = |text: &str| setting.progress.set("weir", text);
        tell("serves with all servers");
        let began = Instant::now();
        let before = self.slices_until(|| Ok(began.elapsed() >= QUIET))?;
        tell("serves while a server is stopped");
        let stopped_at = Instant::now();
        self.victim = None;
        let (stopped, down_after) = self.until_it_is("down", stopped_at)?;
        tell("serves while the server restarts");
        let counted = self.first()?.connections;
        let started_at = Instant::now();
        let host = &self.topology.servers[0];
        self.victim = Some(serve(self.base, host, setting.pages)?);
        let (mut back, up_after) = self.until_it_is("up", started_at)?;
        // With lc, the server's broken connections still count as active, each as 256 inactive ones. The server is
        // selected again when the others have as many.
        let patience = Instant::now() + START_LIMIT;
        let mut served_again = 0;
        back.0.extend(
            self.slices_until(|| {
                served_again = self.first()?.connections - counted;
                Ok(served_again > 0 || Instant::now() > patience)
            })?
            .0,
        );
        Ok(Story {
            before,
            stopped,
            back,
            stopped_at,
            down_after,
            up_after,
            served_again,
        })
    }

    fn first(&self) -> Result<weir::ServerStatus> {
        self.director.server(self.topology.servers[0].address)
    }

    /// Runs slices until Weir reports this state of the first server, and some more. Returns the slices, and the time
    /// from `start` to the report.
    fn until_it_is(&self, state: &str, start: Instant) -> Result<(Act, Duration)> {
        let longest = longest() + START_LIMIT;
        let mut said = None;
        let act = self.slices_until(|| {
            if said.is_none() && self.first()?.state == state {
                said = Some(start.elapsed());
            }
            match said {
                None if start.elapsed() > longest => Err(LabError::Deadline {
                    what: format!("Weir to report the server as {state}"),
                    seconds: longest.as_secs(),
                    detail: String::new(),
                }),
                None => Ok(false),
                Some(said) => Ok(start.elapsed() >= said.max(longest_for(state)) + QUIET),
            }
        })?;
        Ok((act, said.unwrap_or_default()))
    }

    fn slices_until(&self, mut enough: impl FnMut() -> Result<bool>) -> Result<Act> {
        let directory = directory(self.base, &self.topology.client)?;
        let client = Launcher {
            namespace: &self.topology.client.namespace,
            cgroup: None,
            directory: &directory,
        };
        let load = ab::Load {
            url: format!("http://{VIP}/{}", nginx::HELLO),
            requests: self.slice.0,
            concurrency: self.slice.1,
            // ab expects the length of the first response, even of an error response.
            any_length: true,
            keep_alive: false,
            latency: false,
        };
        let mut act = Act::default();
        loop {
            let from = Instant::now();
            let outcome = ab::run(&client, &load, SLICE_LIMIT)?;
            act.0.push(Slice {
                from,
                outcome,
                requests: load.requests,
            });
            if enough()? {
                return Ok(act);
            }
        }
    }
}

/// Minimum duration of a phase, so that violations after the state change can be observed.
fn longest_for(state: &str) -> Duration {
    if state == "down" {
        longest()
    } else {
        Duration::ZERO
    }
}

fn serve(base: &Path, host: &Host, pages: &Path) -> Result<Daemon> {
    let directory = directory(base, host)?;
    // A stopped nginx may have left this file, whose creation shows that the new one has started.
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
