//! `weir lab run director-failover`: how long a VIP is not reachable, and how many flows break, when the active one of
//! two directors fails in different ways. VRRP is keepalived's on both directors, Weir's on both, or one of each; the
//! data plane is Weir's in all cases.

mod chart;
mod fault;
mod probe;
mod rig;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::error::{LabError, Result};
use crate::experiment::RunOptions;
use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::requirement;
use crate::session::Session;
use fault::Fault;
use rig::Rig;

/// The experiment's name.
pub(crate) const NAME: &str = "director-failover";
/// What it does.
pub(crate) const SUMMARY: &str =
    "outage and broken flows when the active of two directors fails: keepalived, Weir, both";

/// How long the VIP is watched after a fault.
const WATCHED: Duration = Duration::from_secs(3);
/// Open connections.
const FLOWS: usize = 50;

/// Whose VRRP the directors run, the active one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    pub(crate) active: Vrrp,
    pub(crate) standby: Vrrp,
    /// Interval of advertisements, in hundredths of a second.
    pub(crate) interval_cs: u8,
}

/// Whose VRRP a director runs.
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

/// The medians of one fault of one pair.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    fault: &'static str,
    pair: &'static str,
    /// Median of the longest time without an answer, in milliseconds.
    outage_ms: Option<u64>,
    /// The time that 95 % of the runs do not exceed.
    p95_ms: Option<u64>,
    /// The longest one.
    worst_ms: Option<u64>,
    /// Most broken flows of a run.
    broken: Option<usize>,
    flows: usize,
    runs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the experiment, and prints the table or JSON. Returns whether all runs succeeded.
///
/// # Errors
/// Wrong options, missing root or programs; Ctrl-C.
pub(crate) fn run(options: &RunOptions, json: bool) -> Result<bool> {
    let pairs = chosen(&options.methods)?;
    let faults = chosen_faults(&options.faults)?;
    requirement::root()?;
    requirement::programs(
        requirement::BASE
            .into_iter()
            .chain([requirement::KEEPALIVED]),
    )?;
    let weir = requirement::weir(options.weir.as_deref())?;
    interrupt::install();
    let session = Session::open()?;
    let progress = Progress::new();
    let repeat = options.repeat.max(1);
    let mut rows = Vec::new();
    let mut benches: Vec<Bench> = pairs.into_iter().map(Bench::new).collect();
    for fault in faults {
        let concerned = |bench: &&mut Bench| fault.concerns(bench.pair.active);
        // In turn, so that what else the machine does affects all pairs.
        for _ in 0..repeat {
            for bench in benches.iter_mut().filter(concerned) {
                bench.run(&session, &weir, fault)?;
            }
        }
        for bench in benches.iter_mut().filter(concerned) {
            let row = bench.take_row(fault);
            progress.line(&line(&row));
            rows.push(row);
        }
    }
    // The last directors are removed before the report.
    drop(benches);
    let page = chart::write(&options.report, &rows)?;
    progress.line(&format!("report: {}", page.display()));
    if json {
        let document = serde_json::json!({ "experiment": NAME, "rows": rows });
        output::print(&format!("{document}\n"))?;
    } else {
        output::print(&table(&rows))?;
    }
    Ok(rows.iter().all(|row| row.error.is_none()))
}

/// A pair with its results of a fault. Its directors are used again where the fault is undone: loading the data plane
/// is most of the work of a start.
struct Bench {
    pair: Pair,
    rig: Option<Rig>,
    runs: Vec<probe::Measured>,
    error: Option<String>,
}

impl Bench {
    fn new(pair: Pair) -> Self {
        Self {
            pair,
            rig: None,
            runs: Vec::new(),
            error: None,
        }
    }

    /// One run. What fails is kept for the row.
    ///
    /// # Errors
    /// [`LabError::Interrupted`] alone.
    fn run(&mut self, session: &Session, weir: &Path, fault: Fault) -> Result<()> {
        match self.measure(session, weir, fault) {
            Ok(measured) => self.runs.push(measured),
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(failed) => self.error = Some(failed.to_string()),
        }
        Ok(())
    }

    fn measure(&mut self, session: &Session, weir: &Path, fault: Fault) -> Result<probe::Measured> {
        let mut rig = match self.rig.take() {
            Some(rig) => rig,
            None => Rig::build(session, weir, self.pair)?,
        };
        let measured = rig.measure(fault)?;
        // One that does not become whole again is replaced in the next run.
        if fault.is_undone() && rig.restore(fault).is_ok() {
            self.rig = Some(rig);
        }
        Ok(measured)
    }

    fn take_row(&mut self, fault: Fault) -> Row {
        let (runs, error) = (std::mem::take(&mut self.runs), self.error.take());
        row(fault, self.pair, runs, error)
    }
}

fn chosen(methods: &[String]) -> Result<Vec<Pair>> {
    let known = PAIRS.map(|pair| pair.name).join(", ");
    if let Some(wrong) = methods
        .iter()
        .find(|name| !PAIRS.iter().any(|pair| pair.name == **name))
    {
        return Err(LabError::Usage {
            option: "--methods",
            reason: format!("unknown method \"{wrong}\"; the methods of {NAME} are: {known}"),
        });
    }
    let is_chosen = |pair: &Pair| methods.is_empty() || methods.iter().any(|it| it == pair.name);
    Ok(PAIRS.into_iter().filter(is_chosen).collect())
}

fn chosen_faults(names: &[String]) -> Result<Vec<Fault>> {
    let known = Fault::ALL.map(Fault::name);
    if let Some(wrong) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(LabError::Usage {
            option: "--faults",
            reason: format!(
                "unknown fault \"{wrong}\"; the faults of {NAME} are: {}",
                known.join(", ")
            ),
        });
    }
    let is_chosen = |fault: &Fault| names.is_empty() || names.iter().any(|it| it == fault.name());
    Ok(Fault::ALL.into_iter().filter(is_chosen).collect())
}

fn row(fault: Fault, pair: Pair, runs: Vec<probe::Measured>, error: Option<String>) -> Row {
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

const HEADER: &str = "FAULT          VRRP               MEDIAN       P95     WORST  BROKEN FLOWS";

fn line(row: &Row) -> String {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it} ms"));
    let broken = row
        .broken
        .map_or_else(|| "-".to_owned(), |it| format!("{it} of {}", row.flows));
    let error = row.error.as_deref().unwrap_or_default();
    let text = format!(
        "{:<14} {:<16} {:>8}  {:>8}  {:>8}  {broken:<12}  {error}",
        row.fault,
        row.pair,
        number(row.outage_ms),
        number(row.p95_ms),
        number(row.worst_ms)
    );
    text.trim_end().to_owned()
}

fn table(rows: &[Row]) -> String {
    let mut text = format!("{HEADER}\n");
    for row in rows {
        text.push_str(&line(row));
        text.push('\n');
    }
    text.push_str(&note());
    text.push('\n');
    text
}

fn note() -> String {
    "Version 3, advertisements every 100 ms, or 10 ms, priorities 200 and 100. Outage: the longest time without an\n\
     answer to a UDP client that sends once per millisecond. Flows: open TCP connections, maglev, direct."
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_has_the_median_and_the_worst_run() {
        let run = |outage, broken| probe::Measured {
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
            line(&row),
            "cut            weir               200 ms    300 ms    300 ms  2 of 50"
        );
    }

    #[test]
    fn one_of_twenty_runs_exceeds_the_95th_percentile() {
        let runs = (1..=20).map(|outage| probe::Measured {
            outage: Duration::from_millis(outage),
            broken: 0,
        });
        let row = row(Fault::Cut, PAIRS[1], runs.collect(), None);
        assert_eq!((row.p95_ms, row.worst_ms), (Some(19), Some(20)));
    }

    #[test]
    fn wrong_pair_is_a_usage_error() {
        assert!(chosen(&["frr".to_owned()]).is_err());
        assert_eq!(
            chosen(&["mixed".to_owned()]).map(|it| it.len()).ok(),
            Some(1)
        );
        assert_eq!(chosen(&[]).map(|it| it.len()).ok(), Some(5));
    }
}
