//! Reports that `weir lab run` keeps next to the HTML file, for `weir lab report`: all numbers, those of the charts
//! included.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Event, Failure, Panel, Report, Row, Timing};
use crate::error::{LabError, Result};
use crate::latency::Latency;
use crate::sample::{HostSeries, Series, Shares};

/// Changes with every incompatible change of the format.
const VERSION: u32 = 1;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    experiment: String,
    summary: String,
    rows: Vec<KeptRow>,
    failures: Vec<(String, String)>,
    panels: Vec<KeptPanel>,
    events: Vec<(String, f64)>,
    notes: Vec<String>,
    busy: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptRow {
    name: String,
    requests_per_second: f64,
    kbytes_per_second: f64,
    failed: u64,
    seconds: f64,
    ratio: Option<f64>,
    timing: Option<KeptTiming>,
    shares: Option<KeptShares>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptTiming {
    points: Vec<(f64, f64)>,
    disturbances: Vec<f64>,
    refused: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptShares {
    mean: f64,
    seconds: Vec<f64>,
    shares: Vec<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptPanel {
    name: String,
    link: f64,
    seconds: Vec<f64>,
    hosts: Vec<KeptHost>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptHost {
    host: String,
    transmit: Vec<f64>,
    receive: Vec<f64>,
}

/// Writes a report to `DIRECTORY/EXPERIMENT.json`.
pub(super) fn write(report: &Report, directory: &Path) -> Result<()> {
    let path = directory.join(format!("{}.json", report.experiment));
    // Serialization can fail only for maps with non-string keys and for writers, which are not used.
    let text = serde_json::to_string(&Kept::from(report)).unwrap_or_default();
    std::fs::write(&path, text).map_err(LabError::file(&path))
}

/// Reads the report of an experiment; `None` = there is none.
///
/// # Errors
/// The file cannot be read, or is not one of this version.
pub(crate) fn read(directory: &Path, experiment: &str) -> Result<Option<Report>> {
    let path = directory.join(format!("{experiment}.json"));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LabError::file(&path)(error)),
    };
    let kept: Kept = serde_json::from_str(&text)
        .map_err(|error| LabError::file(&path)(std::io::Error::other(error)))?;
    if kept.version != VERSION || kept.experiment != experiment {
        let error = "it was written by another version of weir; run the experiment again";
        return Err(LabError::file(&path)(std::io::Error::other(error)));
    }
    Ok(Some(kept.into()))
}

impl From<&Report> for Kept {
    fn from(report: &Report) -> Self {
        Self {
            version: VERSION,
            experiment: report.experiment.clone(),
            summary: report.summary.clone(),
            rows: report.rows.iter().map(KeptRow::from).collect(),
            failures: report
                .failures
                .iter()
                .map(|it| (it.method.clone(), it.error.clone()))
                .collect(),
            panels: report.panels.iter().map(KeptPanel::from).collect(),
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

impl From<Kept> for Report {
    fn from(kept: Kept) -> Self {
        let failure = |(method, error)| Failure { method, error };
        let event = |(event, seconds)| Event { event, seconds };
        Self {
            experiment: kept.experiment,
            summary: kept.summary,
            rows: kept.rows.into_iter().map(Row::from).collect(),
            failures: kept.failures.into_iter().map(failure).collect(),
            panels: kept.panels.into_iter().map(Panel::from).collect(),
            events: kept.events.into_iter().map(event).collect(),
            notes: kept.notes,
            busy: kept.busy,
            html: None,
        }
    }
}

impl From<&Row> for KeptRow {
    fn from(row: &Row) -> Self {
        Self {
            name: row.name.clone(),
            requests_per_second: row.requests_per_second,
            kbytes_per_second: row.kbytes_per_second,
            failed: row.failed,
            seconds: row.seconds,
            ratio: row.ratio,
            timing: row.timing.as_ref().map(|timing| KeptTiming {
                points: timing.latency.points().to_vec(),
                disturbances: timing.disturbances.clone(),
                refused: timing.refused,
            }),
            shares: row.shares.as_ref().map(|shares| KeptShares {
                mean: shares.mean,
                seconds: shares.seconds.clone(),
                shares: shares.shares.clone(),
            }),
        }
    }
}

impl From<KeptRow> for Row {
    fn from(kept: KeptRow) -> Self {
        Self {
            name: kept.name,
            requests_per_second: kept.requests_per_second,
            kbytes_per_second: kept.kbytes_per_second,
            failed: kept.failed,
            seconds: kept.seconds,
            ratio: kept.ratio,
            timing: kept.timing.map(|timing| Timing {
                latency: Latency::new(timing.points),
                disturbances: timing.disturbances,
                refused: timing.refused,
            }),
            shares: kept.shares.map(|shares| Shares {
                mean: shares.mean,
                seconds: shares.seconds,
                shares: shares.shares,
            }),
        }
    }
}

impl From<&Panel> for KeptPanel {
    fn from(panel: &Panel) -> Self {
        let host = |it: &HostSeries| KeptHost {
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

impl From<KeptPanel> for Panel {
    fn from(kept: KeptPanel) -> Self {
        let host = |it: KeptHost| HostSeries {
            host: it.host,
            transmit: it.transmit,
            receive: it.receive,
        };
        Self {
            name: kept.name,
            link: kept.link,
            series: Series {
                seconds: kept.seconds,
                hosts: kept.hosts.into_iter().map(host).collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn kept_report_is_the_same() {
        let mut with_shares = example::report();
        with_shares.rows[0].shares = Some(Shares {
            mean: 0.25,
            seconds: vec![1.0],
            shares: vec![0.3],
        });
        for report in [with_shares, example::timed_report()] {
            let text = serde_json::to_string(&Kept::from(&report)).expect("JSON");
            let kept: Kept = serde_json::from_str(&text).expect("the same format");
            assert_eq!(Report::from(kept), report);
        }
    }

    #[test]
    fn absent_report_is_none_and_foreign_file_is_an_error() {
        let directory = std::env::temp_dir().join(format!("weir-kept-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        assert!(
            read(&directory, "saturated-uplink")
                .expect("absent")
                .is_none()
        );
        write(&example::report(), &directory).expect("written");
        let found = read(&directory, "saturated-uplink").expect("readable");
        assert_eq!(found.expect("there").rows, example::report().rows);
        std::fs::write(directory.join("x.json"), "{}").expect("written");
        assert!(read(&directory, "x").is_err());
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
