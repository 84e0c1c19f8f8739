//! Implements `weir lab run clustered-rest --pacemaker`, the fourth field report's cluster with Corosync and Pacemaker.
//!
//! The VIP and Weir are on one node, and the application is on the other nodes. The active node fails while clients
//! send requests.
//!
//! There are three nodes because the application must not run on the director, and because one node fails.

mod cib;
mod cluster;
mod load;

use std::time::Duration;

use serde::Serialize;

use crate::error::{LabError, Result};
use crate::experiment::RunOptions;
use crate::interrupt::{self, wait_for};
use crate::output;
use crate::progress::Progress;
use crate::requirement;
use crate::session::Session;
use cluster::Cluster;

/// The experiment with the option `--pacemaker`.
pub(crate) const EXPERIMENT: &str = "clustered-rest";

/// Maximum time for another node to take over.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(60);
/// Duration of the load before and after the fault.
const LOAD_BEFORE: Duration = Duration::from_secs(1);
const LOAD_AFTER: Duration = Duration::from_secs(3);

/// The faults of the active node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The node is put in standby, which moves its resources to another node.
    Standby,
    /// The node's link is brought down, and all its processes are killed.
    Kill,
}

impl Fault {
    const ALL: [Self; 2] = [Self::Standby, Self::Kill];

    const fn name(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::Kill => "kill",
        }
    }
}

/// The results of all runs of a fault.
#[derive(Clone, Debug, Serialize)]
struct Row {
    fault: &'static str,
    /// Median of the longest time without a response, in milliseconds.
    outage_ms: Option<u64>,
    /// Maximum of that time, in milliseconds.
    worst_ms: Option<u64>,
    requests: u64,
    /// Requests that were refused, were reset, or received no response within 500 ms.
    failed: u64,
    runs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the experiment and prints the table or JSON. Returns whether all runs succeeded.
///
/// # Errors
/// Fails if the caller is not root, if programs are missing, or after Ctrl-C.
pub(crate) fn run(options: &RunOptions, json: bool) -> Result<bool> {
    let faults = select_faults(&options.faults)?;
    requirement::require_root()?;
    requirement::require_programs(requirement::BASE.into_iter().chain(requirement::PACEMAKER))?;
    let weir = requirement::find_weir(options.weir.as_deref())?;
    interrupt::install();
    let session = Session::open()?;
    let progress = Progress::new();
    let mut rows = Vec::new();
    for fault in faults {
        let (mut runs, mut error) = (Vec::new(), None);
        for _ in 0..options.repeat.max(1) {
            let cluster = Cluster::start(&session, &weir);
            match cluster.and_then(|mut cluster| measure(&mut cluster, fault)) {
                Ok(measured) => runs.push(measured),
                Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                Err(failure) => error = Some(failure.to_string()),
            }
        }
        let row = row(fault, &runs, error);
        progress.line(&line(&row));
        rows.push(row);
    }
    if json {
        let document = serde_json::json!({ "experiment": EXPERIMENT, "pacemaker": rows });
        output::print(&format!("{document}\n"))?;
    } else {
        output::print(&table(&rows))?;
    }
    Ok(rows.iter().all(|row| row.error.is_none()))
}

fn select_faults(names: &[String]) -> Result<Vec<Fault>> {
    let fault_names = Fault::ALL.map(Fault::name);
    if let Some(unknown) = names
        .iter()
        .find(|name| !fault_names.contains(&name.as_str()))
    {
        return Err(LabError::Usage {
            option: "--faults",
            reason: format!(
                "unknown fault \"{unknown}\"; the faults with --pacemaker are: {}",
                fault_names.join(", ")
            ),
        });
    }
    let is_selected = |fault: &Fault| names.is_empty() || names.iter().any(|it| it == fault.name());
    Ok(Fault::ALL.into_iter().filter(is_selected).collect())
}

fn measure(cluster: &mut Cluster, fault: Fault) -> Result<load::Measurement> {
    let no_active_node = || {
        let not_found = std::io::Error::from(std::io::ErrorKind::NotFound);
        LabError::file("the node with the VIP")(not_found)
    };
    let active = cluster.node_with_vip().ok_or_else(no_active_node)?;
    let client = std::sync::Arc::clone(&cluster.client);
    load::measure(&client, || {
        std::thread::sleep(LOAD_BEFORE);
        match fault {
            Fault::Standby => cluster.put_in_standby(active)?,
            Fault::Kill => cluster.kill(active)?,
        }
        let find_new_node = || Ok(cluster.node_with_vip().filter(|it| *it != active));
        wait_for(
            "another active node",
            TAKEOVER_TIMEOUT,
            find_new_node,
            String::new,
        )?;
        // Of the two remaining nodes, one is the director and the other runs the application.
        cluster.wait_for_service(1)?;
        std::thread::sleep(LOAD_AFTER);
        Ok(())
    })
}

fn row(fault: Fault, runs: &[load::Measurement], error: Option<String>) -> Row {
    let milliseconds =
        |it: &load::Measurement| u64::try_from(it.outage.as_millis()).unwrap_or(u64::MAX);
    let mut outages: Vec<u64> = runs.iter().map(milliseconds).collect();
    outages.sort_unstable();
    Row {
        fault: fault.name(),
        outage_ms: outages.get(outages.len() / 2).copied(),
        worst_ms: outages.last().copied(),
        requests: runs.iter().map(|it| it.requests).sum(),
        failed: runs.iter().map(|it| it.failed).sum(),
        runs: runs.len(),
        error,
    }
}

const HEADER: &str = "FAULT      OUTAGE     WORST  REQUESTS  FAILED";

fn line(row: &Row) -> String {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it} ms"));
    let text = format!(
        "{:<8} {:>8}  {:>8}  {:>8}  {:>6}  {}",
        row.fault,
        number(row.outage_ms),
        number(row.worst_ms),
        row.requests,
        row.failed,
        row.error.as_deref().unwrap_or_default()
    );
    text.trim_end().to_owned()
}

fn table(rows: &[Row]) -> String {
    let lines: String = rows.iter().map(|row| line(row) + "\n").collect();
    format!(
        "{HEADER}\n{lines}Three nodes, token 1 s, no fencing. Outage: the longest time without a response to eight \
         clients.\nstandby: the resources are moved one after another. kill: the link is \
         brought down, and all processes are killed.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_contains_median_and_all_failures() {
        let run = |ms, failed| load::Measurement {
            outage: Duration::from_millis(ms),
            requests: 100,
            failed,
        };
        let row = row(
            Fault::Kill,
            &[run(3000, 4), run(1000, 2), run(2000, 0)],
            None,
        );
        assert_eq!((row.outage_ms, row.worst_ms), (Some(2000), Some(3000)));
        assert_eq!((row.requests, row.failed, row.runs), (300, 6, 3));
        assert_eq!(line(&row), "kill      2000 ms   3000 ms       300       6");
    }

    #[test]
    fn unknown_fault_is_usage_error() {
        assert!(select_faults(&["cut".to_owned()]).is_err());
        assert_eq!(
            select_faults(&["kill".to_owned()]).ok(),
            Some(vec![Fault::Kill])
        );
    }
}
