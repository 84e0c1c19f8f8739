//! Writes metrics in both text formats: Prometheus and OpenMetrics.
//!
//! No library is used, because the available ones write only OpenMetrics, which `promtool check metrics` cannot read,
//! and do not support summaries with quantiles.

use std::fmt::{Display, Write as _};

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.0, for clients that accept it.
    OpenMetrics,
}

impl Format {
    /// Returns OpenMetrics if a client's `Accept` field contains it, and Prometheus otherwise.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Returns the value of `Content-Type`.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The labels of a sample.
pub(super) type Labels<'a> = [(&'static str, &'a str)];

pub(super) struct Text {
    out: String,
    format: Format,
}

impl Text {
    pub(super) const fn new(format: Format) -> Self {
        Self {
            out: String::new(),
            format,
        }
    }

    /// Writes the header of a metric family. Names of counters must end in `_total`.
    pub(super) fn write_family(&mut self, name: &str, kind: &str, help: &str) {
        let mut family = name;
        if self.format == Format::OpenMetrics {
            family = name.strip_suffix("_total").unwrap_or(name);
        }
        let _ = writeln!(self.out, "# HELP {family} {help}\n# TYPE {family} {kind}");
        let unit = ["seconds", "bytes"]
            .into_iter()
            .find(|unit| family.ends_with(unit));
        if let Some(unit) = unit
            && self.format == Format::OpenMetrics
        {
            let _ = writeln!(self.out, "# UNIT {family} {unit}");
        }
    }

    pub(super) fn write_sample(&mut self, name: &str, labels: &Labels<'_>, value: impl Display) {
        self.out.push_str(name);
        if !labels.is_empty() {
            self.out.push('{');
            write_labels(&mut self.out, labels);
            self.out.push('}');
        }
        self.write_value(value);
    }

    /// Writes a sample whose name has a suffix, with [rendered](render_labels) labels and further labels whose values
    /// need no escaping.
    pub(super) fn write_series(
        &mut self,
        (name, suffix): (&str, &str),
        labels: &RenderedLabels,
        further_labels: &Labels<'_>,
        value: impl Display,
    ) {
        for part in [name, suffix, "{", &labels.0] {
            self.out.push_str(part);
        }
        for (label, text) in further_labels {
            for part in [",", label, "=\"", text, "\""] {
                self.out.push_str(part);
            }
        }
        self.out.push('}');
        self.write_value(value);
    }

    fn write_value(&mut self, value: impl Display) {
        self.out.push(' ');
        let _ = write!(self.out, "{value}");
        self.out.push('\n');
    }

    pub(super) fn write_single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.write_family(name, kind, help);
        self.write_sample(name, &[], value);
    }

    /// Ends the text and returns it.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

/// Labels in rendered form. A server's labels are written many times, so they are rendered only once.
pub(super) struct RenderedLabels(String);

/// Renders labels once, for many series.
pub(super) fn render_labels(labels: &Labels<'_>) -> RenderedLabels {
    let mut out = String::new();
    write_labels(&mut out, labels);
    RenderedLabels(out)
}

fn write_labels(out: &mut String, labels: &Labels<'_>) {
    for (index, (label, text)) in labels.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(label);
        out.push_str("=\"");
        escape(out, text);
        out.push('"');
    }
}

/// A number of microseconds, which is formatted in seconds without loss of precision.
pub(super) struct Seconds(pub(super) u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, part) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        let (mut part, mut digits) = (part, 6);
        while part % 10 == 0 {
            part /= 10;
            digits -= 1;
        }
        write!(f, "{whole}.{part:0digits$}")
    }
}

/// Escapes a label value: backslash, quotation mark and newline.
fn escape(out: &mut String, text: &str) {
    let mut remainder = text;
    while let Some(index) = remainder.find(['\\', '"', '\n']) {
        out.push_str(&remainder[..index]);
        out.push('\\');
        out.push(match remainder.as_bytes()[index] {
            b'\n' => 'n',
            other => char::from(other),
        });
        remainder = &remainder[index + 1..];
    }
    out.push_str(remainder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_printed_as_seconds() {
        for (us, text) in [
            (0, "0"),
            (500, "0.0005"),
            (1_500_000, "1.5"),
            (30_000_000, "30"),
            (u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(Seconds(us).to_string(), text);
        }
    }
}
