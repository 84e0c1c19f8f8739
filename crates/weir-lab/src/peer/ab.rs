//! ApacheBench: runs it and reads its summary.
//!
//! Its own "Failed requests" counts neither answers outside 2xx nor write errors, so that a balancer which answers 503
//! would look fast and faultless; here all three are failures.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{LabError, Result};
use crate::process::Place;
use crate::requirement::{self, AB};

/// What to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) url: String,
    pub(crate) requests: u32,
    pub(crate) concurrency: u32,
    /// The page's length may differ between answers (`-l`); otherwise another length is a failure.
    pub(crate) any_length: bool,
    /// Several requests over each connection (`-k`).
    pub(crate) keep_alive: bool,
}

/// What `ab` measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) requests_per_second: f64,
    /// Received, headers included, in 1024 bytes a second: `ab` says "Kbytes".
    pub(crate) kbytes_per_second: f64,
    pub(crate) failed: u64,
    pub(crate) seconds: f64,
    /// What kinds of failures there were, in words; empty without failures.
    pub(crate) breakdown: String,
}

/// Time without any byte after which `ab` gives a connection up, in seconds.
const SOCKET_TIMEOUT: &str = "60";

/// Runs `ab` and waits for its end, at most `limit`.
pub(crate) fn run(place: &Place<'_>, load: &Load, limit: Duration) -> Result<Outcome> {
    let program = requirement::locate(AB).unwrap_or_else(|| PathBuf::from(AB.name));
    // ab refuses more at once than there are in all.
    let concurrency = load.concurrency.min(load.requests).to_string();
    let requests = load.requests.to_string();
    // -r: a connection that breaks is counted as failed and the rest goes on.
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
    arguments.push(&load.url);
    parse(&place.run("ab", &program, &arguments, limit)?)
}

/// Reads the summary.
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
    let bad = required("Failed requests:")?;
    let other_status = optional("Non-2xx responses:").unwrap_or(0.0);
    let unwritten = optional("Write errors:").unwrap_or(0.0);
    let kinds = output
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("(Connect:"))
        .unwrap_or_default();
    let wrong_length = wrong_lengths(kinds);
    // An error page mostly differs in length too; ab counts such an answer in both places.
    let failed = (bad - wrong_length + wrong_length.max(other_status) + unwritten) as u64;
    let breakdown = if failed == 0 {
        String::new()
    } else {
        format!("{other_status} answers outside 2xx, {unwritten} write errors, {bad} bad {kinds}")
    };
    Ok(Outcome {
        requests_per_second: required("Requests per second:")?,
        kbytes_per_second: required("Transfer rate:")?,
        failed,
        seconds: required("Time taken for tests:")?,
        breakdown,
    })
}

/// The number after `Length:` in `(Connect: 0, Receive: 0, Length: 2, Exceptions: 0)`, which stands in the output only
/// when something failed.
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
    fn reads_the_reports_own_figures() {
        let expected = Outcome {
            requests_per_second: 1.0,
            kbytes_per_second: 4596.12,
            failed: 0,
            seconds: 99.823,
            breakdown: String::new(),
        };
        assert_eq!(parse(CLEAN).expect("complete output"), expected);
    }

    #[test]
    fn every_kind_of_failure_counts() {
        let text = CLEAN.replace(
            "Failed requests:        0\n",
            "Failed requests:        3\n   (Connect: 0, Receive: 1, Length: 2, Exceptions: 0)\nWrite errors:           4\nNon-2xx responses:      50\n",
        );
        let outcome = parse(&text).expect("complete output");
        // One broken, four unwritten, and fifty error pages, two of which ab counts by their length as well.
        assert_eq!(outcome.failed, 55);
        assert!(
            outcome
                .breakdown
                .starts_with("50 answers outside 2xx, 4 write errors, 3 bad"),
            "{}",
            outcome.breakdown
        );
        assert!(outcome.breakdown.contains("Receive: 1"));
    }

    #[test]
    fn output_that_ends_early_names_what_is_missing() {
        let error = parse("apr_socket_recv: Connection refused (111)").expect_err("no summary");
        assert!(
            matches!(&error, LabError::AbOutput { field: "Failed requests:", tail } if tail.contains("refused"))
        );
    }
}
