//! Implements `--fail`: stops a server under load and restarts it, without an operator.
//!
//! Requests may fail from the stop until the check reports the server as down, but not afterwards. Unless the machine
//! is overloaded, this takes at most `interval × fall + timeout`, plus jitter.
//!
//! The load consists of short consecutive runs of `ab`, so that the time of a failure is known. Between runs, the test
//! reads the state of the server from Weir.

mod phase;
mod runner;

use std::time::Duration;

use self::phase::{Phase, Phases};
use self::runner::Runner;
use super::trial::RunContext;
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
/// Duration of the phase before the stop, and of the load after Weir reports a state change.
const STEADY_TIME: Duration = Duration::from_secs(2);
/// Number of requests and concurrency of an `ab` run. Both are small, so the client does not reuse a port that it used
/// when the server stopped: with `direct`, Weir would forward the packets to the stopped server again.
const LOAD_RUN: (u32, u32) = (40, 8);
/// Time limit for a run of `ab`.
const LOAD_RUN_LIMIT: Duration = Duration::from_secs(60);

/// The setup of an experiment with `--fail`.
struct Setup {
    servers: u8,
    forward: Forward,
    scheduler: String,
    run_size: (u32, u32),
}

/// Returns the required programs.
pub(super) fn programs() -> Vec<Program> {
    [BASE.to_vec(), vec![AB, NGINX]].concat()
}

/// Runs the test once and reports each phase as a row.
///
/// # Errors
/// Fails if the experiment does not support `--fail`, or a program or measurement fails; [`LabError::Interrupted`].
pub(super) fn run(
    experiment: &Experiment,
    options: &RunOptions,
    context: &RunContext<'_>,
) -> Result<Report> {
    let setup = setup(experiment.name, options)?;
    let topology = Topology::build(
        context.session,
        Plan {
            servers: setup.servers,
            link: options.rate,
            replies_through_director: setup.forward == Forward::Nat,
        },
    )?;
    let base = context.session.directory(&topology.number.to_string())?;
    let mut runner = Runner::start(&setup, context, &topology, &base)?;
    let phases = runner.run(context)?;
    Ok(report(experiment, &setup, &phases))
}

fn setup(name: &str, options: &RunOptions) -> Result<Setup> {
    let (servers, forward, default_scheduler) = match name {
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
    Ok(Setup {
        servers,
        forward,
        scheduler: scheduler(options, default_scheduler)?,
        run_size: (
            options.requests.unwrap_or(LOAD_RUN.0),
            options.concurrency.unwrap_or(LOAD_RUN.1),
        ),
    })
}

/// Returns the time after the stop during which requests may fail.
fn failure_window() -> Duration {
    (INTERVAL + INTERVAL / JITTER) * FALL + TIMEOUT
}

fn report(experiment: &Experiment, setup: &Setup, phases: &Phases) -> Report {
    let mut report = Report::new(
        experiment.name,
        "a server is stopped under load and restarted: which requests fail, and for how long",
    );
    let method = setup.forward.as_str();
    let row = |phase: &Phase, name: &str| phase.row(format!("{method}/{name}"));
    report.rows = vec![
        row(&phases.before, "before"),
        row(&phases.stopped, "stopped"),
        row(&phases.restarted, "restarted"),
    ];
    let window = failure_window();
    // The test does not fail if the machine is too busy for the check's intervals. The notes contain both times.
    let detected_after = window.max(phases.down_after);
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    let last = phases.stopped.last_failure(phases.stopped_at);
    report.notes = vec![
        format!(
            "Check: http every {INTERVAL:?}, timeout {TIMEOUT:?}, fall {FALL}, rise {RISE}: requests may fail for {} \
             after the stop.",
            seconds(window)
        ),
        format!(
            "Stopped: {} requests failed{}; Weir reported the server as down after {}.",
            phases.stopped.failed_requests(),
            last.map_or_else(String::new, |last| {
                let started = seconds(last);
                format!(", the last of them in an ab run that started {started} after the stop")
            }),
            seconds(phases.down_after)
        ),
        format!(
            "Restarted: up after {}, {} requests failed, and the server handled {} connections.",
            seconds(phases.up_after),
            phases.restarted.failed_requests(),
            phases.connections_after_restart
        ),
    ];
    let event = |event: &str, after: Duration| Event {
        event: event.to_owned(),
        seconds: after.as_secs_f64(),
    };
    report.events = vec![event(
        "time after the stop in which requests may fail",
        window,
    )];
    report
        .events
        .extend(last.map(|last| event("the last run with a failure began after the stop", last)));
    report.events.extend([
        event("down after the stop", phases.down_after),
        event("up after the start", phases.up_after),
    ]);
    let errors = violations(phases, detected_after);
    report.failures = errors
        .into_iter()
        .map(|error| Failure {
            method: method.to_owned(),
            error,
        })
        .collect();
    report
}

/// Returns violations, such as requests that failed later than `detected_after`.
fn violations(phases: &Phases, detected_after: Duration) -> Vec<String> {
    let violations = [
        (
            phases.before.failed_requests(),
            "failed before the server stopped",
        ),
        (
            phases
                .stopped
                .failed_after(phases.stopped_at, detected_after),
            "failed after the server was reported as down",
        ),
        (
            phases.restarted.failed_requests(),
            "failed while the server recovered",
        ),
    ];
    let violations = violations.into_iter().filter(|(count, _)| *count > 0);
    let mut errors: Vec<String> = violations
        .map(|(count, violation)| match count {
            1 => format!("1 request {violation}"),
            _ => format!("{count} requests {violation}"),
        })
        .collect();
    if phases.connections_after_restart == 0 {
        errors.push("the server received no connection after its restart".to_owned());
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_experiments_support_fail() {
        let options = RunOptions::default();
        let setup = |name| super::setup(name, &options);
        assert!(setup("small-box-nat").is_ok_and(|setup| setup.forward == Forward::Nat));
        assert!(setup("clustered-rest").is_ok_and(|setup| setup.forward == Forward::Direct));
        assert!(setup("saturated-uplink").is_err_and(|error| error.exit_code() == 2));
    }
}
