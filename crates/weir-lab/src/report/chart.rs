//! Draws SVG charts of host traffic over time.
//!
//! CSS classes define the colors, so that the file supports light and dark mode.

use std::fmt::Write as _;

use super::axis::{self, Axis, BOTTOM, LEFT, RIGHT, TOP, WIDTH};
use super::html::escape;
use super::{DIRECTOR, Panel};
use crate::sample::HostSeries;

/// Height of a panel, in CSS pixels.
const HEIGHT: f64 = 240.0;
/// Maximum number of points in a line: about one per four pixels.
const MAX_POINTS: usize = 150;
/// Maximum number of intervals between the ticks of an axis.
const MAX_INTERVALS: f64 = 6.0;

/// The scale of one panel.
struct Scale {
    max_seconds: f64,
    max_mbps: f64,
}

impl Scale {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.max_seconds * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, mbps: f64) -> f64 {
        HEIGHT - BOTTOM - (mbps / self.max_mbps).min(1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Returns a round step that divides `range` into at most [`MAX_INTERVALS`] intervals.
fn step(range: f64) -> f64 {
    let rough = (range / MAX_INTERVALS).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * power)
}

/// Returns the multiples of a round step from 0 to `end`, as positions and labels.
fn ticks(end: f64, position: impl Fn(f64) -> f64) -> Vec<(f64, String)> {
    let step = step(end);
    let digits = if step < 1.0 {
        (-step.log10()).ceil() as usize
    } else {
        0
    };
    let count = (end / step + 1e-9).floor() as u32;
    (0..=count)
        .map(|i| f64::from(i) * step)
        .map(|value| (position(value), format!("{value:.digits$}")))
        .collect()
}

/// Draws the transmit rate of each host, and the receive rate of the director, over time.
pub(super) fn traffic(panel: &Panel) -> String {
    let series = panel.series.downsample(MAX_POINTS);
    // The scale depends only on the link's rate, so this rate is at the same height in all panels.
    let scale = Scale {
        max_seconds: series.seconds.last().copied().unwrap_or(1.0).max(1e-3),
        max_mbps: panel.link * 1.12,
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: Mbit/s of every host over time\">\n",
        escape(&panel.name)
    );
    let horizontal = Axis {
        ticks: ticks(scale.max_seconds, |value| scale.x(value)),
        title: "seconds",
    };
    let vertical = Axis {
        ticks: ticks(scale.max_mbps, |value| scale.y(value)),
        title: "Mbit/s",
    };
    axis::draw(&mut svg, HEIGHT, &horizontal, &vertical);
    let limit = scale.y(panel.link);
    // Writing to a String cannot fail.
    let _ = writeln!(
        svg,
        "<line class=\"limit\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{limit:.1}\" y2=\"{limit:.1}\"/>\
         <text class=\"note\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">link</text>",
        WIDTH - RIGHT,
        WIDTH - RIGHT,
        limit - 3.0
    );
    let mut line = |class: &str, title: &str, values: &[f64]| {
        let points = series.seconds.iter().zip(values);
        let points = points.map(|(end, value)| (scale.x(*end), scale.y(*value)));
        axis::line(&mut svg, class, title, points);
    };
    let other_hosts = series.hosts.iter().filter(|host| host.host != DIRECTOR);
    for host in other_hosts {
        line(
            &class_of(host),
            &format!("{} sends", host.host),
            &host.transmit,
        );
    }
    // Draw the director's lines last, so that they are on top.
    if let Some(director) = series.hosts.iter().find(|host| host.host == DIRECTOR) {
        line("receive", "director receives", &director.receive);
        line("director", "director sends", &director.transmit);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the classes of a host's line: `client`, or `server` and one of `s1` to `s4`.
fn class_of(host: &HostSeries) -> String {
    let number: usize = host.host.trim_start_matches("server").parse().unwrap_or(0);
    if number == 0 {
        "client".into()
    } else {
        format!("server s{}", (number - 1) % 4 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_and_within_the_range() {
        let labels = |end| {
            ticks(end, |value| value)
                .into_iter()
                .map(|(_, label)| label)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(labels(11.5), "0 2 4 6 8 10");
        assert_eq!(labels(0.7), "0.0 0.2 0.4 0.6");
        assert_eq!(labels(388.0), "0 100 200 300");
    }

    proptest! {
        #[test]
        fn every_range_has_two_to_seven_ticks(end in 0.01_f64..1e6) {
            let ticks = ticks(end, |value| value);
            prop_assert!((2..=7).contains(&ticks.len()), "{} ticks for {}", ticks.len(), end);
            prop_assert!(ticks.iter().all(|(value, _)| *value <= end * 1.000_001));
        }
    }

    #[test]
    fn classes_of_servers_repeat_after_four() {
        let class = |name: &str| {
            class_of(&HostSeries {
                host: name.into(),
                transmit: vec![],
                receive: vec![],
            })
        };
        assert_eq!(class("client"), "client");
        assert_eq!(class("server5"), "server s1");
    }
}
