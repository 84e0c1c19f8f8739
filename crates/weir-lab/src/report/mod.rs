//! Builds the report of a run: rows, charts and notes, as a text table, JSON and an HTML file.

pub(crate) mod all;
mod axis;
mod bars;
pub(crate) mod busy;
mod chart;
pub(crate) mod faults;
mod field;
pub(crate) mod headline;
pub(crate) mod html;
mod json;
mod latency;
pub(crate) mod note;
mod share;
mod sizes;
pub(crate) mod store;
pub(crate) mod table;

use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};
use crate::sample::{Series, Shares};

pub use latency::Timing;

/// The method that ratios are relative to.
pub(crate) const BASE: &str = "one-server";
/// The host whose link shows the difference between forwarding methods.
pub(crate) const DIRECTOR: &str = "director";

/// A row of the table.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// The method, or `METHOD/WORKLOAD` if an experiment has several workloads.
    pub name: String,
    /// Completed requests per second.
    pub requests_per_second: f64,
    /// Receive rate of the client including headers, in KiB/s (`ab` prints "Kbytes/sec").
    pub kbytes_per_second: f64,
    /// Failed requests: errors, wrong lengths, non-2xx responses.
    pub failed: u64,
    /// Time from the first request to the last response.
    pub seconds: f64,
    /// Ratio of the request rate to that of a single server with the same requests; `None` = the single server was not
    /// measured.
    pub ratio: Option<f64>,
    /// Latencies, if the experiment measures them.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// The first server's share of the requests, if the experiment slows this server down.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
}

/// An event during a run.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Event {
    /// A short description.
    pub event: String,
    /// Time since the cause of the event.
    pub seconds: f64,
}

/// A method that could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Failure {
    /// The name.
    pub method: String,
    /// The reason, as text.
    pub error: String,
}

/// The traffic of one row, for a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The row's name.
    pub name: String,
    /// Rate of each host's link, in Mbit/s.
    pub link: f64,
    /// Rates of all hosts.
    pub series: Series,
}

/// The report of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The experiment's name.
    pub experiment: String,
    /// The experiment's summary.
    pub summary: String,
    /// Measured methods, in the experiment's order.
    pub rows: Vec<Row>,
    /// Methods that failed.
    pub failures: Vec<Failure>,
    /// Charts; none for experiments without limited links.
    pub panels: Vec<Panel>,
    /// Events; empty for experiments without events.
    pub events: Vec<Event>,
    /// Conditions of the run that a reader should know.
    pub notes: Vec<String>,
    /// A note if other load kept the machine busy.
    pub busy: Option<String>,
    /// Path of the HTML file, once it has been written.
    pub html: Option<PathBuf>,
}

impl Report {
    /// Creates an empty report.
    pub(crate) fn new(experiment: &str, summary: &str) -> Self {
        Report {
            experiment: experiment.into(),
            summary: summary.into(),
            rows: Vec::new(),
            failures: Vec::new(),
            panels: Vec::new(),
            events: Vec::new(),
            notes: Vec::new(),
            busy: None,
            html: None,
        }
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> String {
        json::render(self)
    }

    /// Computes the ratios to the rows of a single server.
    pub(crate) fn set_ratios(&mut self) {
        let bases: Vec<(Option<String>, f64)> = self
            .rows
            .iter()
            .filter(|row| row.method() == BASE)
            .map(|row| (row.workload().map(str::to_owned), row.requests_per_second))
            .collect();
        for row in &mut self.rows {
            let base = bases
                .iter()
                .find(|(workload, _)| workload.as_deref() == row.workload())
                .map(|(_, rate)| *rate);
            row.ratio = base
                .filter(|rate| *rate > 0.0)
                .map(|rate| row.requests_per_second / rate);
        }
    }

    /// Returns whether the rows contain latencies.
    pub(crate) fn is_timed(&self) -> bool {
        self.rows.iter().any(|row| row.timing.is_some())
    }

    /// Returns whether the run slowed one server down.
    pub(crate) fn has_shares(&self) -> bool {
        self.rows.iter().any(|row| row.shares.is_some())
    }

    /// Returns the chart of a row.
    pub(crate) fn panel(&self, row: &Row) -> Option<&Panel> {
        self.panels.iter().find(|panel| panel.name == row.name)
    }

    /// Writes `DIRECTORY/EXPERIMENT.html` and stores the absolute path. Writes the numbers to a file in the same
    /// directory.
    pub(crate) fn write_html(&mut self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory).map_err(LabError::file(directory))?;
        let path = directory.join(format!("{}.html", self.experiment));
        std::fs::write(&path, html::render(self)).map_err(LabError::file(&path))?;
        store::write(self, directory)?;
        self.html = Some(std::fs::canonicalize(&path).unwrap_or(path));
        Ok(())
    }
}

impl Row {
    /// Returns the method: the part of the name before the slash.
    pub(crate) fn method(&self) -> &str {
        self.name
            .split_once('/')
            .map_or(&self.name, |(method, _)| method)
    }

    /// Returns the workload: the part of the name after the slash.
    pub(crate) fn workload(&self) -> Option<&str> {
        self.name.split_once('/').map(|(_, workload)| workload)
    }
}

#[cfg(test)]
pub(crate) mod example {
    //! Provides a small report for the tests of all formats.

    use super::*;
    use crate::latency::Latency;
    use crate::sample::HostSeries;

    pub(crate) fn row(name: &str, requests_per_second: f64, seconds: f64) -> Row {
        Row {
            name: name.into(),
            requests_per_second,
            kbytes_per_second: requests_per_second * 4096.0,
            failed: 0,
            seconds,
            ratio: None,
            timing: None,
            shares: None,
        }
    }

    pub(crate) fn timed_row(name: &str, disturbances: &[f64]) -> Row {
        let points = vec![(0.5, 1.25), (0.99, 2.5), (0.9999, 7.0), (1.0, 31.0)];
        Row {
            timing: Some(Timing {
                latency: Latency::new(points),
                disturbances: disturbances.to_vec(),
                refused: 0,
            }),
            ..row(name, 8000.0, 25.0)
        }
    }

    /// Returns a report of an experiment with latencies.
    pub(crate) fn timed_report() -> Report {
        let mut report = Report::new("reload-under-load", "what a reload costs");
        report.rows = vec![
            timed_row("proxy/quiet", &[]),
            timed_row("proxy/disturbed", &[3.0, 5.0]),
            timed_row("proxy/keep-alive-quiet", &[]),
            timed_row("proxy/keep-alive-disturbed", &[4.0]),
        ];
        report
    }

    pub(crate) fn report() -> Report {
        let mut report = Report::new("saturated-uplink", "files <big> & links small");
        report.rows = vec![
            row("one-server", 0.25, 400.0),
            row("nat", 0.245, 408.0),
            row("direct", 0.998, 100.2),
        ];
        report.set_ratios();
        let host = |host: &str, transmit: f64, receive: f64| HostSeries {
            host: host.into(),
            transmit: vec![transmit, transmit],
            receive: vec![receive, receive],
        };
        let panel = |name: &str, director: f64, server: f64| Panel {
            name: name.into(),
            link: 10.24,
            series: Series {
                seconds: vec![50.0, 100.0],
                hosts: vec![
                    host("client", 0.3, director.max(4.0 * server)),
                    host("director", director, 10.0),
                    host("server1", server, 0.1),
                    host("server2", server, 0.1),
                ],
            },
        };
        report.panels = vec![panel("nat", 10.2, 5.1), panel("direct", 0.4, 10.2)];
        report.failures = vec![Failure {
            method: "tunnel".into(),
            error: "weir failed: <no such thing>".into(),
        }];
        report.notes = vec!["Links: 10240kbit.".into()];
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_compare_only_the_same_kind_of_run() {
        let mut report = Report::new("small-box-nat", "");
        report.rows = [
            "one-server/c100",
            "nat/c100",
            "one-server/c1000",
            "nat/c1000",
        ]
        .into_iter()
        .zip([100.0, 50.0, 10.0, 16.0])
        .map(|(name, rate)| example::row(name, rate, 1.0))
        .collect();
        report.set_ratios();
        let ratios: Vec<_> = report.rows.iter().map(|row| row.ratio).collect();
        assert_eq!(ratios, [Some(1.0), Some(0.5), Some(1.0), Some(1.6)]);
    }

    #[test]
    fn ratio_requires_a_row_of_one_server() {
        let mut report = Report::new("saturated-uplink", "");
        report.rows = vec![example::row("direct", 1.0, 1.0)];
        report.set_ratios();
        assert_eq!(report.rows[0].ratio, None);
    }
}
