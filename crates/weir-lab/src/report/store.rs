//! Stores reports in JSON files, which `weir lab report` reads.
//!
//! The files are next to the HTML files. A stored report contains all numbers, including those in the charts.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Event, Failure, Panel, Report, Row, Timing};
use crate::error::{LabError, Result};
use crate::latency::Latency;
use crate::sample::{HostSeries, Series, Shares};

/// Version of the format. Every incompatible change increments it.
const VERSION: u32 = 1;

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct StoredReport {
    version: u32,
    experiment: String,
    summary: String,
    rows: Vec<StoredRow>,
    failures: Vec<(String, String)>,
    panels: Vec<StoredPanel>,
    events: Vec<(String, f64)>,
    notes: Vec<String>,
    busy: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredRow {
    name: String,
    requests_per_second: f64,
    kbytes_per_second: f64,
    failed: u64,
    seconds: f64,
    ratio: Option<f64>,
    timing: Option<StoredTiming>,
    shares: Option<StoredShares>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredTiming {
    points: Vec<(f64, f64)>,
    disturbances: Vec<f64>,
    refused: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredShares {
    mean: f64,
    seconds: Vec<f64>,
    shares: Vec<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredPanel {
    name: String,
    link: f64,
    seconds: Vec<f64>,
    hosts: Vec<StoredHost>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredHost {
    host: String,
    transmit: Vec<f64>,
    receive: Vec<f64>,
}

/// Writes a report to `DIRECTORY/EXPERIMENT.json`.
pub(super) fn write(report: &Report, directory: &Path) -> Result<()> {
    let path = directory.join(format!("{}.json", report.experiment));
    // Serialization to a string fails only for maps with non-string keys, and a report has none.
    let text = serde_json::to_string(&StoredReport::from(report)).unwrap_or_default();
    std::fs::write(&path, text).map_err(LabError::file(&path))
}

/// Reads the report of an experiment; `None` = there is none.
///
/// # Errors
/// Fails if the file cannot be read, is not a report of the experiment, or has a different version.
pub(crate) fn read(directory: &Path, experiment: &str) -> Result<Option<Report>> {
    let path = directory.join(format!("{experiment}.json"));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LabError::file(&path)(error)),
    };
    let stored: StoredReport = serde_json::from_str(&text)
        .map_err(|error| LabError::file(&path)(std::io::Error::other(error)))?;
    if stored.version != VERSION {
        let error = "it was written by a different version of weir; run the experiment again";
        return Err(LabError::file(&path)(std::io::Error::other(error)));
    }
    if stored.experiment != experiment {
        let error = format!(
            "it is the report of experiment {}, not of {experiment}",
            stored.experiment
        );
        return Err(LabError::file(&path)(std::io::Error::other(error)));
    }
    Ok(Some(stored.into()))
}

impl From<&Report> for StoredReport {
    fn from(report: &Report) -> Self {
        Self {
            version: VERSION,
            experiment: report.experiment.clone(),
            summary: report.summary.clone(),
            rows: report.rows.iter().map(StoredRow::from).collect(),
            failures: report
                .failures
                .iter()
                .map(|it| (it.method.clone(), it.error.clone()))
                .collect(),
            panels: report.panels.iter().map(StoredPanel::from).collect(),
            events: report
                .events
                .iter()
                .map(|it| (it.event.clone(), it.seconds))
                .collect(),
            notes: report.notes.clone(),
            busy: report.busy.clone(),
        }
    }
}

impl From<StoredReport> for Report {
    fn from(stored: StoredReport) -> Self {
        let failure = |(method, error)| Failure { method, error };
        let event = |(event, seconds)| Event { event, seconds };
        Self {
            experiment: stored.experiment,
            summary: stored.summary,
            rows: stored.rows.into_iter().map(Row::from).collect(),
            failures: stored.failures.into_iter().map(failure).collect(),
            panels: stored.panels.into_iter().map(Panel::from).collect(),
            events: stored.events.into_iter().map(event).collect(),
            notes: stored.notes,
            busy: stored.busy,
            html: None,
        }
    }
}

impl From<&Row> for StoredRow {
    fn from(row: &Row) -> Self {
        Self {
            name: row.name.clone(),
            requests_per_second: row.requests_per_second,
            kbytes_per_second: row.kbytes_per_second,
            failed: row.failed,
            seconds: row.seconds,
            ratio: row.ratio,
            timing: row.timing.as_ref().map(|timing| StoredTiming {
                points: timing.latency.points().to_vec(),
                disturbances: timing.disturbances.clone(),
                refused: timing.refused,
            }),
            shares: row.shares.as_ref().map(|shares| StoredShares {
                mean: shares.mean,
                seconds: shares.seconds.clone(),
                shares: shares.shares.clone(),
            }),
        }
    }
}

impl From<StoredRow> for Row {
    fn from(stored: StoredRow) -> Self {
        Self {
            name: stored.name,
            requests_per_second: stored.requests_per_second,
            kbytes_per_second: stored.kbytes_per_second,
            failed: stored.failed,
            seconds: stored.seconds,
            ratio: stored.ratio,
            timing: stored.timing.map(|timing| Timing {
                latency: Latency::new(timing.points),
                disturbances: timing.disturbances,
                refused: timing.refused,
            }),
            shares: stored.shares.map(|shares| Shares {
                mean: shares.mean,
                seconds: shares.seconds,
                shares: shares.shares,
            }),
        }
    }
}

impl From<&Panel> for StoredPanel {
    fn from(panel: &Panel) -> Self {
        let host = |it: &HostSeries| StoredHost {
            host: it.host.clone(),
            transmit: it.transmit.clone(),
            receive: it.receive.clone(),
        };
        Self {
            name: panel.name.clone(),
            link: panel.link,
            seconds: panel.series.seconds.clone(),
            hosts: panel.series.hosts.iter().map(host).collect(),
        }
    }
}

impl From<StoredPanel> for Panel {
    fn from(stored: StoredPanel) -> Self {
        let host = |it: StoredHost| HostSeries {
            host: it.host,
            transmit: it.transmit,
            receive: it.receive,
        };
        Self {
            name: stored.name,
            link: stored.link,
            series: Series {
                seconds: stored.seconds,
                hosts: stored.hosts.into_iter().map(host).collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn stored_report_is_read_unchanged() {
        let mut with_shares = example::report();
        with_shares.rows[0].shares = Some(Shares {
            mean: 0.25,
            seconds: vec![1.0],
            shares: vec![0.3],
        });
        for report in [with_shares, example::timed_report()] {
            let text =
                serde_json::to_string(&StoredReport::from(&report)).expect("serialize the report");
            let stored: StoredReport = serde_json::from_str(&text).expect("parse the report");
            assert_eq!(Report::from(stored), report);
        }
    }

    #[test]
    fn missing_report_is_none_and_invalid_file_is_an_error() {
        let directory = std::env::temp_dir().join(format!("weir-store-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("create the directory");
        assert!(
            read(&directory, "saturated-uplink")
                .expect("no error")
                .is_none()
        );
        write(&example::report(), &directory).expect("write the report");
        let found = read(&directory, "saturated-uplink").expect("read the report");
        assert_eq!(
            found.expect("the report exists").rows,
            example::report().rows
        );
        std::fs::write(directory.join("x.json"), "{}").expect("write the file");
        assert!(read(&directory, "x").is_err());
        std::fs::remove_dir_all(&directory).expect("remove the directory");
    }
}
