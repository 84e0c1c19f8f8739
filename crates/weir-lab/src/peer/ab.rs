//! Runs ApacheBench and parses its summary.
//!
//! The "Failed requests" of `ab` include neither non-2xx responses nor write errors, so a balancer that responds with
//! 503 would appear to be fast and free of errors. The lab counts all three as failures.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};
use crate::latency::Latency;
use crate::process::Launcher;
use crate::requirement::{self, AB};

/// The requests to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) url: String,
    pub(crate) requests: u32,
    pub(crate) concurrency: u32,
    /// Accept responses of different lengths (`-l`); otherwise, a response of a different length is a failure.
    pub(crate) any_length: bool,
    /// Use keep-alive (`-k`).
    pub(crate) keep_alive: bool,
    /// Record the distribution of latencies.
    pub(crate) latency: bool,
}

/// The results of `ab`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) requests_per_second: f64,
    /// Receive rate including headers, in KiB/s (`ab` prints "Kbytes/sec").
    pub(crate) kbytes_per_second: f64,
    pub(crate) failed: u64,
    pub(crate) seconds: f64,
    /// The kinds of failures as text; empty = no failures.
    pub(crate) breakdown: String,
    /// The latencies, if requested.
    pub(crate) latency: Option<Latency>,
}

/// Time without data after which `ab` closes a connection, in seconds.
const SOCKET_TIMEOUT: &str = "60";

/// `ab` prints this message and exits if a connection is refused after at least [`MIN_FAILURES_AT_ABORT`] failures of
/// any kind, including the refused connection (`bad++ > 10`).
const ABORT_MESSAGE: &str = "Test aborted after 10 failures";
const MIN_FAILURES_AT_ABORT: u64 = 12;

/// Maximum number of runs of `ab`, each of which sends the remaining requests.
const MAX_RUNS: u32 = 100;

/// Runs `ab` until it exits, for at most `limit` per run. If `ab` aborts, another run sends the remaining requests.
/// Rates and latencies then come from the last run, and the failure count is a lower bound.
pub(crate) fn run(launcher: &Launcher<'_>, load: &Load, limit: Duration) -> Result<Outcome> {
    let started_at = Instant::now();
    let mut load = load.clone();
    for aborts in 0..MAX_RUNS {
        let message = match run_once(launcher, &load, limit) {
            Err(LabError::Failed { message, .. }) if message.contains(ABORT_MESSAGE) => message,
            Ok(outcome) if aborts > 0 => {
                return Ok(Outcome {
                    failed: outcome.failed + u64::from(aborts) * MIN_FAILURES_AT_ABORT,
                    seconds: started_at.elapsed().as_secs_f64(),
                    breakdown: format!(
                        "ab aborted {aborts} times, each time after at least {MIN_FAILURES_AT_ABORT} failures; in the \
                         last run, {} requests failed: {}",
                        outcome.failed, outcome.breakdown
                    ),
                    ..outcome
                });
            }
            other => return other,
        };
        match completed_requests(&message) {
            Some(done @ 1..) => load.requests = load.requests.saturating_sub(done).max(1),
            _ => break,
        }
    }
    Err(LabError::Failed {
        program: AB.name.to_owned(),
        status: format!("aborted, {} requests remaining", load.requests),
        message: ABORT_MESSAGE.to_owned(),
    })
}

/// Waits until one request of `ab` succeeds. This is for services that only programs started by the lab can use.
///
/// # Errors
/// Returns [`LabError::Deadline`] with the last error.
pub(crate) fn wait_until_served(launcher: &Launcher<'_>, url: &str, limit: Duration) -> Result<()> {
    let load = Load {
        url: url.to_owned(),
        requests: 1,
        concurrency: 1,
        any_length: true,
        keep_alive: false,
        latency: false,
    };
    let mut last = String::new();
    let end = Instant::now() + limit;
    while Instant::now() < end {
        match run_once(launcher, &load, limit) {
            Ok(outcome) if outcome.failed == 0 => return Ok(()),
            Ok(outcome) => last = outcome.breakdown,
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(error) => last = error.to_string(),
        }
    }
    Err(LabError::Deadline {
        event: format!("a response from {url}"),
        seconds: limit.as_secs(),
        detail: format!(": {last}"),
    })
}

/// Returns the number of completed requests from the output of an aborted run.
fn completed_requests(message: &str) -> Option<u32> {
    let (_, rest) = message.split_once("Total of ")?;
    rest.split_whitespace().next()?.parse().ok()
}

fn run_once(launcher: &Launcher<'_>, load: &Load, limit: Duration) -> Result<Outcome> {
    let program = requirement::locate(AB).unwrap_or_else(|| PathBuf::from(AB.name));
    // ab rejects a concurrency that is higher than the number of requests.
    let concurrency = load.concurrency.min(load.requests).to_string();
    let requests = load.requests.to_string();
    // -r: count a broken connection as a failure and continue.
    let mut arguments = vec![
        "-q",
        "-r",
        "-s",
        SOCKET_TIMEOUT,
        "-n",
        &requests,
        "-c",
        &concurrency,
    ];
    if load.any_length {
        arguments.push("-l");
    }
    if load.keep_alive {
        arguments.push("-k");
    }
    let percentiles = launcher
        .directory
        .join("percentiles.csv")
        .display()
        .to_string();
    let requests_file = launcher
        .directory
        .join("requests.tsv")
        .display()
        .to_string();
    if load.latency {
        arguments.extend(["-e", &percentiles, "-g", &requests_file]);
    }
    arguments.push(&load.url);
    let mut outcome = parse(&launcher.run("ab", &program, &arguments, limit)?)?;
    if load.latency {
        let read = |file: &String| std::fs::read_to_string(file).map_err(LabError::file(file));
        outcome.latency = Some(latency(&read(&percentiles)?, &read(&requests_file)?));
    }
    Ok(outcome)
}

/// Reads the distribution. `ab` writes whole percentiles with microsecond resolution, and each request with millisecond
/// resolution; the percentiles above 99 come from the individual requests.
fn latency(percentiles: &str, requests: &str) -> Latency {
    let pair = |line: &str| -> Option<(f64, f64)> {
        let (percent, milliseconds) = line.split_once(',')?;
        Some((
            percent.parse::<f64>().ok()? / 100.0,
            milliseconds.parse().ok()?,
        ))
    };
    let mut points: Vec<(f64, f64)> = percentiles.lines().filter_map(pair).collect();
    // The columns are starttime, seconds, ctime, dtime, ttime and wait.
    let total = |line: &str| line.split('\t').nth(4)?.parse::<f64>().ok();
    let mut totals: Vec<f64> = requests.lines().filter_map(total).collect();
    totals.sort_by(f64::total_cmp);
    for quantile in [0.995, 0.999, 0.9995, 0.9999, 0.99995, 0.99999] {
        let rank = (quantile * totals.len() as f64).ceil() as usize;
        // With fewer requests, this quantile is the slowest request, which quantile 1 already covers.
        if rank < totals.len()
            && let Some(milliseconds) = rank.checked_sub(1).and_then(|index| totals.get(index))
        {
            points.push((quantile, *milliseconds));
        }
    }
    Latency::new(points)
}

/// Parses the summary that `ab` prints.
fn parse(output: &str) -> Result<Outcome> {
    let optional = |label: &str| -> Option<f64> {
        let line = output.lines().find_map(|line| line.strip_prefix(label))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let required = |label: &'static str| {
        let tail: String = output
            .chars()
            .rev()
            .take(300)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        optional(label).ok_or(LabError::AbOutput { field: label, tail })
    };
    let failed_requests = required("Failed requests:")?;
    let non_2xx = optional("Non-2xx responses:").unwrap_or(0.0);
    let write_errors = optional("Write errors:").unwrap_or(0.0);
    let kinds = output
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("(Connect:"))
        .unwrap_or_default();
    let wrong_length = wrong_lengths(kinds);
    // An error page usually also has a different length; ab counts such a response twice.
    let failed = (failed_requests - wrong_length + wrong_length.max(non_2xx) + write_errors) as u64;
    let breakdown = if failed == 0 {
        String::new()
    } else {
        format!(
            "{non_2xx} non-2xx responses, {write_errors} write errors, {failed_requests} failed requests {kinds}"
        )
    };
    Ok(Outcome {
        requests_per_second: required("Requests per second:")?,
        kbytes_per_second: required("Transfer rate:")?,
        failed,
        seconds: required("Time taken for tests:")?,
        breakdown,
        latency: None,
    })
}

/// Returns the number after `Length:` in `(Connect: 0, Receive: 0, Length: 2, Exceptions: 0)`. The output contains this
/// line only if there were failures.
fn wrong_lengths(kinds: &str) -> f64 {
    let number = kinds
        .split_once("Length:")
        .and_then(|(_, rest)| rest.split(',').next());
    number
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "\
Concurrency Level:      12
Time taken for tests:   99.823 seconds
Complete requests:      100
Failed requests:        0
Total transferred:      469784800 bytes
HTML transferred:       469760000 bytes
Requests per second:    1.00 [#/sec] (mean)
Time per request:       11978.760 [ms] (mean)
Transfer rate:          4596.12 [Kbytes/sec] received
";

    #[test]
    fn summary_is_parsed() {
        let expected = Outcome {
            requests_per_second: 1.0,
            kbytes_per_second: 4596.12,
            failed: 0,
            seconds: 99.823,
            breakdown: String::new(),
            latency: None,
        };
        assert_eq!(parse(CLEAN).expect("complete output"), expected);
    }

    #[test]
    fn every_kind_of_failure_is_counted() {
        let text = CLEAN.replace(
            "Failed requests:        0\n",
            "Failed requests:        3\n   (Connect: 0, Receive: 1, Length: 2, Exceptions: 0)\nWrite errors:           \
             4\nNon-2xx responses:      50\n",
        );
        let outcome = parse(&text).expect("complete output");
        // One broken connection, four write errors, and fifty error pages. ab also counts two of the pages because of
        // their length.
        assert_eq!(outcome.failed, 55);
        assert!(
            outcome
                .breakdown
                .starts_with("50 non-2xx responses, 4 write errors, 3 failed requests"),
            "{}",
            outcome.breakdown
        );
        assert!(outcome.breakdown.contains("Receive: 1"));
    }

    #[test]
    fn whole_percentiles_are_combined_with_individual_requests() {
        let percentiles = "Percentage served,Time in ms\n0,0.100\n50,1.250\n99,2.600\n100,30.125\n";
        let mut requests = String::from("starttime\tseconds\tctime\tdtime\tttime\twait\n");
        for number in 0..10_000 {
            let milliseconds = if number < 9_990 { 2 } else { 20 };
            requests.push_str(&format!("now\t1\t0\t1\t{milliseconds}\t1\n"));
        }
        let latency = latency(percentiles, &requests);
        assert_eq!(
            [0.5, 0.99, 0.999, 0.9999, 1.0].map(|quantile| latency.quantile_ms(quantile)),
            [1.25, 2.6, 2.6, 20.0, 30.125]
        );
    }

    #[test]
    fn completed_requests_are_read_from_aborted_run() {
        let text = "Test aborted after 10 failures\n\napr_socket_connect(): Connection reset by peer (104)\nTotal of \
         61362 requests completed\n";
        assert_eq!(completed_requests(text), Some(61_362));
        assert_eq!(completed_requests("apr_socket_recv: refused"), None);
    }

    #[test]
    fn error_about_incomplete_output_names_missing_line() {
        let error = parse("apr_socket_recv: Connection refused (111)").expect_err("no summary");
        assert!(
            matches!(&error, LabError::AbOutput { field: "Failed requests:", tail } if tail.contains("refused"))
        );
    }
}
