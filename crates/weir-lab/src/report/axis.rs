//! Draws the axes and lines of charts with two axes, and defines their size and margins.

use std::fmt::Write as _;

use super::html::escape;

/// Outer width and inner margins, in CSS pixels.
pub(super) const WIDTH: f64 = 640.0;
pub(super) const LEFT: f64 = 52.0;
pub(super) const RIGHT: f64 = 12.0;
pub(super) const TOP: f64 = 14.0;
pub(super) const BOTTOM: f64 = 38.0;

/// One axis: the positions and labels of its ticks, and its title.
pub(super) struct Axis<'a> {
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) title: &'a str,
}

/// Draws both axes of a chart of this height, with a horizontal line at each tick of the vertical axis.
pub(super) fn draw(svg: &mut String, height: f64, horizontal: &Axis<'_>, vertical: &Axis<'_>) {
    let (bottom, right) = (height - BOTTOM, WIDTH - RIGHT);
    for (y, label) in &vertical.ticks {
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for (x, label) in &horizontal.ticks {
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 16.0
        );
    }
    let middle = (TOP + bottom) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(13 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (LEFT + right) / 2.0,
        height - 6.0,
        horizontal.title,
        vertical.title
    );
}

/// Draws a line through `points`, which are in image coordinates.
pub(super) fn line(
    svg: &mut String,
    class: &str,
    title: &str,
    points: impl Iterator<Item = (f64, f64)>,
) {
    let mut coordinates = String::new();
    for (x, y) in points {
        let _ = write!(coordinates, "{x:.1},{y:.1} ");
    }
    let _ = writeln!(
        svg,
        "<polyline class=\"{class}\" points=\"{}\"><title>{}</title></polyline>",
        coordinates.trim_end(),
        escape(title)
    );
}
