//! `weir lab run scale-out`: a group of directors behind a router with equal-cost paths. Directors are added, drained,
//! killed and cut off, servers change, and etcd loses its majority, while connections are open and carry data: how many
//! of them break, and how long is a flow not answered? Stateless rules of nftables are the peer.

mod chart;
mod director;
mod event;
mod probe;
mod rig;

use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Serialize;

use crate::error::{LabError, Result};
use crate::experiment::RunOptions;
use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::requirement;
use crate::session::Session;
use event::Event;
use probe::Measured;
use rig::Rig;

/// The experiment's name.
pub(crate) const NAME: &str = "scale-out";
/// What it does.
pub(crate) const SUMMARY: &str =
    "broken connections when directors behind ECMP, or their servers, change: nftables, Weir";

const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const DIRECTORS: u8 = 4;
/// Open connections.
const CONNECTIONS: u32 = 400;

/// How directors select a server, and what they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    pub(crate) balancer: Balancer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Balancer {
    /// Stateless rules of nftables.
    Rules,
    /// Weir with `maglev`, in a group.
    Weir {
        /// Under `tunnel` with GUE and its second hop, otherwise `direct`.
        tunnel: bool,
        /// Whether the directors synchronize flows.
        has_sync: bool,
    },
}

const METHODS: [Method; 4] = [
    Method {
        name: "nftables",
        balancer: Balancer::Rules,
    },
    Method {
        name: "direct",
        balancer: Balancer::Weir {
            tunnel: false,
            has_sync: false,
        },
    },
    Method {
        name: "direct-sync",
        balancer: Balancer::Weir {
            tunnel: false,
            has_sync: true,
        },
    },
    Method {
        name: "tunnel-gue",
        balancer: Balancer::Weir {
            tunnel: true,
            has_sync: false,
        },
    },
];

/// The result of one event with one method.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    event: &'static str,
    method: &'static str,
    directors: u8,
    connections: u32,
    /// Median of the runs, and the worst one.
    broken: Option<usize>,
    worst_broken: Option<usize>,
    /// Median of the longest time without an answer on a flow of datagrams, in milliseconds, and the worst one.
    outage_ms: Option<u64>,
    worst_outage_ms: Option<u64>,
    runs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the experiment, and prints the table or JSON. Returns whether all runs succeeded.
///
/// # Errors
/// Wrong options, missing root or programs; Ctrl-C.
pub(crate) fn run(options: &RunOptions, json: bool) -> Result<bool> {
    let methods = chosen("--methods", &METHODS, |it| it.name, &options.methods)?;
    let events = chosen("--faults", &Event::ALL, |it| it.name(), &options.faults)?;
    requirement::root()?;
    requirement::programs(requirement::BASE.into_iter().chain(requirement::SCALE_OUT))?;
    let weir = requirement::weir(options.weir.as_deref())?;
    interrupt::install();
    allow_many_sockets();
    let session = Session::open()?;
    let progress = Progress::new();
    let directors = options.directors.unwrap_or(DIRECTORS);
    let connections = options.concurrency.unwrap_or(CONNECTIONS);
    let mut rows = Vec::new();
    for event in events {
        for method in &methods {
            if event.needs_etcd() && method.balancer == Balancer::Rules {
                continue;
            }
            let (mut runs, mut error) = (Vec::new(), None);
            for _ in 0..options.repeat.max(1) {
                let rig = Rig::build(&session, &weir, *method, directors);
                let count = usize::try_from(connections).unwrap_or(usize::MAX);
                match rig.and_then(|mut rig| rig.measure(event, count)) {
                    Ok(measured) => runs.push(measured),
                    Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                    Err(failed) => error = Some(failed.to_string()),
                }
            }
            let row = row((event, *method), (directors, connections), &runs, error);
            progress.line(&line(&row));
            rows.push(row);
        }
    }
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

/// Client and servers are in this process: each connection needs two sockets.
fn allow_many_sockets() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // A run with few connections succeeds without it, and others report the failed socket.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// The entries with these names; no names = all.
fn chosen<T: Copy>(
    option: &'static str,
    all: &[T],
    name: impl Fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<T>> {
    let known: Vec<&str> = all.iter().map(&name).collect();
    if let Some(wrong) = names.iter().find(|it| !known.contains(&it.as_str())) {
        return Err(LabError::Usage {
            option,
            reason: format!("unknown name \"{wrong}\"; {NAME} has: {}", known.join(", ")),
        });
    }
    let is_chosen = |it: &&T| names.is_empty() || names.iter().any(|one| one == name(it));
    Ok(all.iter().filter(is_chosen).copied().collect())
}

fn row(
    (event, method): (Event, Method),
    (directors, connections): (u8, u32),
    runs: &[Measured],
    error: Option<String>,
) -> Row {
    let mut broken: Vec<usize> = runs.iter().map(|run| run.broken).collect();
    let mut outages: Vec<u64> = runs.iter().map(|run| milliseconds(run.outage)).collect();
    broken.sort_unstable();
    outages.sort_unstable();
    Row {
        event: event.name(),
        method: method.name,
        directors,
        connections,
        broken: broken.get(broken.len() / 2).copied(),
        worst_broken: broken.last().copied(),
        outage_ms: outages.get(outages.len() / 2).copied(),
        worst_outage_ms: outages.last().copied(),
        runs: runs.len(),
        error,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

const HEADER: &str =
    "EVENT                          METHOD          BROKEN     WORST    OUTAGE     WORST";

fn line(row: &Row) -> String {
    let count = |value: Option<usize>| value.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let time = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it} ms"));
    let error = row.error.as_deref().unwrap_or_default();
    let text = format!(
        "{:<30} {:<12} {:>9} {:>9} {:>9} {:>9}  {error}",
        row.event,
        row.method,
        count(row.broken),
        count(row.worst_broken),
        time(row.outage_ms),
        time(row.worst_outage_ms),
    );
    text.trim_end().to_owned()
}

fn table(rows: &[Row]) -> String {
    let mut text = format!("{HEADER}\n");
    for row in rows {
        text.push_str(&line(row));
        text.push('\n');
    }
    if let Some(row) = rows.first() {
        text.push_str(&note(row));
        text.push('\n');
    }
    text
}

fn note(row: &Row) -> String {
    format!(
        "{} directors, {} connections of which BROKEN do not continue, and 32 flows of datagrams: OUTAGE is the \
         longest\ntime without an answer on one of them. BFD at 300 ms x 3. nftables: jhash modulo the number of \
         servers, no state.",
        row.directors, row.connections
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_has_the_medians_and_the_worst_runs() {
        let run = |outage, broken| Measured {
            outage: Duration::from_millis(outage),
            broken,
        };
        let runs = [run(30, 0), run(900, 7), run(40, 1)];
        let of = (Event::DirectorCut, METHODS[1]);
        let row = row(of, (4, 400), &runs, None);
        assert_eq!(
            (row.broken, row.worst_broken, row.outage_ms, row.runs),
            (Some(1), Some(7), Some(40), 3)
        );
        assert_eq!(
            line(&row),
            "director-cut                   direct               1         7     40 ms    900 ms"
        );
    }

    #[test]
    fn names_select_methods_and_events() {
        let methods = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&it| it.to_owned()).collect();
            chosen("--methods", &METHODS, |it| it.name, &names)
        };
        assert_eq!(methods(&[]).map(|it| it.len()).ok(), Some(4));
        assert_eq!(methods(&["tunnel-gue"]).map(|it| it.len()).ok(), Some(1));
        assert!(methods(&["tunnel-gue", "haproxy"]).is_err());
    }
}
