//! Draws bar charts as HTML elements.
//!
//! Their text has the page's font size even on small screens, unlike in a scaled image.

use std::fmt::Write as _;

use super::html::escape;
use super::{BASE, Report, Row};

/// A bar: its name, its length and its label.
struct Bar<'a> {
    name: &'a str,
    value: f64,
    label: String,
}

/// Writes a section of bars for each kind of run in a report.
pub(super) fn render(page: &mut String, report: &Report) {
    if report.is_timed() {
        let (quantile, title) = if report.has_shares() {
            (0.99, "99 % of the requests took at most")
        } else {
            (0.9999, "99.99 % of the requests took at most")
        };
        let bars = report.rows.iter().filter_map(|row| {
            let value = row.timing.as_ref()?.latency.quantile_ms(quantile);
            Some(Bar {
                name: &row.name,
                value,
                label: format!("{value:.2} ms"),
            })
        });
        write_section(page, title, &bars.collect::<Vec<_>>());
        return;
    }
    let mut workloads: Vec<Option<&str>> = Vec::new();
    for workload in report.rows.iter().map(Row::workload) {
        if !workloads.contains(&workload) {
            workloads.push(workload);
        }
    }
    for workload in workloads {
        let rows = report.rows.iter().filter(|row| row.workload() == workload);
        let bars: Vec<Bar<'_>> = rows.map(bar).collect();
        let title = match workload {
            Some(workload) => format!("Requests per second: {workload}"),
            None => "Requests per second".to_owned(),
        };
        write_section(page, &title, &bars);
    }
}

fn bar(row: &Row) -> Bar<'_> {
    let rate = row.requests_per_second;
    let digits = if rate < 10.0 { 2 } else { 0 };
    let ratio = row.ratio.map(|ratio| format!(" ({ratio:.2} \u{d7})"));
    Bar {
        name: row.method(),
        value: rate,
        label: format!("{rate:.digits$}{}", ratio.unwrap_or_default()),
    }
}

fn write_section(page: &mut String, title: &str, bars: &[Bar<'_>]) {
    if bars.is_empty() {
        return;
    }
    let max = bars.iter().map(|bar| bar.value);
    let max = max.fold(f64::MIN_POSITIVE, f64::max);
    // Writing to a String cannot fail.
    let _ = writeln!(page, "<section class=\"bars\"><h2>{}</h2>", escape(title));
    for bar in bars {
        let class = if bar.name == BASE { "bar base" } else { "bar" };
        let percent = (bar.value / max * 100.0).clamp(0.0, 100.0);
        let _ = writeln!(
            page,
            "<div><span>{}</span><span class=\"track\"><span class=\"{class}\" style=\"width: \
             {percent:.1}%\"></span></span>\
             <span>{}</span></div>",
            escape(bar.name),
            escape(&bar.label)
        );
    }
    page.push_str("</section>\n");
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    fn page(report: &Report) -> String {
        let mut page = String::new();
        render(&mut page, report);
        page
    }

    #[test]
    fn every_row_has_a_bar() {
        insta::assert_snapshot!(page(&example::report()));
    }

    #[test]
    fn each_kind_of_run_and_the_latencies_have_a_section() {
        let mut report = example::report();
        for (row, name) in report
            .rows
            .iter_mut()
            .zip(["nat/c100", "nat/c1000", "direct/c100"])
        {
            row.name = name.to_owned();
        }
        assert_eq!(page(&report).matches("<section").count(), 2);
        insta::assert_snapshot!(page(&example::timed_report()));
    }
}
