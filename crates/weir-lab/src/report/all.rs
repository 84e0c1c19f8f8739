//! Implements `weir lab report`, which writes all experiments to one HTML file, with the figures of the field reports.

use std::fmt::Write as _;

use super::field::{self, FieldReport, Figure};
use super::html::{body, escape, page};
use super::{Report, sizes};

/// The reported and the measured values of one figure.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Comparison {
    experiment: String,
    #[serde(rename = "what")]
    label: &'static str,
    unit: &'static str,
    /// The field report's value; `None` = it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    reported: Option<f64>,
    /// The values of the peer and of Weir, measured by the lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weir: Option<f64>,
}

/// Returns the comparisons of a lab report with its field report.
pub(crate) fn comparisons(report: &Report) -> Vec<Comparison> {
    let Some(field) = field::field_report(&report.experiment) else {
        return Vec::new();
    };
    let measured_value =
        |name: Option<&str>, figure: &Figure| figure.metric.value(name?, &report.rows);
    let lines = field.figures.iter().map(|figure| Comparison {
        experiment: report.experiment.clone(),
        label: figure.label,
        unit: figure.metric.unit(),
        reported: figure.reported,
        peer: measured_value(figure.peer, figure),
        weir: measured_value(figure.weir, figure),
    });
    lines.collect()
}

/// Returns the content of the file. `missing` lists the experiments without results.
pub(crate) fn render(reports: &[Report], missing: &[&str]) -> String {
    let mut content = String::from(
        "<h1>weir lab: all experiments</h1>\n<p>Figures from five field reports, and the same workloads measured on \
         this machine with the same peers and with Weir. Absolute numbers depend on the machine: compare the columns \
         \u{201c}peer (measured)\u{201d} and \u{201c}Weir (measured)\u{201d}, and their ratios with those of the \
         report.</p>\n",
    );
    write_summary(&mut content, reports);
    for name in missing {
        // Writing to a String cannot fail.
        let _ = writeln!(
            content,
            "<p class=\"busy\">{name}: no results; run `weir lab run {name} --report DIR` to produce them.</p>"
        );
    }
    for report in reports {
        content.push_str("<hr/>\n<section>\n");
        let field = field::field_report(&report.experiment);
        if let Some(field) = field {
            write_introduction(&mut content, field);
            write_table(&mut content, report);
        }
        content.push_str(&body(report));
        if let Some(chart) = sizes::chart(report) {
            write_size_chart(&mut content, report, &chart);
        }
        if let Some(field) = field {
            content.push_str("<h2>Differences from the report</h2>\n<ul>\n");
            for difference in field.differences {
                let _ = writeln!(content, "<li>{}</li>", escape(difference));
            }
            content.push_str("</ul>\n");
        }
        content.push_str("</section>\n");
    }
    page("all experiments", &content)
}

fn write_introduction(content: &mut String, field: &FieldReport) {
    let _ = writeln!(
        content,
        "<h1>{}</h1>\n<p>{}</p>",
        escape(field.title),
        escape(field.setup)
    );
}

/// Writes the headline of each experiment.
fn write_summary(content: &mut String, reports: &[Report]) {
    content.push_str("<ul>\n");
    for report in reports {
        let headline = super::headline::summarize(report).unwrap_or_default();
        let _ = writeln!(
            content,
            "<li>{}: {}</li>",
            escape(&report.experiment),
            escape(&headline)
        );
    }
    content.push_str("</ul>\n");
}

fn write_table(content: &mut String, report: &Report) {
    content.push_str(
        "<div class=\"scroll\"><table>\n<tr><th>figure</th><th>unit</th><th>reported</th>\
         <th>peer (measured)</th><th>Weir (measured)</th></tr>\n",
    );
    let cell = |value: Option<f64>| match value {
        None => "\u{2013}".to_owned(),
        Some(value) if value.abs() >= 100.0 || value == value.trunc() => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    };
    for line in comparisons(report) {
        let _ = writeln!(
            content,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(line.label),
            line.unit,
            cell(line.reported),
            cell(line.peer),
            cell(line.weir)
        );
    }
    content.push_str("</table></div>\n");
}

fn write_size_chart(content: &mut String, report: &Report, chart: &str) {
    content.push_str("<h2>Requests by size</h2>\n");
    let keys = sizes::methods(report)
        .into_iter()
        .map(|(method, class)| (class.to_owned(), escape(method)));
    super::html::write_legend(content, keys.collect());
    let _ = writeln!(content, "<figure>{chart}</figure>");
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn file_contains_reported_and_measured_figures() {
        let mut report = example::report();
        report.rows.push(example::row("haproxy", 0.25, 400.0));
        let page = render(&[report, example::timed_report()], &["slow-server"]);
        // The KB/s of direct routing: the report's value, no value for nftables, and Weir's value.
        assert!(
            page.contains("<tr><td>direct routing</td><td>KB/s</td><td>4596</td><td>\u{2013}</td><td>4088</td></tr>"),
            "{page}"
        );
        assert!(
            page.contains("<tr><td>direct routing vs. the proxy</td><td>\u{d7}</td><td>3.89</td>")
        );
        assert!(page.contains("<td>504</td>") && page.contains("slow-server: no results"));
        assert!(page.contains("Differences from the report"));
        assert_eq!(page.matches("<html").count(), 1);
        super::super::html::assert_well_formed(&page);
    }
}
