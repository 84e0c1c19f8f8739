//! `--fail`: a server is stopped under load and started again, and nobody does anything. Requests may fail from the moment
//! that it stops until its check has said so, `interval × fall + timeout` at the most where the machine has time for its
//! checks, and never after.
//!
//! `ab` runs in slices, one right after the other, so that what fails has a time. Between slices Weir is asked what it thinks
//! of the server.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::trial::Setting;
use super::{Experiment, RunOptions, scheduler};
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::peer::weir::{self, Director, Forward};
use crate::peer::{START_LIMIT, ab, http, nginx};
use crate::process::{Daemon, Place};
use crate::report::{Event, Failure, Report, Row};
use crate::requirement::{AB, BASE, NGINX, Program};
use crate::topology::{Host, Plan, Topology, VIP};

const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_millis(500);
const FALL: u32 = 2;
const RISE: u32 = 2;
/// What jitter may add to each interval: a twentieth.
const JITTER: u32 = 20;
/// How long all is well before the server stops, and after it is out.
const QUIET: Duration = Duration::from_secs(2);
/// Requests of a slice, and how many at once. The client shall not come round to a port that it had when the server died:
/// under `direct` that meets the dead server once more.
const SLICE: (u32, u32) = (40, 8);
/// A slice that takes longer is stuck.
const SLICE_LIMIT: Duration = Duration::from_secs(60);

/// What an experiment is when a server fails in it.
struct Scene {
    servers: u8,
    forward: Forward,
    scheduler: String,
    slice: (u32, u32),
}

/// Programs that are needed.
pub(super) fn programs() -> Vec<Program> {
    [BASE.to_vec(), vec![AB, NGINX]].concat()
}

/// Runs the story once and reports each of its acts as a row.
///
/// # Errors
/// The experiment has no such story; something could not be started; [`LabError::Interrupted`].
pub(super) fn run(
    experiment: &Experiment,
    options: &RunOptions,
    setting: &Setting<'_>,
) -> Result<Report> {
    let scene = scene(experiment.name, options)?;
    let topology = Topology::build(
        setting.session,
        Plan {
            servers: scene.servers,
            link: options.rate,
            replies_by_director: scene.forward == Forward::Nat,
        },
    )?;
    let base = setting.session.directory(&topology.number.to_string())?;
    let mut stage = Stage::set(&scene, setting, &topology, &base)?;
    let story = stage.play(setting)?;
    Ok(report(experiment, &scene, &story))
}

fn scene(name: &str, options: &RunOptions) -> Result<Scene> {
    let (servers, forward, by_default) = match name {
        "small-box-nat" => (3, Forward::Nat, "rr"),
        "clustered-rest" => (2, Forward::Direct, "lc"),
        _ => {
            return Err(LabError::Usage {
                option: "--fail",
                reason: format!(
                    "no server fails in {name}; one does in small-box-nat and clustered-rest"
                ),
            });
        }
    };
    Ok(Scene {
        servers,
        forward,
        scheduler: scheduler(options, by_default)?,
        slice: (
            options.requests.unwrap_or(SLICE.0),
            options.concurrency.unwrap_or(SLICE.1),
        ),
    })
}

/// One run of `ab`, and when it began.
struct Slice {
    from: Instant,
    outcome: ab::Outcome,
    requests: u32,
}

/// An act: its slices, one after the other.
#[derive(Default)]
struct Act(Vec<Slice>);

impl Act {
    fn failed(&self) -> u64 {
        self.0.iter().map(|slice| slice.outcome.failed).sum()
    }

    /// When the last slice with a failure began, since `start`. Its end tells less: one slow request prolongs it.
    fn last_failure(&self, start: Instant) -> Option<Duration> {
        let mut failing = self.0.iter().rev().filter(|it| it.outcome.failed > 0);
        failing
            .next()
            .map(|slice| slice.from.saturating_duration_since(start))
    }

    /// Requests that failed in slices that began later than `limit` after `start`.
    fn failed_after(&self, start: Instant, limit: Duration) -> u64 {
        let late = self.0.iter().filter(|slice| slice.from > start + limit);
        late.map(|slice| slice.outcome.failed).sum()
    }

    fn row(&self, name: String) -> Row {
        let seconds: f64 = self.0.iter().map(|slice| slice.outcome.seconds).sum();
        let requests: f64 = self.0.iter().map(|slice| f64::from(slice.requests)).sum();
        let kbytes = self
            .0
            .iter()
            .map(|slice| slice.outcome.kbytes_per_second * slice.outcome.seconds);
        Row {
            name,
            requests_per_second: requests / seconds.max(1e-9),
            kbytes_per_second: kbytes.sum::<f64>() / seconds.max(1e-9),
            failed: self.failed(),
            seconds,
            ratio: None,
            timing: None,
        }
    }
}

/// What happened, and when.
struct Story {
    before: Act,
    /// From the stop until Weir has the server out, and a while more.
    stopped: Act,
    /// From the start until Weir uses it again, and a while more.
    back: Act,
    stopped_at: Instant,
    /// Since the stop: Weir says that it is down.
    down_after: Duration,
    /// Since the start: Weir says that it is up.
    up_after: Duration,
    /// Connections that the server got after it came back.
    served_again: u64,
}

/// Everything that runs.
struct Stage<'a> {
    topology: &'a Topology,
    base: &'a Path,
    director: Director<'a>,
    /// The first server's, which is stopped.
    victim: Option<Daemon>,
    _others: Vec<Daemon>,
    slice: (u32, u32),
}

impl<'a> Stage<'a> {
    fn set(
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
            reason: "the story needs the weir program".into(),
        })?;
        let pins = |host: &str| {
            let name = format!("{}-{host}", topology.number);
            setting.session.pin_directory(&name)
        };
        let directories = weir::Directories { base, pins: &pins };
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

    fn play(&mut self, setting: &Setting<'_>) -> Result<Story> {
        let tell = |text: &str| setting.progress.set("weir", text);
        tell("serves with all servers");
        let began = Instant::now();
        let before = self.slices_until(|| Ok(began.elapsed() >= QUIET))?;
        tell("serves while a server is stopped");
        let stopped_at = Instant::now();
        self.victim = None;
        let (stopped, down_after) = self.until_it_is("down", stopped_at)?;
        tell("serves while it comes back");
        let counted = self.first()?.connections;
        let started_at = Instant::now();
        let host = &self.topology.servers[0];
        self.victim = Some(serve(self.base, host, setting.pages)?);
        let (mut back, up_after) = self.until_it_is("up", started_at)?;
        // Under lc its connections that died with it still count as active, each as 256 idle ones: its turn comes when the
        // others have as many.
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

    /// Slices until Weir says that of the first server, and some more; and how long after `start` it said so.
    fn until_it_is(&self, state: &str, start: Instant) -> Result<(Act, Duration)> {
        let longest = longest() + START_LIMIT;
        let mut said = None;
        let act = self.slices_until(|| {
            if said.is_none() && self.first()?.state == state {
                said = Some(start.elapsed());
            }
            match said {
                None if start.elapsed() > longest => Err(LabError::Deadline {
                    what: format!("Weir's word that the server is {state}"),
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
        let client = Place {
            namespace: &self.topology.client.namespace,
            directory: &directory,
        };
        let load = ab::Load {
            url: format!("http://{VIP}/{}", nginx::HELLO),
            requests: self.slice.0,
            concurrency: self.slice.1,
            // ab takes the first answer's length for the right one, also that of a refused request.
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

/// The time in which requests may fail.
fn longest() -> Duration {
    (INTERVAL + INTERVAL / JITTER) * FALL + TIMEOUT
}

/// So long an act lasts at least, so that what must not happen after has time to happen.
fn longest_for(state: &str) -> Duration {
    if state == "down" {
        longest()
    } else {
        Duration::ZERO
    }
}

fn serve(base: &Path, host: &Host, pages: &Path) -> Result<Daemon> {
    let directory = directory(base, host)?;
    // A stopped nginx may have left it; the new one is waited for by it.
    let _ = std::fs::remove_file(directory.join("nginx.pid"));
    let place = Place {
        namespace: &host.namespace,
        directory: &directory,
    };
    nginx::start(&place, pages, &nginx::Role::Files)
}

fn directory(base: &Path, host: &Host) -> Result<PathBuf> {
    let path = base.join(&host.name);
    std::fs::create_dir_all(&path).map_err(LabError::file(&path))?;
    Ok(path)
}

fn report(experiment: &Experiment, scene: &Scene, story: &Story) -> Report {
    let mut report = Report::new(
        experiment.name,
        "a server is stopped under load, and comes back: who notices, and for how long",
    );
    let method = scene.forward.word();
    let row = |act: &Act, name: &str| act.row(format!("{method}/{name}"));
    report.rows = vec![
        row(&story.before, "before"),
        row(&story.stopped, "stopped"),
        row(&story.back, "back"),
    ];
    let budget = longest();
    // A machine that is too busy for the check's own times is not the story's failure; the notes show both times.
    let noticed = budget.max(story.down_after);
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    let last = story.stopped.last_failure(story.stopped_at);
    report.notes = vec![
        format!(
            "Check: http every {INTERVAL:?}, timeout {TIMEOUT:?}, fall {FALL}, rise {RISE}: requests may fail for {} after the stop.",
            seconds(budget)
        ),
        format!(
            "Stopped: {} requests failed, the last ones {}; Weir called the server down after {}.",
            story.stopped.failed(),
            last.map_or_else(
                || "never".to_owned(),
                |last| format!("in a slice that began {} after the stop", seconds(last))
            ),
            seconds(story.down_after)
        ),
        format!(
            "Started again: up after {}, {} requests failed, and it served {} connections by itself.",
            seconds(story.up_after),
            story.back.failed(),
            story.served_again
        ),
    ];
    let event = |event: &str, after: Duration| Event {
        event: event.to_owned(),
        seconds: after.as_secs_f64(),
    };
    report.events = vec![event("requests may fail after the stop for", budget)];
    report
        .events
        .extend(last.map(|last| event("the last slice with a failure began after the stop", last)));
    report.events.extend([
        event("down after the stop", story.down_after),
        event("up after the start", story.up_after),
    ]);
    let wrong = [
        (story.before.failed(), "failed before the server stopped"),
        (
            story.stopped.failed_after(story.stopped_at, noticed),
            "failed after the server was out",
        ),
        (story.back.failed(), "failed while the server came back"),
    ];
    let wrong = wrong.into_iter().filter(|(count, _)| *count > 0);
    let mut errors: Vec<String> = wrong
        .map(|(count, what)| format!("{count} requests {what}"))
        .collect();
    if story.served_again == 0 {
        errors.push("the server got no connection after it came back".to_owned());
    }
    report.failures = errors
        .into_iter()
        .map(|error| Failure {
            method: method.to_owned(),
            error,
        })
        .collect();
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_experiments_with_such_a_story_have_it() {
        let options = RunOptions::default();
        let scene = |name| super::scene(name, &options);
        assert!(scene("small-box-nat").is_ok_and(|it| it.forward == Forward::Nat));
        assert!(scene("clustered-rest").is_ok_and(|it| it.forward == Forward::Direct));
        assert!(scene("saturated-uplink").is_err_and(|error| error.exit_code() == 2));
    }

    #[test]
    fn what_fails_too_late_is_told_from_what_may_fail() {
        let start = Instant::now();
        let slice = |from: u64, failed: u64| Slice {
            from: start + Duration::from_millis(from),
            outcome: ab::Outcome {
                failed,
                seconds: 0.1,
                ..ab::Outcome::default()
            },
            requests: 50,
        };
        let act = Act(vec![slice(0, 20), slice(900, 3), slice(3000, 0)]);
        assert_eq!(act.failed(), 23);
        assert_eq!(act.last_failure(start), Some(Duration::from_millis(900)));
        assert_eq!(act.failed_after(start, Duration::from_secs(1)), 0);
        assert_eq!(act.failed_after(start, Duration::from_millis(500)), 3);
        assert_eq!(act.row("x".into()).requests_per_second.round(), 500.0);
    }
}
