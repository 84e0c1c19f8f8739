//! Draws the chart of the slow server's share over time, with the runs of one method in sequence.

use std::fmt::Write as _;

use super::Row;
use super::axis::{self, Axis, BOTTOM, LEFT, RIGHT, TOP, WIDTH};
use super::html::escape;

const HEIGHT: f64 = 220.0;
/// Upper end of the vertical axis: twice the fair share of one of four servers.
const MAX_SHARE: f64 = 0.5;
const FAIR_SHARE: f64 = 0.25;
/// The workload whose runs the report's headline compares.
pub(super) const HEADLINE_WORKLOAD: &str = "20ms";

fn y(share: f64) -> f64 {
    HEIGHT - BOTTOM - (share / MAX_SHARE).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
}

/// Draws the share in all runs of a method, with a line and a label at the start of each run.
pub(super) fn chart(method: &str, rows: &[&Row]) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: share of the slow server over time\">\n",
        escape(method)
    );
    let runs: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row.workload().unwrap_or_default(), row.shares.as_ref()?)))
        .collect();
    let duration = |seconds: &[f64]| seconds.last().copied().unwrap_or(0.0);
    let total: f64 = runs
        .iter()
        .map(|(_, shares)| duration(&shares.seconds))
        .sum();
    let x = |seconds: f64| LEFT + seconds / total.max(1e-3) * (WIDTH - LEFT - RIGHT);
    let mut starts = Vec::new();
    let mut points = Vec::new();
    let mut start = 0.0;
    for (workload, shares) in &runs {
        starts.push((x(start), (*workload).to_owned()));
        let values = shares.seconds.iter().zip(&shares.shares);
        points.extend(values.map(|(end, share)| (x(start + end), y(*share))));
        start += duration(&shares.seconds);
    }
    let vertical = Axis {
        ticks: [0.0, FAIR_SHARE, MAX_SHARE]
            .map(|share| (y(share), format!("{:.0}", share * 100.0)))
            .into(),
        title: "percent",
    };
    let horizontal = Axis {
        ticks: vec![
            (LEFT, "0".to_owned()),
            (WIDTH - RIGHT, format!("{total:.0}")),
        ],
        title: "seconds",
    };
    axis::draw(&mut svg, HEIGHT, &horizontal, &vertical);
    for (x, workload) in starts {
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<line class=\"limit\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
             <text class=\"note\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            HEIGHT - BOTTOM,
            x + 3.0,
            TOP + 9.0,
            escape(&workload)
        );
    }
    axis::line(&mut svg, "director", method, points.into_iter());
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;
    use crate::sample::Shares;

    #[test]
    fn runs_are_drawn_in_sequence_within_chart() {
        let rows = ["direct-lc/healthy", "direct-lc/20ms"].map(|name| Row {
            shares: Some(Shares {
                mean: 0.25,
                seconds: vec![0.5, 1.0],
                shares: vec![0.25, 0.9],
            }),
            ..example::row(name, 100.0, 1.0)
        });
        let svg = chart("direct-lc", &rows.iter().collect::<Vec<_>>());
        assert_eq!(svg.matches("class=\"limit\"").count(), 2);
        assert!(svg.contains(">20ms</text>"));
        assert!(
            svg.contains(&format!("{:.1},{:.1} ", LEFT + 144.0, y(0.25))),
            "{svg}"
        );
        assert_eq!((y(0.0), y(2.0)), (HEIGHT - BOTTOM, TOP));
    }
}
