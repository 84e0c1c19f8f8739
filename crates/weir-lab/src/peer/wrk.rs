//! Runs wrk, whose clients keep their connections open, for a given time instead of a number of requests.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{LabError, Result};
use crate::latency::Latency;
use crate::peer::ab::Outcome;
use crate::process::{self, Launcher};
use crate::requirement::{self, WRK};

/// A script that prints values that are not in wrk's summary.
const SCRIPT: &str = r#"done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("totals %d %d %d\n", summary.requests, summary.bytes, summary.duration))
  io.write(string.format("errors %d %d %d %d %d\n", e.connect, e.read, e.write, e.status, e.timeout))
  for percent = 1, 99 do io.write(string.format("quantile %g %d\n", percent / 100, latency:percentile(percent))) end
  for _, percent in ipairs({99.9, 99.99, 99.999}) do
    io.write(string.format("quantile %.5f %d\n", percent / 100, latency:percentile(percent)))
  end
  io.write(string.format("quantile 1 %d\n", latency.max))
end
"#;

/// Time limit in addition to the requested time.
const MARGIN: Duration = Duration::from_secs(30);

/// Runs wrk for `time` and waits until it exits.
pub(crate) fn run(
    launcher: &Launcher<'_>,
    url: &str,
    concurrency: u32,
    time: Duration,
) -> Result<Outcome> {
    let script = launcher.directory.join("wrk.lua");
    std::fs::write(&script, SCRIPT).map_err(LabError::file(&script))?;
    let program = requirement::locate(WRK).unwrap_or_else(|| PathBuf::from(WRK.name));
    let script = script.display().to_string();
    let (connections, seconds) = (concurrency.to_string(), time.as_secs().max(1).to_string());
    // Use one thread, to leave CPU time for the balancer.
    let arguments = [
        "-t",
        "1",
        "-c",
        &connections,
        "-d",
        &seconds,
        "-s",
        &script,
        url,
    ];
    let output = launcher.run("wrk", &program, &arguments, time + MARGIN)?;
    parse(&output).ok_or_else(|| LabError::Failed {
        program: "wrk".into(),
        status: "no summary".into(),
        message: process::tail(&launcher.directory.join("wrk.log")),
    })
}

fn parse(output: &str) -> Option<Outcome> {
    let numbers = |label: &str| -> Option<Vec<f64>> {
        let line = output.lines().find_map(|line| line.strip_prefix(label))?;
        line.split_whitespace()
            .map(|word| word.parse().ok())
            .collect()
    };
    let totals = numbers("totals ")?;
    let [requests, bytes, microseconds] = totals.as_slice() else {
        return None;
    };
    let errors = numbers("errors ")?;
    let [connect, read, write, status, timeout] = errors.as_slice() else {
        return None;
    };
    let quantile = |line: &str| -> Option<(f64, f64)> {
        let (quantile, microseconds) = line.strip_prefix("quantile ")?.split_once(' ')?;
        Some((
            quantile.parse().ok()?,
            microseconds.parse::<f64>().ok()? / 1000.0,
        ))
    };
    let seconds = microseconds / 1e6;
    let failed: f64 = errors.iter().sum();
    let breakdown = format!(
        "{connect} connect errors, {read} read errors, {write} write errors, {status} non-2xx/3xx responses, \
         {timeout} timeouts"
    );
    Some(Outcome {
        requests_per_second: requests / seconds,
        kbytes_per_second: bytes / 1024.0 / seconds,
        failed: failed as u64,
        seconds,
        breakdown: if failed > 0.0 {
            breakdown
        } else {
            String::new()
        },
        latency: Some(Latency::new(output.lines().filter_map(quantile).collect())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_output_is_parsed() {
        let output = "Running 2s test\ntotals 2000 1024000 2000000\nerrors 0 3 0 1 0\nquantile 0.5 1500\n\
                      quantile 0.99 2500\nquantile 0.99900 4000\nquantile 1 9000\n";
        let outcome = parse(output).expect("contains the summary");
        assert_eq!((outcome.requests_per_second, outcome.failed), (1000.0, 4));
        assert_eq!(outcome.kbytes_per_second, 500.0);
        assert!(outcome.breakdown.contains("3 read errors"));
        let latency = outcome.latency.expect("quantiles");
        assert_eq!(
            [0.5, 0.9999, 1.0].map(|quantile| latency.quantile_ms(quantile)),
            [1.5, 9.0, 9.0]
        );
        assert_eq!(
            parse("unable to connect to 192.0.2.10:80 Connection refused"),
            None
        );
    }
}
