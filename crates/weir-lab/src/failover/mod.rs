//! Implements `weir lab run director-failover`, which measures failures of the active director in a pair.
//!
//! The results are how long a VIP is unreachable, and how many flows break, when the active director fails in different
//! ways. Both directors run VRRP with keepalived or with Weir, or the active director runs Weir and the standby
//! keepalived. The data plane is always Weir's.

mod fault;
mod phase;
mod probe;
mod rig;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::error::{LabError, Result};
use crate::experiment::RunOptions;
use crate::interrupt;
use crate::progress::Progress;
use crate::report::faults::{self, Description, FaultRow, milliseconds, select};
use crate::requirement;
use crate::session::Session;
use fault::Fault;
use rig::Rig;

/// The experiment's name.
pub(crate) const NAME: &str = "director-failover";
/// The experiment's summary.
pub(crate) const SUMMARY: &str =
    "outage and broken flows when the active director of a pair fails: keepalived, Weir, both";

/// How long the client monitors the VIP after a fault.
const MONITORING_TIME: Duration = Duration::from_secs(3);
/// Number of open connections.
const FLOWS: usize = 50;

/// The VRRP programs of the two directors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    pub(crate) active: Vrrp,
    pub(crate) standby: Vrrp,
    /// Advertisement interval, in hundredths of a second.
    pub(crate) interval_cs: u8,
}

/// The VRRP program of a director.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vrrp {
    Keepalived,
    Weir,
}

const KEEPALIVED: Pair = Pair {
    name: "keepalived",
    active: Vrrp::Keepalived,
    standby: Vrrp::Keepalived,
    interval_cs: 10,
};
const WEIR: Pair = Pair {
    name: "weir",
    active: Vrrp::Weir,
    standby: Vrrp::Weir,
    interval_cs: 10,
};

const PAIRS: [Pair; 5] = [
    KEEPALIVED,
    WEIR,
    Pair {
        name: "mixed",
        standby: Vrrp::Keepalived,
        ..WEIR
    },
    Pair {
        name: "keepalived-10ms",
        interval_cs: 1,
        ..KEEPALIVED
    },
    Pair {
        name: "weir-10ms",
        interval_cs: 1,
        ..WEIR
    },
];

/// The results of one fault with one pair.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    fault: &'static str,
    pair: &'static str,
    /// Median of the longest time without a response, in milliseconds.
    outage_ms: Option<u64>,
    /// 95th percentile of that time, in milliseconds.
    p95_ms: Option<u64>,
    /// Maximum of that time, in milliseconds.
    worst_ms: Option<u64>,
    /// Maximum number of broken flows in a run.
    broken: Option<usize>,
    flows: usize,
    runs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the experiment and prints the table or JSON. Returns whether all runs succeeded.
///
/// # Errors
/// Fails if an option is wrong, without root, if programs are missing, and after Ctrl-C.
pub(crate) fn run(options: &RunOptions, json: bool) -> Result<bool> {
    let pairs = select(NAME, "--methods", &PAIRS, |it| it.name, &options.methods)?;
    let faults = select(
        NAME,
        "--faults",
        &Fault::ALL,
        |it| it.name(),
        &options.faults,
    )?;
    requirement::require_root()?;
    requirement::require_programs(
        requirement::BASE
            .into_iter()
            .chain([requirement::KEEPALIVED]),
    )?;
    let weir = requirement::find_weir(options.weir.as_deref())?;
    interrupt::install();
    let session = Session::open()?;
    let progress = Progress::new();
    let repeat = options.repeat.max(1);
    let mut rows = Vec::new();
    let mut all_runs: Vec<PairRuns> = pairs.into_iter().map(PairRuns::new).collect();
    for fault in faults {
        let is_affected = |pair_runs: &&mut PairRuns| fault.applies_to(pair_runs.pair.active);
        // The pairs take turns, so that other load on the machine affects all of them.
        for round in 0..repeat {
            for pair_runs in all_runs.iter_mut().filter(is_affected) {
                pair_runs.run(&session, &weir, (fault, round))?;
            }
        }
        for pair_runs in all_runs.iter_mut().filter(is_affected) {
            let row = pair_runs.take_row(fault);
            progress.line(&faults::line(&description(&rows), &row));
            rows.push(row);
        }
    }
    // Removes the last directors before the report is written.
    drop(all_runs);
    faults::finish(&description(&rows), &rows, &options.report, json, &progress)
}

/// A pair and the results of its runs with one fault. After a reversible fault, the next run reuses the directors,
/// because most of the start time is spent loading the data plane.
struct PairRuns {
    pair: Pair,
    rig: Option<Rig>,
    runs: Vec<probe::Measurement>,
    error: Option<String>,
}

impl PairRuns {
    fn new(pair: Pair) -> Self {
        Self {
            pair,
            rig: None,
            runs: Vec::new(),
            error: None,
        }
    }

    /// Injects a fault once, and stores the measurement or the error.
    ///
    /// # Errors
    /// Returns only [`LabError::Interrupted`].
    fn run(&mut self, session: &Session, weir: &Path, round: (Fault, u32)) -> Result<()> {
        match self.measure(session, weir, round) {
            Ok(measurement) => self.runs.push(measurement),
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(error) => self.error = Some(error.to_string()),
        }
        Ok(())
    }

    fn measure(
        &mut self,
        session: &Session,
        weir: &Path,
        (fault, round): (Fault, u32),
    ) -> Result<probe::Measurement> {
        let mut rig = match self.rig.take() {
            Some(rig) => rig,
            None => Rig::build(session, weir, self.pair)?,
        };
        let measurement = rig.measure(fault, round)?;
        // If the rig cannot be restored, the next run builds a new one.
        if fault.is_reversible() && rig.restore(fault).is_ok() {
            self.rig = Some(rig);
        }
        Ok(measurement)
    }

    fn take_row(&mut self, fault: Fault) -> Row {
        let (runs, error) = (std::mem::take(&mut self.runs), self.error.take());
        row(fault, self.pair, runs, error)
    }
}

fn row(fault: Fault, pair: Pair, runs: Vec<probe::Measurement>, error: Option<String>) -> Row {
    let mut outages: Vec<u64> = runs
        .iter()
        .map(|run| u64::try_from(run.outage.as_millis()).unwrap_or(u64::MAX))
        .collect();
    outages.sort_unstable();
    Row {
        fault: fault.name(),
        pair: pair.name,
        outage_ms: outages.get(outages.len() / 2).copied(),
        p95_ms: outages
            .get((outages.len() * 95).div_ceil(100).saturating_sub(1))
            .copied(),
        worst_ms: outages.last().copied(),
        broken: runs.iter().map(|run| run.broken).max(),
        flows: FLOWS,
        runs: runs.len(),
        error,
    }
}

impl FaultRow for Row {
    fn fault(&self) -> &str {
        self.fault
    }

    fn method(&self) -> &str {
        self.pair
    }

    fn is_base(&self) -> bool {
        !self.pair.starts_with("weir")
    }

    fn length(&self) -> f64 {
        self.outage_ms.unwrap_or(0) as f64
    }

    fn label(&self) -> Option<String> {
        let (median, p95, worst) = (self.outage_ms?, self.p95_ms?, self.worst_ms?);
        Some(format!(
            "median {median} ms, 95th percentile {p95} ms, maximum {worst} ms; {} of {} flows broken",
            self.broken.unwrap_or(0),
            self.flows
        ))
    }

    fn columns(&self) -> String {
        let broken = self
            .broken
            .map_or_else(|| "-".to_owned(), |it| format!("{it} of {}", self.flows));
        format!(
            "{:>8}  {:>8}  {:>8}  {broken:<12}",
            milliseconds(self.outage_ms),
            milliseconds(self.p95_ms),
            milliseconds(self.worst_ms)
        )
    }

    fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// Describes the experiment. A full bar is the longest median.
fn description(rows: &[Row]) -> Description<'static> {
    Description {
        name: NAME,
        summary: SUMMARY,
        headings: [("FAULT", 14), ("VRRP", 16)],
        columns: "  MEDIAN       P95     WORST  BROKEN FLOWS",
        second_bars: "",
        full_bar: rows.iter().map(FaultRow::length).fold(1.0, f64::max),
        note: "VRRP version 3, advertisements every 100 ms or 10 ms, priorities 200 and 100. In each round, \
               the fault\nhappens at the same point between two advertisements for all pairs. Outage: the longest time \
               without a response\nto a UDP client that sends once per millisecond. Flows: open TCP connections, \
               maglev, direct.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_contains_median_and_maximum() {
        let run = |outage, broken| probe::Measurement {
            outage: Duration::from_millis(outage),
            broken,
        };
        let row = row(
            Fault::Cut,
            PAIRS[1],
            vec![run(300, 0), run(100, 2), run(200, 0)],
            None,
        );
        assert_eq!(
            (row.outage_ms, row.p95_ms, row.worst_ms, row.broken),
            (Some(200), Some(300), Some(300), Some(2))
        );
        assert_eq!(
            faults::line(&description(&[]), &row),
            "cut            weir               200 ms    300 ms    300 ms  2 of 50"
        );
        assert_eq!(
            row.label().as_deref(),
            Some("median 200 ms, 95th percentile 300 ms, maximum 300 ms; 2 of 50 flows broken")
        );
    }

    #[test]
    fn one_of_twenty_runs_exceeds_the_95th_percentile() {
        let runs = (1..=20).map(|outage| probe::Measurement {
            outage: Duration::from_millis(outage),
            broken: 0,
        });
        let row = row(Fault::Cut, PAIRS[1], runs.collect(), None);
        assert_eq!((row.p95_ms, row.worst_ms), (Some(19), Some(20)));
    }
}
