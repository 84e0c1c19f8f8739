//! `--fail`: a server is stopped under load and restarted, without an operator. Requests may fail from the stop until
//! the check reports the server as down, which takes at most `interval × fall + timeout` if the machine is not
//! overloaded, and not afterwards.
//!
//! `ab` runs in short consecutive slices, so that the time of a failure is known. Between slices the state of the
//! server is read from Weir.

mod stage;
mod story;

use std::time::Duration;

use self::stage::Stage;
use self::story::{Act, Story};
use super::trial::Setting;
use super::{Experiment, RunOptions, scheduler};
use crate::error::{LabError, Result};
use crate::peer::weir::Forward;
use crate::report::{Event, Failure, Report};
use crate::requirement::{AB, BASE, NGINX, Program};
use crate::topology::{Plan, Topology};

const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_millis(500);
const FALL: u32 = 2;
const RISE: u32 = 2;
/// Maximum jitter of each interval: one twentieth.
const JITTER: u32 = 20;
/// Duration of the phase before the stop, and of the phase after the server is down.
const QUIET: Duration = Duration::from_secs(2);
/// Requests per slice, and concurrent requests. The client must not reuse a port that it had when the server stopped:
/// with `direct` the packets would be forwarded to the stopped server again.
const SLICE: (u32, u32) = (40, 8);
/// Time limit for a slice.
const SLICE_LIMIT: Duration = Duration::from_secs(60);

/// The setup of an experiment with `--fail`.
struct Scene {
    servers: u8,
    forward: Forward,
    scheduler: String,
    slice: (u32, u32),
}

/// Required programs.
pub(super) fn programs() -> Vec<Program> {
    [BASE.to_vec(), vec![AB, NGINX]].concat()
}

/// Runs the test once and reports each phase as a row.
///
/// # Errors
/// The experiment does not support `--fail`, or a program cannot be started; [`LabError::Interrupted`].
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
                    "{name} does not support --fail; small-box-nat and clustered-rest do"
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

/// Returns the time in which requests may fail.
fn longest() -> Duration {
    (INTERVAL + INTERVAL / JITTER) * FALL + TIMEOUT
}

fn report(experiment: &Experiment, scene: &Scene, story: &Story) -> Report {
    let mut report = Report::new(
        experiment.name,
        "a server is stopped under load and restarted: which requests fail, and for how long",
    );
    let method = scene.forward.word();
    let row = |act: &Act, name: &str| act.row(format!("{method}/{name}"));
    report.rows = vec![
        row(&story.before, "before"),
        row(&story.stopped, "stopped"),
        row(&story.back, "back"),
    ];
    let budget = longest();
    // If the machine is too busy for the check's intervals, the test does not fail; the notes contain both times.
    let noticed = budget.max(story.down_after);
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    let last = story.stopped.last_failure(story.stopped_at);
    report.notes = vec![
        format!(
            "Check: http every {INTERVAL:?}, timeout {TIMEOUT:?}, fall {FALL}, rise {RISE}: requests may fail for {} \
             after the stop.",
            seconds(budget)
        ),
        format!(
            "Stopped: {} requests failed, the last ones {}; Weir reported the server as down after {}.",
            story.stopped.failed(),
            last.map_or_else(
                || "never".to_owned(),
                |last| format!("in a slice that started {} after the stop", seconds(last))
            ),
            seconds(story.down_after)
        ),
        format!(
            "Restarted: up after {}, {} requests failed, and the server handled {} connections.",
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
    let errors = wrong(story, noticed);
    report.failures = errors
        .into_iter()
        .map(|error| Failure {
            method: method.to_owned(),
            error,
        })
        .collect();
    report
}

/// Returns violations: after `noticed` no request may fail.
fn wrong(story: &Story, noticed: Duration) -> Vec<String> {
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
    errors
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
}
