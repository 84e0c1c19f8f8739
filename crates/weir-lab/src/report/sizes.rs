//! Draws a chart of requests per second by body size, for experiments with runs of several sizes.

use super::axis::{self, Axis, BOTTOM, LEFT, RIGHT, TOP, WIDTH};
use super::html::escape;
use super::{Report, Row};

const HEIGHT: f64 = 300.0;

/// Returns the body size of a row's run, from the name `size-N`.
fn size(row: &Row) -> Option<f64> {
    row.workload()?.strip_prefix("size-")?.parse().ok()
}

/// Classes of lines, with the colors and dash patterns of other charts.
const CLASSES: [&str; 6] = ["director", "s1", "s2", "receive", "client", "s3"];

/// Returns the methods that were measured with body sizes, each with the class of its line.
pub(super) fn methods(report: &Report) -> Vec<(&str, &'static str)> {
    let mut methods: Vec<&str> = Vec::new();
    for row in report.rows.iter().filter(|row| size(row).is_some()) {
        if !methods.contains(&row.method()) {
            methods.push(row.method());
        }
    }
    methods
        .into_iter()
        .enumerate()
        .map(|(index, method)| (method, CLASSES[index % CLASSES.len()]))
        .collect()
}

/// Returns the chart; `None` = the runs have fewer than two sizes, or no requests.
pub(super) fn chart(report: &Report) -> Option<String> {
    let methods = methods(report);
    let sized_rows: Vec<(&Row, f64)> = report
        .rows
        .iter()
        .filter_map(|row| Some((row, size(row)?)))
        .collect();
    let sizes = || sized_rows.iter().map(|(_, size)| *size);
    let (min_size, max_size) = (
        sizes().fold(f64::MAX, f64::min),
        sizes().fold(0.0, f64::max),
    );
    let rates = sized_rows.iter().map(|(row, _)| row.requests_per_second);
    let max_rate = rates.fold(0.0, f64::max) * 1.1;
    if methods.is_empty() || min_size >= max_size || max_rate <= 0.0 {
        return None;
    }
    let x = |size: f64| {
        LEFT + (size / min_size).ln() / (max_size / min_size).ln() * (WIDTH - LEFT - RIGHT)
    };
    let y = |rate: f64| HEIGHT - BOTTOM - rate / max_rate * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: requests per second by size\">\n",
        escape(&report.experiment)
    );
    let ticks = [512.0, 2048.0, 8192.0, 32_768.0, 131_072.0, 524_288.0_f64];
    let horizontal = Axis {
        ticks: ticks
            .into_iter()
            .filter(|size| (min_size..=max_size).contains(size))
            .map(|size| {
                (
                    x(size),
                    if size < 1024.0 {
                        format!("{size}")
                    } else {
                        format!("{}K", size / 1024.0)
                    },
                )
            })
            .collect(),
        title: "bytes",
    };
    let vertical = Axis {
        ticks: (0..=5)
            .map(|part| f64::from(part) * max_rate / 5.5)
            .map(|rate| (y(rate), format!("{rate:.0}")))
            .collect(),
        title: "requests per second",
    };
    axis::draw(&mut svg, HEIGHT, &horizontal, &vertical);
    for (method, class) in methods {
        let mut points: Vec<(f64, f64)> = sized_rows
            .iter()
            .filter(|(row, _)| row.method() == method)
            .map(|(row, size)| (*size, row.requests_per_second))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let points = points.into_iter().map(|(size, rate)| (x(size), y(rate)));
        axis::line(&mut svg, class, method, points);
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn each_method_with_sizes_has_a_line() {
        let mut report = example::report();
        assert!(chart(&report).is_none());
        report.rows = [
            ("nginx/size-512", 900.0),
            ("nginx/size-65535", 300.0),
            ("direct/size-512", 950.0),
            ("direct/size-65535", 600.0),
            ("direct/small", 1.0),
        ]
        .map(|(name, rate)| example::row(name, rate, 1.0))
        .into();
        let svg = chart(&report).expect("sizes");
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
