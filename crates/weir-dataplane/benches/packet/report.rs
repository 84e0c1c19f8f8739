//! Medians, tables and ratios with their goals.

use std::collections::BTreeMap;

/// Net nanoseconds by way of forwarding and packets, as the rows call them.
pub(crate) type Nets = BTreeMap<(String, String), f64>;

/// A row of Weir's, the peer's row that it is compared with, the packets of both, and the most that the ratio may be.
const GOALS: [(&str, &str, &str, f64); 7] = [
    ("direct", "katran ipip", "TCP, 1 flow", 0.50),
    ("tunnel ipip", "katran ipip", "TCP, 1 flow", 0.70),
    ("tunnel gue, checksum", "katran gue", "TCP, 1 flow", 0.50),
    ("direct", "katran ipip", "TCP, 1 M flows", 0.65),
    ("direct", "katran ipip", "UDP, random sources", 0.50),
    ("direct", "katran ipip", "SYN flood, random sources", 1.0),
    ("direct", "katran ipip", "not a VIP", 0.60),
];

/// Prints the ratios to the peer whose both sides were measured.
pub(crate) fn ratios(own: &Nets, peer: &Nets) {
    for (name, other, packets, goal) in GOALS {
        let of =
            |nets: &Nets, name: &str| nets.get(&(name.to_owned(), packets.to_owned())).copied();
        if let (Some(own), Some(peer)) = (of(own, name), of(peer, other)) {
            ratio(
                &format!("{name} to {other}, {packets}"),
                own / peer,
                goal,
                true,
            );
        }
    }
}

/// The most that counting flows for `wlc` may add to an established packet, nanoseconds.
const COUNTING: f64 = 15.0;

/// Prints what `wlc` adds to what a hash scheduler takes.
pub(crate) fn counting(own: &Nets) {
    let of = |name: &str, packets: &str| own.get(&(name.to_owned(), packets.to_owned()));
    let adds = |packets: &str| Some(of("direct, wlc", packets)? - of("direct", packets)?);
    if let Some(adds) = adds("TCP, 1 flow") {
        println!(
            "wlc to mh, an established packet: {adds:+.0} ns (goal: ≤ {COUNTING:.0}, {})",
            if adds <= COUNTING { "met" } else { "NOT met" }
        );
    }
    if let Some(adds) = adds("SYN, each makes an entry") {
        println!("wlc to mh, a new flow among 100 servers: {adds:+.0} ns");
    }
}

/// Prints a ratio beside its goal, which is the most or the least that it may be.
pub(crate) fn ratio(what: &str, ratio: f64, goal: f64, most: bool) {
    let met = if most { ratio <= goal } else { ratio >= goal };
    println!(
        "{what}: {ratio:.2} (goal: {} {goal}, {})",
        if most { "≤" } else { "≥" },
        if met { "met" } else { "NOT met" }
    );
}

/// The middle and the ends of what rounds gave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of at least one value; of none, zeros.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        match (values.first(), values.last()) {
            (Some(&least), Some(&most)) => Self {
                median: values[values.len() / 2],
                least,
                most,
            },
            _ => Self::default(),
        }
    }
}

/// A Markdown table, printed row by row: cases take seconds.
pub(crate) struct Table {
    columns: Vec<String>,
}

/// Columns are at least as wide as most of their values.
const WIDTHS: [usize; 2] = [27, 26];
const WIDTH: usize = 12;

impl Table {
    /// With these headings.
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
        }
    }

    /// Prints the headings.
    pub(crate) fn head(&self) {
        self.row(&self.columns);
        let rules: Vec<String> = (0..self.columns.len())
            .map(|column| "-".repeat(width(column)))
            .collect();
        self.row(&rules);
    }

    /// Prints a row.
    pub(crate) fn row<S: AsRef<str>>(&self, cells: &[S]) {
        let cells: Vec<String> = cells
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("{:<1$}", cell.as_ref(), width(column)))
            .collect();
        println!("| {} |", cells.join(" | "));
    }
}

fn width(column: usize) -> usize {
    WIDTHS.get(column).copied().unwrap_or(WIDTH)
}
