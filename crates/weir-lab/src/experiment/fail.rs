//! `--fail`: a server is stopped under load and started again without an operator. Requests may fail from the
//! moment that it stops until its check has said so, `interval × fall + timeout` at the most where the machine has time
//! for its checks, and never after.
//!
//! `ab` runs in slices, one right after the other, so that what fails has a time. Between slices Weir is asked what it
//! thinks of the server.

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
/// What jitter may add to each interval: a twentieth.
const JITTER: u32 = 20;
/// How long all is well before the server stops, and after it is out.
const QUIET: Duration = Duration::from_secs(2);
/// Requests of a slice, and how many at once. The client shall not come round to a port that it had when the server
/// died: under `direct` that meets the dead server once more.
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

/// The time in which requests may fail.
fn longest() -> Duration {
    (INTERVAL + INTERVAL / JITTER) * FALL + TIMEOUT
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
            "Check: http every {INTERVAL:?}, timeout {TIMEOUT:?}, fall {FALL}, rise {RISE}: requests may fail for {} \
             after the stop.",
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

/// What must not have happened; after `noticed` no request may fail.
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
