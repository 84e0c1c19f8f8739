//! Implements `weir lab run scale-out`, which measures changes to a group of directors behind an ECMP router.
//!
//! The results are how many connections break, and how long a flow receives no response. Directors are added, drained,
//! killed and cut off, servers change, etcd loses its majority, and directors have different builds or versions of the
//! configuration, while connections are open and carry data. The peer is a set of stateless nftables rules. Also
//! measures the CPU time of each director's BPF programs per packet.

mod cost;
mod director;
mod event;
mod goal;
mod probe;
mod rig;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::error::{LabError, Result};
use crate::experiment::RunOptions;
use crate::interrupt;
use crate::progress::Progress;
use crate::report::faults::{self, Description, FaultRow, milliseconds, select};
use crate::requirement;
use crate::session::Session;
use cost::Cost;
use director::Programs;
use event::Event;
use probe::Measurement;
use rig::Rig;

/// The experiment's name.
pub(crate) const NAME: &str = "scale-out";
/// The experiment's summary.
pub(crate) const SUMMARY: &str =
    "broken connections when directors behind ECMP or their servers change: nftables, Weir";

const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const DIRECTORS: u8 = 4;
/// Number of open connections.
const CONNECTIONS: u32 = 400;
/// Number of open files in addition to those of the connections.
const OTHER_FILES: u64 = 200;

/// How the directors select servers, and what they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    pub(crate) balancer: Balancer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Balancer {
    /// Stateless nftables rules.
    Rules,
    /// Weir with `maglev`, in a group.
    Weir {
        /// Whether the method is `tunnel` with GUE and its second hop; otherwise it is `direct`.
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
    /// Number of broken connections: median and maximum of the runs.
    broken: Option<usize>,
    worst_broken: Option<usize>,
    /// Longest time without a response on a flow of datagrams, in milliseconds: median and maximum of the runs.
    outage_ms: Option<u64>,
    worst_outage_ms: Option<u64>,
    /// Time until the router has the expected paths, in milliseconds: median and maximum of the runs.
    route_ms: Option<u64>,
    worst_route_ms: Option<u64>,
    /// Maximum number of broken connections in a run that the goal permits.
    goal: Option<u64>,
    /// Mean CPU time of the directors' programs per client packet, in nanoseconds; `None` = unknown.
    ns_per_packet: Option<u64>,
    /// The same for each director.
    costs: Vec<Cost>,
    runs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the experiment and prints the table or JSON. Returns whether all runs succeeded.
///
/// # Errors
/// Fails if an option is wrong, without root, if programs are missing, and after Ctrl-C.
pub(crate) fn run(options: &RunOptions, json: bool) -> Result<bool> {
    let methods = select(NAME, "--methods", &METHODS, |it| it.name, &options.methods)?;
    let events = select(
        NAME,
        "--faults",
        &Event::ALL,
        |it| it.name(),
        &options.faults,
    )?;
    requirement::require_root()?;
    requirement::require_programs(requirement::BASE.into_iter().chain(requirement::SCALE_OUT))?;
    let weir = requirement::find_weir(options.weir.as_deref())?;
    interrupt::install();
    let session = Session::open()?;
    let second = second_program(options, &events, &weir, &session)?;
    let programs = Programs {
        tested: &weir,
        second: &second,
    };
    let progress = Progress::new();
    let directors = options.directors.unwrap_or(DIRECTORS);
    let connections = options.concurrency.unwrap_or(CONNECTIONS);
    allow_many_sockets(connections)?;
    let note = note(directors, connections);
    let description = description(&note);
    let mut rows = Vec::new();
    for event in events {
        for method in &methods {
            if event.needs_group() && method.balancer == Balancer::Rules {
                continue;
            }
            let (mut runs, mut error) = (Vec::new(), None);
            for _ in 0..options.repeat.max(1) {
                let rig = Rig::build(&session, programs, (event, *method), directors);
                let count = usize::try_from(connections).unwrap_or(usize::MAX);
                match rig.and_then(|mut rig| rig.measure(count)) {
                    Ok(measurement) => runs.push(measurement),
                    Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                    Err(failure) => error = Some(failure.to_string()),
                }
            }
            let row = row((event, *method), (directors, connections), &runs, error);
            progress.line(&faults::line(&description, &row));
            rows.push(row);
        }
    }
    faults::finish(&description, &rows, &options.report, json, &progress)
}

/// Returns the program of the second build: the specified one or, if one of the events needs it, a copy of the program
/// under test, because `weir upgrade` to the same file replaces fewer processes. Otherwise returns the program itself.
fn second_program(
    options: &RunOptions,
    events: &[Event],
    weir: &Path,
    session: &Session,
) -> Result<PathBuf> {
    if let Some(path) = &options.second_weir {
        return std::fs::canonicalize(path).map_err(LabError::file(path));
    }
    if !events.iter().any(|it| it.needs_second_build()) {
        return Ok(weir.to_owned());
    }
    let path = session.directory("second")?.join("weir");
    std::fs::copy(weir, &path).map_err(LabError::file(&path))?;
    Ok(path)
}

/// Raises the open-file limit. The client and the servers are in this process, so each connection needs two sockets.
fn allow_many_sockets(connections: u32) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed_files = 2 * u64::from(connections) + OTHER_FILES;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let set = |limit: Option<u64>| {
        let limit = Rlimit {
            current: limit,
            maximum: limit,
        };
        setrlimit(Resource::Nofile, limit).is_ok()
    };
    if set(maximum.map(|it| it.max(needed_files))) {
        return Ok(());
    }
    // Raising the soft limit to the maximum requires no privilege.
    let _ = set(maximum);
    let maximum = maximum.unwrap_or(u64::MAX);
    if needed_files <= maximum {
        return Ok(());
    }
    Err(LabError::Usage {
        option: "--concurrency",
        reason: format!(
            "{connections} connections need {needed_files} open files, but the limit is {maximum} (see `ulimit -Hn` \
             and /proc/sys/fs/nr_open)"
        ),
    })
}

fn row(
    (event, method): (Event, Method),
    (directors, connections): (u8, u32),
    runs: &[Measurement],
    error: Option<String>,
) -> Row {
    let mut broken: Vec<usize> = runs.iter().map(|run| run.broken).collect();
    let in_milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let outages = runs.iter().map(|run| in_milliseconds(run.outage));
    let mut outages: Vec<u64> = outages.collect();
    let routes = runs.iter().filter_map(|run| run.route);
    let mut routes: Vec<u64> = routes.map(in_milliseconds).collect();
    let costs = cost::sums(runs.iter().flat_map(|run| &run.costs));
    broken.sort_unstable();
    outages.sort_unstable();
    routes.sort_unstable();
    Row {
        event: event.name(),
        method: method.name,
        directors,
        connections,
        broken: broken.get(broken.len() / 2).copied(),
        worst_broken: broken.last().copied(),
        outage_ms: outages.get(outages.len() / 2).copied(),
        worst_outage_ms: outages.last().copied(),
        route_ms: routes.get(routes.len() / 2).copied(),
        worst_route_ms: routes.last().copied(),
        goal: goal::max_broken(event, method, directors, connections),
        ns_per_packet: cost::mean_ns(&costs),
        costs,
        runs: runs.len(),
        error,
    }
}

impl FaultRow for Row {
    fn fault(&self) -> &str {
        self.event
    }

    fn method(&self) -> &str {
        self.method
    }

    fn is_base(&self) -> bool {
        self.method == METHODS[0].name
    }

    fn length(&self) -> f64 {
        self.broken.unwrap_or(0) as f64 / f64::from(self.connections.max(1))
    }

    fn label(&self) -> Option<String> {
        let (broken, median, worst) = (self.broken?, self.outage_ms?, self.worst_outage_ms?);
        let goal = self.goal.map(|it| format!(", goal {it}"));
        let route = self.route_ms.map(|it| format!("; route after {it} ms"));
        Some(format!(
            "{broken} of {} connections broken{}; {median} ms without a response, at most {worst} ms{}",
            self.connections,
            goal.unwrap_or_default(),
            route.unwrap_or_default()
        ))
    }

    fn second_bar(&self) -> Option<(f64, String)> {
        let mean = self.ns_per_packet?;
        let directors: Vec<String> = self.costs.iter().map(Cost::text).collect();
        let text = format!("{mean} ns ({})", directors.join(", "));
        Some((mean as f64, text))
    }

    fn columns(&self) -> String {
        let count = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let broken = |value: Option<usize>| count(value.map(|it| it as u64));
        format!(
            "{:>7} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>7}",
            broken(self.broken),
            broken(self.worst_broken),
            count(self.goal),
            milliseconds(self.outage_ms),
            milliseconds(self.worst_outage_ms),
            milliseconds(self.route_ms),
            milliseconds(self.worst_route_ms),
            count(self.ns_per_packet),
        )
    }

    fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// Describes the experiment. A full bar is all connections.
const fn description(note: &str) -> Description<'_> {
    Description {
        name: NAME,
        summary: SUMMARY,
        headings: [("EVENT", 30), ("METHOD", 12)],
        columns: " BROKEN   WORST    GOAL    OUTAGE     WORST     ROUTE     WORST  NS/PKT",
        full_bar: 1.0,
        second_bars: "CPU time of the BPF programs per client packet: mean, and each director",
        note,
    }
}

fn note(directors: u8, connections: u32) -> String {
    format!(
        "{directors} directors, {connections} connections and 32 UDP flows. BROKEN is the number of connections that \
         do not continue.\nOUTAGE is the longest time without a response on a UDP flow. ROUTE is the time until the \
         router has exactly the\nexpected paths, with BFD at 300 ms x 3. GOAL is the maximum number of broken \
         connections; for tables: changed\nslots x moved flows x 1.1. NS/PKT is the CPU time of the directors' BPF \
         programs per client packet,\nfrom the kernel's run-time statistics; it excludes the driver, the socket \
         buffer and sending. nftables: jhash\nmodulo the number of servers, no state."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_contains_medians_and_maxima() {
        let run = |outage, broken| Measurement {
            outage: Duration::from_millis(outage),
            route: Some(Duration::from_millis(outage / 10)),
            broken,
            costs: Cost::new("d1", "tested", 100, outage * 1000)
                .into_iter()
                .collect(),
        };
        let runs = [run(30, 0), run(900, 7), run(40, 1)];
        let event_and_method = (Event::DirectorCut, METHODS[1]);
        let row = row(event_and_method, (4, 400), &runs, None);
        assert_eq!(
            (row.broken, row.worst_broken, row.outage_ms, row.runs),
            (Some(1), Some(7), Some(40), 3)
        );
        assert_eq!(
            faults::line(&description(""), &row),
            "director-cut                   direct             1       7       0     40 ms    900 ms      4 ms     \
             90 ms    3233"
        );
        assert_eq!(
            row.label().as_deref(),
            Some(
                "1 of 400 connections broken, goal 0; 40 ms without a response, at most 900 ms; route after 4 ms"
            )
        );
        assert!((row.length() - 1.0 / 400.0).abs() < 1e-9);
        let second_bar = row.second_bar();
        assert_eq!(
            second_bar.map(|it| it.1).as_deref(),
            Some("3233 ns (d1 3233)")
        );
    }
}
