//! Writes the latency part of a report: table columns, JSON fields, and a chart of the distribution.
//!
//! The chart's horizontal axis is logarithmic in nines: the first 90 % of the requests take as much width as the next
//! 9 %. On a linear axis, the cost of a reload would be invisible, because it affects only the slowest of ten thousand
//! requests.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::axis::{self, Axis, BOTTOM, LEFT, RIGHT, TOP, WIDTH};
use super::html::escape;
use super::{Report, Row};
use crate::latency::{Latency, TABLE_QUANTILES};

/// Latency results of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    /// The distribution of request latencies.
    pub latency: Latency,
    /// Duration of each disturbance, in milliseconds. Empty for an undisturbed run.
    pub disturbances: Vec<f64>,
    /// Number of disturbances that the balancer rejected.
    pub refused: u64,
}

/// `{"latency_ms": {"50": 1.2, …, "100": 9.0}, "disturbances": 12, "disturbance_ms": 3.5, "refused": 0}`
impl Serialize for Timing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let quantiles: serde_json::Map<String, serde_json::Value> = TABLE_QUANTILES
            .iter()
            .map(|quantile| {
                (
                    percent(*quantile),
                    self.latency.quantile_ms(*quantile).into(),
                )
            })
            .collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("latency_ms", &quantiles)?;
        map.serialize_entry("disturbances", &self.disturbances.len())?;
        map.serialize_entry("disturbance_ms", &self.median())?;
        map.serialize_entry("refused", &self.refused)?;
        map.end()
    }
}

impl Timing {
    /// Returns the median duration of a disturbance, in milliseconds (the lower of two middle values).
    fn median(&self) -> Option<f64> {
        let mut sorted = self.disturbances.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) / 2).copied()
    }
}

/// Formats a quantile as a percentage: `99.99` for 0.9999.
fn percent(quantile: f64) -> String {
    // Round, because 0.9999 * 100 is not exact.
    format!("{}", (quantile * 1e8).round() / 1e6)
}

/// Returns the column titles.
pub(super) fn titles(report: &Report) -> Vec<String> {
    let mut titles = vec!["requests/s".to_owned(), "failed".to_owned()];
    titles.extend(
        TABLE_QUANTILES
            .iter()
            .map(|quantile| format!("{}% ms", percent(*quantile))),
    );
    if report.has_shares() {
        titles.push("slow share %".to_owned());
    } else {
        titles.extend(["changes", "change ms", "refused"].map(str::to_owned));
    }
    titles
}

/// Returns a row's values in these columns; an undisturbed run has dashes for its disturbances.
pub(super) fn cells(row: &Row) -> Vec<String> {
    let mut cells = vec![
        format!("{:.1}", row.requests_per_second),
        row.failed.to_string(),
    ];
    let Some(timing) = &row.timing else {
        return cells;
    };
    cells.extend(
        TABLE_QUANTILES
            .iter()
            .map(|quantile| format!("{:.2}", timing.latency.quantile_ms(*quantile))),
    );
    if let Some(shares) = &row.shares {
        cells.push(format!("{:.1}", shares.mean * 100.0));
        return cells;
    }
    match timing.median() {
        None if timing.refused == 0 => cells.extend(["–"; 3].map(str::to_owned)),
        median => cells.extend([
            timing.disturbances.len().to_string(),
            median.map_or("–".to_owned(), |median| format!("{median:.1}")),
            timing.refused.to_string(),
        ]),
    }
    cells
}

const HEIGHT: f64 = 260.0;
/// Number of nines at which the axis ends. The slowest request is drawn there.
const NINES: f64 = 5.0;
/// Limits of the vertical axis, in milliseconds.
const MIN_MS: f64 = 0.1;
const MAX_MS: f64 = 10_000.0;

fn nines(quantile: f64) -> f64 {
    let slowest = (1.0 - quantile).max(0.0);
    if slowest < 1e-9 {
        return NINES;
    }
    (-slowest.log10()).clamp(0.0, NINES)
}

fn x(quantile: f64) -> f64 {
    LEFT + nines(quantile) / NINES * (WIDTH - LEFT - RIGHT)
}

fn y(milliseconds: f64) -> f64 {
    let value = milliseconds.clamp(MIN_MS, MAX_MS);
    let fraction = (value / MIN_MS).log10() / (MAX_MS / MIN_MS).log10();
    HEIGHT - BOTTOM - fraction * (HEIGHT - TOP - BOTTOM)
}

/// Draws the distributions of a method's runs in one chart, one line per run.
pub(super) fn chart(method: &str, rows: &[&Row]) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: latency by share of requests\">\n",
        escape(method)
    );
    axes(&mut svg);
    for row in rows {
        let Some(timing) = &row.timing else {
            continue;
        };
        let workload = row.workload().unwrap_or_default();
        let points = timing.latency.points().iter();
        let points = points.map(|(quantile, milliseconds)| (x(*quantile), y(*milliseconds)));
        axis::line(&mut svg, class(workload), workload, points);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the class of a line. Runs with persistent connections have a different color.
pub(super) fn class(workload: &str) -> &'static str {
    match workload {
        "quiet" => "s1",
        "disturbed" => "director",
        "keep-alive-quiet" => "client",
        _ => "receive",
    }
}

fn axes(svg: &mut String) {
    let quantiles = [
        (0.0, "0"),
        (0.9, "90"),
        (0.99, "99"),
        (0.999, "99.9"),
        (0.9999, "99.99"),
        (1.0, "all"),
    ];
    let milliseconds = [0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0];
    let horizontal = Axis {
        ticks: quantiles
            .map(|(quantile, label)| (x(quantile), label.to_owned()))
            .into(),
        title: "percent of the requests",
    };
    let vertical = Axis {
        ticks: milliseconds
            .map(|milliseconds| (y(milliseconds), milliseconds.to_string()))
            .into(),
        title: "milliseconds or less",
    };
    axis::draw(svg, HEIGHT, &horizontal, &vertical);
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn quantiles_are_written_as_percent() {
        assert_eq!(
            TABLE_QUANTILES.map(percent),
            ["50", "95", "99", "99.99", "100"]
        );
    }

    #[test]
    fn nines_have_equal_width_and_values_stay_inside_the_chart() {
        let width = x(0.9) - x(0.0);
        assert!((x(0.999) - x(0.99) - width).abs() < 1e-6);
        assert_eq!(x(1.0), WIDTH - RIGHT);
        assert_eq!((y(0.0), y(1e9)), (HEIGHT - BOTTOM, TOP));
    }

    #[test]
    fn undisturbed_row_shows_dashes_and_fully_rejected_row_does_not() {
        let quiet = example::timed_row("proxy/quiet", &[]);
        let cells = |row: &Row| super::cells(row).split_off(7);
        assert_eq!(cells(&quiet), ["–", "–", "–"]);
        assert_eq!(
            cells(&example::timed_row("proxy/disturbed", &[4.0, 2.0, 9.0])),
            ["3", "4.0", "0"]
        );
        let mut refused = example::timed_row("haproxy/disturbed", &[]);
        refused.timing.as_mut().expect("timed").refused = 2;
        assert_eq!(cells(&refused), ["0", "–", "2"]);
        assert_eq!(
            titles(&example::timed_report()).len(),
            super::cells(&quiet).len()
        );
    }
}
