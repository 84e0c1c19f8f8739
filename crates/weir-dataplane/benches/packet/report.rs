//! Computes medians and ratios. Prints the medians in tables, and the ratios with their goals.

use std::collections::BTreeMap;

/// Nanoseconds per packet, minus the floor, by case name and packet label.
pub(crate) type NetTimes = BTreeMap<(String, String), f64>;

/// One row of the table of BPF_PROG_TEST_RUN results.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) packets: String,
    pub(crate) floor: Summary,
    pub(crate) net: Summary,
    /// Fraction of packets whose entry was found; `None` if there is no lookup.
    pub(crate) hits: Option<f64>,
}

impl Row {
    /// Returns the cells as printed in the table.
    pub(crate) fn cells(&self) -> [String; 6] {
        [
            self.name.clone(),
            self.packets.clone(),
            format!("{:.0}", self.floor.median),
            format!("{:.1}", self.net.median),
            format!("{:.0}…{:.0}", self.net.min, self.net.max),
            match self.hits {
                None => "–".to_owned(),
                Some(hits) => format!("{:.1} %", hits * 100.0),
            },
        ]
    }
}

/// The per-round ratios of a Weir row to a peer row.
pub(crate) struct Comparison {
    pub(crate) weir: String,
    pub(crate) peer: String,
    pub(crate) packets: String,
    pub(crate) ratio: Summary,
}

/// Name of the Weir row, the packets of both rows, and the largest allowed ratio to the peer.
const GOALS: [(&str, &str, f64); 7] = [
    ("direct", "TCP, 1 flow", 0.40),
    ("tunnel ipip", "TCP, 1 flow", 0.60),
    ("tunnel gue, checksum", "TCP, 1 flow", 0.35),
    ("direct", "TCP, 1 M flows", 0.50),
    ("direct", "UDP, random sources", 0.40),
    ("direct, maglev", "SYN flood, random sources", 0.80),
    ("direct", "not a VIP", 0.30),
];

/// Prints the ratios with their goals.
pub(crate) fn print_ratios(measured: &[Comparison]) {
    for comparison in measured {
        let label = format!(
            "{} to {}, {}",
            comparison.weir, comparison.peer, comparison.packets
        );
        let goal = GOALS
            .iter()
            .find(|(weir, packets, _)| *weir == comparison.weir && *packets == comparison.packets);
        match goal {
            Some(&(_, _, goal)) => print_ratio(&label, comparison.ratio, goal, true),
            None => println!("{label}: {}", comparison.ratio.as_ratio()),
        }
    }
}

/// The largest number of nanoseconds that counting flows for `wlc` may add to a packet of an established flow.
const COUNTING_GOAL_NS: f64 = 15.0;

/// Prints the additional cost of `wlc` compared with a hash scheduler.
pub(crate) fn print_counting_cost(weir: &NetTimes) {
    let net_of = |name: &str, packets: &str| weir.get(&(name.to_owned(), packets.to_owned()));
    let added_ns =
        |packets: &str| Some(net_of("direct, wlc", packets)? - net_of("direct", packets)?);
    if let Some(added_ns) = added_ns("TCP, 1 flow") {
        println!(
            "wlc vs. mh, packet of an established flow: {added_ns:+.0} ns (goal: ≤ {COUNTING_GOAL_NS:.0}, {})",
            if added_ns <= COUNTING_GOAL_NS {
                "met"
            } else {
                "NOT met"
            }
        );
    }
    if let Some(added_ns) = added_ns("SYN, each makes an entry") {
        println!("wlc vs. mh, new flow, 100 servers: {added_ns:+.0} ns");
    }
}

/// Rows that measure the latency estimator, and its maximum cost per packet in nanoseconds. The first limit is for the
/// average packet at the default sampling rate under heavy traffic, the second for a packet of a sampled flow.
const ESTIMATOR_GOALS: [(&str, f64); 2] =
    [("direct, 1/64 sampled", 1.0), ("direct, all sampled", 60.0)];

/// Prints the cost of the latency estimator. Its cost when it is off is in the tables of `--stages`.
pub(crate) fn print_estimator_cost(weir: &NetTimes) {
    for packets in ["TCP, 1 flow", "TCP, 16 K flows"] {
        let net_of = |name: &str| weir.get(&(name.to_owned(), packets.to_owned()));
        for (name, goal) in ESTIMATOR_GOALS {
            if let (Some(with), Some(without)) = (net_of(name), net_of("direct")) {
                let added_ns = with - without;
                println!(
                    "{name}, {packets}: {added_ns:+.1} ns (goal: ≤ {goal:.0}, {})",
                    if added_ns <= goal { "met" } else { "NOT met" }
                );
            }
        }
    }
}

/// The largest number of nanoseconds that `[sync]` may add, by packet type. Where `[sync]` must add nothing, the limit
/// is the measurement noise.
const SYNC_GOALS: [(&str, f64); 3] = [
    ("TCP, 1 flow", 1.0),
    ("TCP, 16 K flows", 1.0),
    ("ACK, each completes a handshake", 100.0),
];

/// Prints the cost of recording changed flows for other directors.
pub(crate) fn print_sync_cost(weir: &NetTimes) {
    for (packets, goal) in SYNC_GOALS {
        let net_of = |name: &str| weir.get(&(name.to_owned(), packets.to_owned()));
        if let (Some(with), Some(without)) = (net_of("direct, sync"), net_of("direct")) {
            let added_ns = with - without;
            println!(
                "direct, sync, {packets}: {added_ns:+.1} ns (goal: ≤ {goal:.0}, {})",
                if added_ns <= goal { "met" } else { "NOT met" }
            );
        }
    }
}

/// Prints a ratio with its goal, which is a maximum if `is_maximum` is set, otherwise a minimum.
pub(crate) fn print_ratio(label: &str, ratio: Summary, goal: f64, is_maximum: bool) {
    let met = if is_maximum {
        ratio.median <= goal
    } else {
        ratio.median >= goal
    };
    println!(
        "{label}: {} (goal: {} {goal}, {})",
        ratio.as_ratio(),
        if is_maximum { "≤" } else { "≥" },
        if met { "met" } else { "NOT met" }
    );
}

/// Median, minimum and maximum of the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Returns the summary of the values, or zeros if there are none.
    pub(crate) fn from_values(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        match (values.first(), values.last()) {
            (Some(&min), Some(&max)) => Self {
                median: values[values.len() / 2],
                min,
                max,
            },
            _ => Self::default(),
        }
    }

    pub(crate) fn as_ratio(self) -> String {
        format!("{:.2} ({:.2}…{:.2})", self.median, self.min, self.max)
    }
}

/// A Markdown table that is printed row by row, because each case takes several seconds to run.
pub(crate) struct Table {
    columns: Vec<String>,
}

/// Widths of the first two columns, sufficient for most of their values.
const FIRST_WIDTHS: [usize; 2] = [27, 26];
/// Width of the other columns.
const DEFAULT_WIDTH: usize = 12;

impl Table {
    /// Returns a table with these headings.
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
        }
    }

    /// Prints the headings.
    pub(crate) fn print_header(&self) {
        self.print_row(&self.columns);
        let rules: Vec<String> = (0..self.columns.len())
            .map(|column| "-".repeat(width(column)))
            .collect();
        self.print_row(&rules);
    }

    /// Prints a row.
    pub(crate) fn print_row<S: AsRef<str>>(&self, cells: &[S]) {
        let cells: Vec<String> = cells
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("{:<1$}", cell.as_ref(), width(column)))
            .collect();
        println!("| {} |", cells.join(" | "));
    }
}

fn width(column: usize) -> usize {
    FIRST_WIDTHS.get(column).copied().unwrap_or(DEFAULT_WIDTH)
}
